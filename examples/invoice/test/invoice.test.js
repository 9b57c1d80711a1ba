'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const { lineTotal, print, totals } = require('../src/invoice');

test('a line is price times quantity', () => assert.equal(lineTotal({ price: 250, quantity: 4 }), 1000));
test('a discount is taken off', () => assert.equal(lineTotal({ price: 999, discount: 10 }), 899));
test('half a cent of discount counts for the buyer', () => assert.equal(lineTotal({ price: 1005, discount: 10 }), 904));
test('a refund mirrors the sale', () => {
  const sale = lineTotal({ price: 1005, quantity: 1, discount: 10 });
  assert.equal(lineTotal({ price: 1005, quantity: -1, discount: 10 }), -sale);
});
test('sale and refund of a taxed line add up to nothing', () => {
  const line = { price: 250, tax: 5 };
  const sale = totals([line]);
  const refund = totals([{ ...line, quantity: -1 }]);
  assert.equal(sale.gross + refund.gross, 0);
});
test('tax is rounded once per rate', () => {
  assert.deepEqual(
    totals([
      { price: 105, tax: 10 },
      { price: 105, tax: 10 },
    ]),
    { net: 210, tax: 21, gross: 231 },
  );
});
test('rates are taxed apart', () => {
  assert.deepEqual(
    totals([
      { price: 1000, tax: 19 },
      { price: 1000, tax: 7 },
    ]),
    { net: 2000, tax: 260, gross: 2260 },
  );
});
test('half a cent of tax is rounded up', () => assert.equal(totals([{ price: 250, tax: 5 }]).tax, 13));
test('an empty invoice', () => assert.deepEqual(totals([]), { net: 0, tax: 0, gross: 0 }));
test('printed in columns', () => {
  assert.equal(
    print([{ name: 'tea', price: 250, quantity: 2, tax: 10 }]),
    [
      '2 × tea                 5.00',
      'net                     5.00',
      'tax                     0.50',
      'total                   5.50',
    ].join('\n'),
  );
});
