'use strict';
const { multiply, percentOf, format } = require('./money');

/** The sum of a line: price times quantity, less its discount. A refund has a negative quantity. */
function lineTotal({ price, quantity = 1, discount = 0 }) {
  const full = multiply(price, quantity);
  return full - percentOf(full, discount);
}

/** Net, tax and gross of an invoice; tax is rounded once per rate. */
function totals(lines) {
  const byRate = new Map();
  for (const line of lines) byRate.set(line.tax ?? 0, (byRate.get(line.tax ?? 0) ?? 0) + lineTotal(line));
  let net = 0;
  let tax = 0;
  for (const [rate, amount] of byRate) {
    net += amount;
    tax += percentOf(amount, rate);
  }
  return { net, tax, gross: net + tax };
}

/** One line of text per line of the invoice, then the totals. */
function print(lines) {
  const { net, tax, gross } = totals(lines);
  const rows = lines.map((line) => [`${line.quantity ?? 1} × ${line.name}`, format(lineTotal(line))]);
  rows.push(['net', format(net)], ['tax', format(tax)], ['total', format(gross)]);
  const width = Math.max(...rows.map(([, amount]) => amount.length));
  return rows.map(([name, amount]) => `${name.padEnd(24)}${amount.padStart(width)}`).join('\n');
}

module.exports = { lineTotal, print, totals };
