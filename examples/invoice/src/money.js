'use strict';

/** Amounts are whole cents. Halves are rounded away from zero, as invoices do. */
function roundCents(value) {
  return Math.floor(value + 0.5);
}

/** Cents of a text such as "12.30", "-4", "1,234.5". */
function parse(text) {
  const m = /^(-)?(\d{1,3}(?:,\d{3})+|\d+)(?:\.(\d{1,2}))?$/.exec(text.trim());
  if (!m) throw new RangeError(`not an amount: ${text}`);
  const cents = Number(m[2].replaceAll(',', '')) * 100 + Number((m[3] ?? '').padEnd(2, '0'));
  return m[1] ? -cents : cents;
}

/** "12.30", with a sign in front and thousands apart. */
function format(cents) {
  const digits = String(Math.abs(cents)).padStart(3, '0');
  const whole = digits.slice(0, -2).replace(/\B(?=(\d{3})+$)/g, ',');
  return `${cents < 0 ? '-' : ''}${whole}.${digits.slice(-2)}`;
}

/** An amount times a factor, rounded to the cent. */
function multiply(cents, factor) {
  return roundCents(cents * factor);
}

/** `percent` of an amount, rounded to the cent. */
function percentOf(cents, percent) {
  return roundCents((cents * percent) / 100);
}

/** Splits an amount by weights so that the parts add up to it; spare cents go to the first parts. */
function allocate(cents, weights) {
  const total = weights.reduce((a, b) => a + b, 0);
  if (total <= 0) throw new RangeError('weights must add up to more than nothing');
  const sign = cents < 0 ? -1 : 1;
  const amount = Math.abs(cents);
  const parts = weights.map((weight) => Math.floor((amount * weight) / total));
  let spare = amount - parts.reduce((a, b) => a + b, 0);
  for (let i = 0; spare > 0; i = (i + 1) % parts.length, spare--) parts[i]++;
  return parts.map((part) => (part === 0 ? 0 : sign * part));
}

module.exports = { allocate, format, multiply, parse, percentOf, roundCents };
