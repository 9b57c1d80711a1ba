'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const { allocate, format, multiply, parse, percentOf, roundCents } = require('../src/money');

for (const [text, cents] of [
  ['0', 0],
  ['12', 1200],
  ['12.3', 1230],
  ['12.34', 1234],
  ['-4', -400],
  ['1,234.50', 123450],
  [' 7.05 ', 705],
]) {
  test(`parse ${JSON.stringify(text)}`, () => assert.equal(parse(text), cents));
}
for (const text of ['', 'abc', '1.234', '1,23', '--1', '.5']) {
  test(`parse refuses ${JSON.stringify(text)}`, () => assert.throws(() => parse(text), RangeError));
}
for (const [cents, text] of [
  [0, '0.00'],
  [5, '0.05'],
  [-5, '-0.05'],
  [123456789, '1,234,567.89'],
]) {
  test(`format ${cents}`, () => assert.equal(format(cents), text));
}
for (const [value, cents] of [
  [2.4, 2],
  [2.5, 3],
  [2.6, 3],
  [0.5, 1],
  [-2.4, -2],
  [-2.6, -3],
]) {
  test(`round ${value}`, () => assert.equal(roundCents(value), cents));
}
for (const [value, cents] of [
  [-2.5, -3],
  [-0.5, -1],
]) {
  test(`round ${value} away from zero`, () => assert.equal(roundCents(value), cents));
}
test('multiply rounds a half up', () => assert.equal(multiply(1005, 0.1), 101));
test('multiply by a whole number', () => assert.equal(multiply(333, 3), 999));
test('percent of an amount', () => assert.equal(percentOf(1050, 7.5), 79));
test('percent of nothing', () => assert.equal(percentOf(0, 19), 0));
test('allocate evenly', () => assert.deepEqual(allocate(900, [1, 1, 1]), [300, 300, 300]));
test('allocate spare cents to the first', () => assert.deepEqual(allocate(100, [1, 1, 1]), [34, 33, 33]));
test('allocate by weight', () => assert.deepEqual(allocate(1000, [3, 1]), [750, 250]));
test('allocate a refund', () => assert.deepEqual(allocate(-100, [1, 1, 1]), [-34, -33, -33]));
test('allocate needs weights', () => assert.throws(() => allocate(1, [0]), RangeError));
