// Mocha's usual report on the screen, and the counts in the file that PETRI_TEST_RESULTS names.
const { writeFileSync } = require('node:fs');
const Mocha = require('mocha');

module.exports = class extends Mocha.reporters.Spec {
  constructor(runner, options) {
    super(runner, options);
    runner.once('end', () => {
      const { passes, failures, pending } = this.stats;
      if (process.env.PETRI_TEST_RESULTS)
        writeFileSync(process.env.PETRI_TEST_RESULTS, JSON.stringify({ passes, failures, pending }));
    });
  }
};
