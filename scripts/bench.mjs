// `npm run bench`: each figure as a ratio against a named baseline, both measured in this run, interleaved, medians.
//   --quick       a third of the repetitions
//   --only ID,…   some rows (see bench/rows/index.mjs)
//   --save        write the table into docs/bench.md
// Every value goes to out/bench.json. The exit code says whether it ran, not whether the aims were met.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const root = path.join(path.dirname(fileURLToPath(import.meta.url)), '..');
const args = process.argv.slice(2);
const quick = args.includes('--quick');
const only = args.includes('--only') ? (args[args.indexOf('--only') + 1] ?? '').split(',') : undefined;
const n = (times) => (quick ? Math.max(2, Math.round(times / 3)) : times);
const log = (text) => console.error(`  ${text}`);

/** Runs a step of the preparation; its output is ours. */
function step(command, ...rest) {
  if (spawnSync(command, rest, { cwd: root, stdio: ['ignore', 2, 2] }).status !== 0) process.exit(1);
}

if (!existsSync(path.join(root, 'node_modules/.package-lock.json'))) {
  log('Installing packages: npm ci');
  step('npm', 'ci', '--no-audit', '--no-fund');
}
step(process.execPath, 'esbuild.js');

const { ensureEngine, ensureTestImages } = await import('./engine.mjs');
const { Context } = await import('./bench/context.mjs');
const { lineOf, resultOf, tableOf } = await import('./bench/report.mjs');
const { rows } = await import('./bench/rows/index.mjs');

const unknown = only?.filter((id) => !rows.some((row) => row.id === id)) ?? [];
if (unknown.length > 0) {
  console.error(`No such row: ${unknown.join(', ')}. There are: ${rows.map((row) => row.id).join(', ')}.`);
  process.exit(2);
}

const engine = await ensureEngine({ log });
process.env.DOCKER_HOST = engine.dockerHost;
const context = new Context(engine.dockerHost, log);
const cleanUp = async () => {
  await context.end();
  if (engine.started) await engine.stop();
};
let stopping = false;
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  process.on(signal, async () => {
    if (stopping) return;
    stopping = true;
    log('Stopped; cleaning up');
    await cleanUp().catch((error) => console.error(error.message));
    process.exit(130);
  });
}

/** What the figures were taken on. */
async function machine() {
  const [version, info] = [await context.docker.version(), await context.docker.info()];
  return {
    date: new Date().toISOString().slice(0, 10),
    cores: os.cpus().length,
    platform: process.platform,
    node: process.versions.node,
    engine: version.Version,
    storage: info.Driver,
    quick,
  };
}

async function main() {
  await ensureTestImages(engine.dockerHost, { log });
  const on = await machine();
  const results = [];
  for (const row of rows) {
    if (only && !only.includes(row.id)) continue;
    log(`${row.id}: ${row.what}`);
    const result = resultOf(row, await row.measure(context, n));
    results.push(result);
    log(lineOf(result));
  }
  return { on, results };
}

async function save(table) {
  const file = path.join(root, 'docs/bench.md');
  const text = readFileSync(file, 'utf8').replace(
    /(<!-- table -->\n)[\s\S]*(<!-- end -->)/,
    (_, begin, end) => `${begin}\n${table}\n\n${end}`,
  );
  const prettier = await import(pathToFileURL(path.join(root, 'node_modules/prettier/index.mjs')).href);
  writeFileSync(file, await prettier.format(text, { ...(await prettier.resolveConfig(file)), parser: 'markdown' }));
}

try {
  const { on, results } = await main();
  const table = tableOf(results, on);
  console.log(`\n${table}`);
  mkdirSync(path.join(root, 'out'), { recursive: true });
  writeFileSync(path.join(root, 'out/bench.json'), `${JSON.stringify({ ...on, results }, null, 2)}\n`);
  if (args.includes('--save')) await save(table);
} catch (error) {
  if (!stopping) {
    console.error(error.message);
    process.exitCode = 1;
  }
} finally {
  if (!stopping) await cleanUp();
}
