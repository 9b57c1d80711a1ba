// `npm run demo`: the main job on a real project, from a fresh clone. It works in a temporary copy, says each step, and leaves nothing behind.
//   --no-undo   keep the promoted change in the copy, and the copy on disk
import { spawn, spawnSync } from 'node:child_process';
import {
  appendFileSync,
  cpSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { devNull, tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline/promises';
import { fileURLToPath } from 'node:url';
import { api, failIn } from './dockerApi.mjs';
import { differing, fingerprint, livesAfter, ownTests, same } from './demo/look.mjs';
import { ensureEngine, ensureTestImages } from './engine.mjs';

const root = path.join(path.dirname(fileURLToPath(import.meta.url)), '..');
const keep = process.argv.includes('--no-undo');
const image = 'node:22-bookworm';
const debianImage = 'petri-test/golden:1';
const npm = process.env.npm_execpath ? [process.execPath, process.env.npm_execpath] : ['npm'];

const colour = process.stdout.isTTY && !process.env.NO_COLOR;
const bold = (text) => (colour ? `\u001b[1m${text}\u001b[0m` : text);
let stepNumber = 0;
const step = (text) => console.log(`\n${bold(`${++stepNumber}. ${text}`)}`);
const note = (text) => console.log(`   ${text}`);

let scratch;
let home;
let engine;
let enginePending;
let child;
let ended = false;
let agentMayLive = false;
let stopping = false;
let held = false;

/** Runs a command; its output is ours unless it is asked for. Rejects on a wrong exit code. */
function run(command, args, { cwd = root, capture = false, expect = 0, env = {} } = {}) {
  if (stopping) return new Promise(() => undefined);
  return new Promise((resolve, reject) => {
    child = spawn(command, args, {
      cwd,
      env: { ...process.env, ...env },
      stdio: ['ignore', capture ? 'pipe' : 'inherit', 'inherit'],
    });
    let out = '';
    child.stdout?.on('data', (part) => (out += part));
    child.on('error', reject);
    child.on('close', (code, signal) => {
      child = undefined;
      if (code === expect) resolve(out);
      else
        reject(new Error(`${[path.basename(command), ...args].join(' ')} ended with ${signal ?? `exit code ${code}`}`));
    });
  });
}

const petri = (args, options) => {
  agentMayLive = true;
  return run(process.execPath, [path.join(root, 'dist/petri.js'), ...args], {
    cwd: path.join(scratch, 'invoice'),
    env: { PETRI_HOME: home, DOCKER_HOST: engine.dockerHost },
    ...options,
  });
};

function must(condition, promise) {
  if (!condition) throw new Error(`The demo's promise does not hold: ${promise}`);
  note(`✓ ${promise}`);
}

/** The image to work in: a published one where it can be had, else one made of Debian's packages. */
async function chooseImage() {
  const has = async (name) =>
    api(engine.dockerHost, 'GET', `/images/${name}/json`).then(
      () => true,
      () => false,
    );
  if (await has(image)) return image;
  if (await has(debianImage)) return debianImage;
  note(`Getting the image ${image}`);
  try {
    failIn(await api(engine.dockerHost, 'POST', '/images/create?fromImage=node&tag=22-bookworm'));
    if (await has(image)) return image;
  } catch (error) {
    note(`It can't be had here (${error.message.split('\n')[0].slice(0, 120)}).`);
  }
  await ensureTestImages(engine.dockerHost, { log: note });
  return debianImage;
}

/** How many containers and images carry this run's label. */
async function objectsLeft(owner) {
  const filter = encodeURIComponent(JSON.stringify({ label: [`dev.petri.owner=${owner}`] }));
  const [containers, images] = await Promise.all([
    api(engine.dockerHost, 'GET', `/containers/json?all=1&filters=${filter}`),
    api(engine.dockerHost, 'GET', `/images/json?all=1&filters=${filter}`),
  ]);
  return JSON.parse(containers).length + JSON.parse(images).length;
}

async function demo() {
  console.log(bold('Petri: three approaches to one bug, side by side; the winner into the workspace, and back out'));

  step('What is needed');
  const installed = path.join(root, 'node_modules/.package-lock.json');
  if (!existsSync(installed) || statSync(installed).mtimeMs < statSync(path.join(root, 'package-lock.json')).mtimeMs) {
    note('Installing packages: npm ci');
    await run(npm[0], [...npm.slice(1), 'ci', '--no-audit', '--no-fund', '--loglevel=error']);
  }
  await run(process.execPath, ['esbuild.js']);
  note('Petri is built');
  enginePending = ensureEngine({ log: note });
  engine = await enginePending;
  note(`Engine: ${engine.dockerHost}`);
  const used = await chooseImage();
  note(`Image: ${used}`);

  step('A project with a bug, in a temporary folder');
  scratch = mkdtempSync(path.join(tmpdir(), 'petri-demo-'));
  home = path.join(scratch, 'petri');
  const work = path.join(scratch, 'invoice');
  cpSync(path.join(root, 'examples/invoice'), work, { recursive: true });
  const settings = path.join(work, 'petri.json');
  writeFileSync(settings, readFileSync(settings, 'utf8').replace(image, used));
  const git = (...args) =>
    run('git', ['-c', 'user.name=Demo', '-c', 'user.email=demo@example.org', ...args], {
      cwd: work,
      // Looking must not write: `git diff` would refresh the index, and the demo compares every byte.
      env: { GIT_OPTIONAL_LOCKS: '0', GIT_CONFIG_GLOBAL: devNull, GIT_CONFIG_NOSYSTEM: '1' },
    });
  await git('init', '-q', '-b', 'main');
  await git('add', '-A');
  await git('commit', '-q', '-m', 'Invoices in whole cents');
  // In the very file that the fix will touch.
  appendFileSync(path.join(work, 'src/money.js'), '\n// An edit that is not committed.\n');
  writeFileSync(path.join(work, 'notes.txt'), 'A file that git does not know.\n');
  note(work);
  note('src/money.js has an edit that is not committed, notes.txt is a file that git does not know');
  const broken = ownTests(work);
  note(`Its own tests: ${broken.passed} pass, ${broken.failed} fail`);
  const before = fingerprint(work);

  step('Three approaches at once, each in a sandbox of its own, all by the same checks');
  await petri(['experiment', 'run', 'fix-refunds.experiment.json']);
  const [experiment] = JSON.parse(await petri(['experiment', 'list', '--json'], { capture: true }));
  const runs = Object.fromEntries(experiment.runs.map((r) => [r.name, r]));
  must(experiment.winner === 'sign', 'the right and smallest approach wins');
  must(runs.ceil.state === 'failed' && runs.ceil.checks[0].tests.failed > 0, 'the one that breaks tests does not');
  must(runs.decimal.rank === 2, 'the right but larger one is second');
  must(same(fingerprint(work), before), 'the workspace is untouched so far, .git included');

  step('The winner: checked again in a clean room, then into the workspace');
  await petri(['promote', runs.sign.id, '--yes']);
  note('What git says in the workspace now:\n');
  await git('--no-pager', 'diff', '-U0');
  console.log();
  const changed = differing(fingerprint(work), before);
  must(changed.join() === 'src/money.js', 'src/money.js is the only file that changed, .git included');
  const source = readFileSync(path.join(work, 'src/money.js'), 'utf8');
  must(source.includes('Math.sign(value)'), 'the fix is in it');
  must(source.endsWith('// An edit that is not committed.\n'), 'so is the edit that is not committed');
  const fixed = ownTests(work);
  must(broken.failed > 0 && fixed.failed === 0, `its own tests: ${fixed.passed} pass, ${fixed.failed} fail`);

  if (keep) {
    note(`Kept as asked: ${work}`);
  } else if (await agrees('Take it back out?')) {
    step('Back out');
    const [promotion] = JSON.parse(await petri(['promotion', 'list', '--json'], { capture: true }));
    await petri(['promotion', 'undo', promotion.id]);
    must(same(fingerprint(work), before), 'every byte of the workspace is as it was, the edit included');
  } else {
    note('Left in. The copy goes all the same: it was only a copy.');
  }

  step('Cleaning up');
  const owner = readFileSync(path.join(home, 'id'), 'utf8').trim();
  await petri(['prune', '--all']);
  must((await objectsLeft(owner)) === 0, 'no container and no image of this demo is left in the engine');
  const { pid } = JSON.parse(await petri(['agent', 'status', '--json'], { capture: true }));
  await petri(['agent', 'stop']);
  agentMayLive = !(pid > 0) || livesAfter(pid, 10_000);
  must(!agentMayLive, 'the agent has ended');
}

/** Asks on a terminal; elsewhere the answer is yes, and that is said. */
async function agrees(question) {
  if (!process.stdin.isTTY || !process.stdout.isTTY) {
    note(`${question} Nobody is there to ask: yes.`);
    return true;
  }
  const asker = createInterface({ input: process.stdin, output: process.stdout });
  asker.on('SIGINT', () => process.kill(process.pid, 'SIGINT'));
  const answer = await asker.question(`\n   ${bold(question)} [Y/n] `);
  asker.close();
  return !/^n/i.test(answer.trim());
}

/** Whatever happened: sandboxes, agent, an engine that was started for the demo, the folder. */
async function cleanUp() {
  if (ended) return;
  ended = true;
  if (agentMayLive) {
    // A call finds the agent even when it is only just starting.
    const options = {
      cwd: root,
      env: { ...process.env, PETRI_HOME: home, DOCKER_HOST: engine.dockerHost },
      stdio: 'ignore',
      timeout: 60_000,
    };
    spawnSync(process.execPath, [path.join(root, 'dist/petri.js'), 'prune', '--all'], options);
    spawnSync(process.execPath, [path.join(root, 'dist/petri.js'), 'agent', 'stop'], options);
  }
  const rest = keep && held ? home : scratch;
  if (rest) rmSync(rest, { recursive: true, force: true });
  if (engine?.started) {
    console.log('   Stopping the engine that was started for the demo');
    await engine.stop();
  }
}

/** Lets the running command end by itself, so that what it made is known, and stops it by force after a while. */
async function endChild(signal) {
  const running = child;
  if (!running) return;
  const closed = new Promise((resolve) => running.on('close', resolve));
  // On a terminal Ctrl-C has reached it already; a second one would mean "at once".
  if (signal !== 'SIGINT' || !process.stdin.isTTY) running.kill(signal);
  const force = setTimeout(() => running.kill('SIGKILL'), 15_000);
  await closed;
  clearTimeout(force);
}

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  process.on(signal, async () => {
    if (stopping) return;
    stopping = true;
    await endChild(signal);
    engine ??= await enginePending?.catch(() => undefined);
    console.log('\nStopped; cleaning up');
    await cleanUp().catch((error) => console.error(error.message));
    process.exit(130);
  });
}

try {
  await demo();
  held = true;
  await cleanUp();
  if (keep) note(`Kept: ${path.join(scratch, 'invoice')}`);
  else must(!existsSync(scratch), 'the temporary folder is gone');
  console.log(`\n${bold('All of it held.')}`);
} catch (error) {
  if (!stopping) {
    console.error(`\n${error.message}`);
    process.exitCode = 1;
    await cleanUp();
  }
}
