// `npm test`: everything, from a clean checkout to the last engine test. Ends with a line "N passed, N failed"; no test at all is a failure, and
// so is anything that the tests leave in the engine.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { api } from './dockerApi.mjs';
import { ensureEngine, ensureTestImages } from './engine.mjs';

const root = path.join(path.dirname(fileURLToPath(import.meta.url)), '..');
const results = path.join(root, 'out/test-results.json');
const ownerLabel = 'dev.petri.owner';

let passed = 0;
let failed = 0;

function say(text) {
  console.log(`\n── ${text}`);
}

/** Runs a command to its end, its output ours. False, and said, when it fails. */
function step(title, command, args, env = {}) {
  say(title);
  const result = spawnSync(command, args, {
    cwd: root,
    stdio: ['ignore', 'inherit', 'inherit'],
    env: { ...process.env, ...env },
  });
  if (result.status === 0) return true;
  console.log(`failed: ${title}${result.error ? ` (${result.error.message})` : ''}`);
  failed += 1;
  return false;
}

/** A tool of node_modules, run by this node. */
const tool = (file) => path.join(root, 'node_modules', file);

function installed() {
  const mark = path.join(root, 'node_modules/.package-lock.json');
  return existsSync(mark) && statSync(mark).mtimeMs >= statSync(path.join(root, 'package-lock.json')).mtimeMs;
}

/** Ids of everything in the engine that carries our label. */
async function ownedObjects(dockerHost) {
  const filter = encodeURIComponent(JSON.stringify({ label: [ownerLabel] }));
  const [containers, images] = await Promise.all([
    api(dockerHost, 'GET', `/containers/json?all=1&filters=${filter}`),
    api(dockerHost, 'GET', `/images/json?all=1&filters=${filter}`),
  ]);
  return new Map([
    ...JSON.parse(containers).map((c) => [c.Id, `container ${c.Names.join(' ')}`]),
    ...JSON.parse(images).map((i) => [i.Id, `image ${(i.RepoTags ?? []).join(' ') || i.Id}`]),
  ]);
}

async function main() {
  if (!installed() && !step('Installing packages: npm ci', npm(), [...npmArgs(), 'ci', '--no-audit', '--no-fund']))
    return;
  say('Container engine');
  const { dockerHost } = await ensureEngine({ log: console.log });
  await ensureTestImages(dockerHost, { log: console.log });
  console.log(`DOCKER_HOST=${dockerHost}`);

  const built = step('Build', process.execPath, ['esbuild.js', '--tests']);
  step('Types', process.execPath, [tool('typescript/bin/tsc'), '-b']);
  step('Lint', process.execPath, [tool('eslint/bin/eslint.js'), '.']);
  step('Format', process.execPath, [tool('prettier/bin/prettier.cjs'), '--check', '--log-level', 'warn', '.']);
  if (!built) return;

  const tests = testFiles(path.join(root, 'out/test'));
  const before = await ownedObjects(dockerHost);
  mkdirSync(path.dirname(results), { recursive: true });
  rmSync(results, { force: true });
  say(`Tests (${tests.length} files)`);
  const env = { ...process.env, DOCKER_HOST: dockerHost, PETRI_TEST_RESULTS: results };
  const mocha = spawnSync(process.execPath, [tool('mocha/bin/mocha.js'), ...process.argv.slice(2), ...tests], {
    cwd: root,
    stdio: ['ignore', 'inherit', 'inherit'],
    env,
  });
  if (existsSync(results)) {
    const counts = JSON.parse(readFileSync(results, 'utf8'));
    passed += counts.passes;
    failed += counts.failures;
    if (counts.pending > 0) console.log(`${counts.pending} not run on this machine`);
  } else if (mocha.status === 0) failed += 1;
  // What a crash of the runner leaves uncounted.
  if (mocha.status !== 0 && failed === 0) failed += 1;

  const left = [...(await ownedObjects(dockerHost))].filter(([id]) => !before.has(id)).map(([, what]) => what);
  if (left.length > 0) {
    console.log(`The tests left behind in the engine: ${left.join(', ')}`);
    failed += 1;
  }
}

function testFiles(folder) {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.test.js'))
    .map((entry) => path.join(entry.parentPath, entry.name))
    .sort();
}

/** The npm that runs this script, else the one on PATH. */
function npm() {
  return process.env.npm_execpath ? process.execPath : 'npm';
}
function npmArgs() {
  return process.env.npm_execpath ? [process.env.npm_execpath] : [];
}

try {
  await main();
} catch (error) {
  console.error(`\n${error.message}`);
  failed += 1;
}
if (passed === 0 && failed === 0) failed = 1;
console.log(`\n${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
