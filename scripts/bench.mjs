// `npm run bench`: each speed figure as a ratio against a named baseline, both measured in this run, interleaved, medians.
//   --quick       a third of the repetitions
//   --only ID,…   some rows (create, scale, bake, rebake, capture, snapshot, rollback, diff, ten, exec, memory, version)
//   --save        write the table into docs/bench.md
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = path.join(path.dirname(fileURLToPath(import.meta.url)), '..');
const quick = process.argv.includes('--quick');
const only = process.argv.includes('--only') ? process.argv[process.argv.indexOf('--only') + 1]?.split(',') : undefined;
const log = (text) => console.error(`  ${text}`);

if (!existsSync(path.join(root, 'node_modules/.package-lock.json'))) {
  log('Installing packages: npm ci');
  spawnSync('npm', ['ci', '--no-audit', '--no-fund'], { cwd: root, stdio: 'inherit' });
}
if (spawnSync(process.execPath, ['esbuild.js'], { cwd: root, stdio: 'inherit' }).status !== 0) process.exit(1);
const { ensureEngine, ensureTestImages } = await import('./engine.mjs');
const { Context, median } = await import('./bench/context.mjs');
const { rows } = await import('./bench/rows.mjs');

const engine = await ensureEngine({ log });
await ensureTestImages(engine.dockerHost, { log });
process.env.DOCKER_HOST = engine.dockerHost;
const context = new Context(engine.dockerHost, log);
const results = [];
const n = (times) => (quick ? Math.max(2, Math.round(times / 3)) : times);
try {
  await context.client();
  for (const row of rows) {
    if (only && !only.includes(row.id)) continue;
    log(row.what);
    const { ours, base } = await row.measure(context, n);
    const [a, b] = [median(ours), median(base)];
    const value = row.unit === 'bytes' ? a : a / b;
    results.push({
      id: row.id,
      what: row.what,
      against: row.against,
      unit: row.unit ?? 'ms',
      ours: a,
      base: b,
      ratio: a / b,
      aim: row.aim,
      held: value <= row.aim,
      all: { ours, base },
    });
    log(`  ${(a / b).toFixed(2)} × (${a.toFixed(0)} / ${b.toFixed(0)})`);
  }
} finally {
  await context.end();
}

const figure = (value, unit) =>
  unit === 'bytes'
    ? `${Math.round(value / 1024 / 1024)} MB`
    : value >= 1000
      ? `${(value / 1000).toFixed(2)} s`
      : `${value.toFixed(0)} ms`;
const { Version, Driver } = {
  Version: '?',
  Driver: '?',
  ...(await context.docker.version().catch(() => ({}))),
  ...(await context.docker.info().catch(() => ({}))),
};
const table = [
  `${new Date().toISOString().slice(0, 10)}, ${os.cpus().length} cores, ${process.platform}, node ${process.versions.node}, engine ${Version}, storage ${Driver}${quick ? ', quick' : ''}`,
  '',
  '| measure | against | Petri | baseline | ratio | aim | |',
  '|---|---|---:|---:|---:|---:|---|',
  ...results.map(
    (r) =>
      `| ${r.what} | ${r.against} | ${figure(r.ours, r.unit)} | ${figure(r.base, r.unit)} | ${r.ratio.toFixed(2)} | ${r.unit === 'bytes' ? `≤ ${figure(r.aim, r.unit)}` : `≤ ${r.aim}`} | ${r.held ? '✓' : '✗'} |`,
  ),
].join('\n');
console.log(`\n${table}`);
mkdirSync(path.join(root, 'out'), { recursive: true });
writeFileSync(path.join(root, 'out/bench.json'), JSON.stringify(results, null, 2));
if (process.argv.includes('--save')) {
  const file = path.join(root, 'docs/bench.md');
  const text = readFileSync(file, 'utf8');
  writeFileSync(
    file,
    text.replace(/(<!-- table -->\n)[\s\S]*(\n<!-- end -->)/, (_, a, b) => `${a}${table}${b}`),
  );
}
