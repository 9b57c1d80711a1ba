#!/usr/bin/env node
// The command's first file: it answers `--version` without loading anything else.
declare const PETRI_VERSION: string;

const args = process.argv.slice(2);
if (args.length === 1 && (args[0] === '--version' || args[0] === '-V')) process.stdout.write(`${PETRI_VERSION}\n`);
// A bundle of its own beside this one, made from main.ts.
// eslint-disable-next-line @typescript-eslint/no-require-imports
else require('./petri-cli.js');
