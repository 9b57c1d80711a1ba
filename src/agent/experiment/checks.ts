/** Running checks in a sandbox: a command each, its report, its metrics. What comes out is untrusted and bounded. */
import path from 'node:path';
import { PetriError, messageOf } from '../../protocol/errors';
import type { CheckInput } from '../../protocol/files';
import type { CheckResult, SandboxRecord, TestReport } from '../../protocol/records';
import type { Engine } from '../engine/engine';
import type { Sandboxes } from '../sandbox/sandboxes';
import { readSandboxFile } from '../sandbox/transfer';
import { readMetric } from './metrics';

const maxReportBytes = 16 * 1024 * 1024;
const maxMetricFileBytes = 4 * 1024 * 1024;
/** How much of the end of a check's output patterns and TAP are read from. */
const keptOutputBytes = 4 * 1024 * 1024;

export interface CheckContext {
  engine: Engine;
  sandboxes: Sandboxes;
  sandbox: SandboxRecord;
  /** Folder for the logs. */
  logs: string;
  signal: AbortSignal;
  /** Wall time that is left for all checks together, ms; undefined when it is not bounded. */
  timeLeft(): number | undefined;
  step?(words: string): void;
}

/** Runs all checks one after the other. One that fails is a result; after a breach of the whole sandbox's time the rest fail unrun. */
export async function runChecks(checks: CheckInput[], context: CheckContext): Promise<CheckResult[]> {
  const results: CheckResult[] = [];
  for (const check of checks) {
    context.step?.(`check ${check.name}`);
    results.push(await runCheck(check, context));
  }
  return results;
}

async function runCheck(check: CheckInput, context: CheckContext): Promise<CheckResult> {
  const { sandboxes, sandbox, engine } = context;
  const log = path.join(context.logs, `check-${check.name.replace(/[^A-Za-z0-9._-]/g, '_')}.log`);
  const result: CheckResult = {
    name: check.name,
    passed: false,
    exitCode: null,
    durationMs: 0,
    tests: null,
    metrics: {},
    breach: null,
    problems: [],
    log,
    logCut: false,
  };
  const output = new Tail(keptOutputBytes);
  const began = Date.now();
  for (const command of [check.run].flat()) {
    const left = smallest(
      context.timeLeft(),
      check.timeout === undefined ? undefined : check.timeout - (Date.now() - began),
    );
    if (left !== undefined && left <= 0) {
      result.breach = 'timeout';
      break;
    }
    const exec = await sandboxes.exec(sandbox.id, {
      command: ['/bin/sh', '-c', command],
      logFile: log,
      signal: context.signal,
      output: (_, data) => output.add(data),
      ...(left === undefined ? {} : { timeoutMs: left }),
    });
    result.exitCode = exec.exitCode;
    result.breach = exec.breach;
    result.logCut ||= exec.logCut;
    if (exec.breach !== null || exec.exitCode !== check.exitCode) break;
  }
  result.durationMs = Date.now() - began;
  const box = sandbox.containerId ?? '';
  if (check.report) result.tests = await readReport(check.report, output, engine, box, result.problems);
  for (const [name, source] of Object.entries(check.metrics ?? {})) {
    const read = await readMetric(source, output.text(), (file) =>
      readSandboxFile(engine, box, file, maxMetricFileBytes),
    );
    if (read.value === null) result.problems.push(`metric ${name}: ${read.problem}`);
    else result.metrics[name] = read.value;
  }
  result.passed =
    result.exitCode === check.exitCode &&
    result.breach === null &&
    (result.tests === null || result.tests.failed === 0);
  if (check.report && result.tests === null && check.exitCode === 0) result.passed = false;
  return result;
}

async function readReport(
  report: NonNullable<CheckInput['report']>,
  output: Tail,
  engine: Engine,
  box: string,
  problems: string[],
): Promise<TestReport | null> {
  try {
    const data =
      report.path === undefined ? output.bytes() : await readSandboxFile(engine, box, report.path, maxReportBytes);
    // The parsers are loaded when a report is there to be read: most of the agent's life they are not needed.
    if (report.format === 'junit') return (await import('./junit')).parseJUnit(data);
    return (await import('./tap')).parseTap(data.toString('utf8'));
  } catch (error) {
    if (!(error instanceof PetriError)) throw error;
    if (error.code === 'engine-gone') throw error;
    problems.push(`report: ${messageOf(error)}`);
    return null;
  }
}

function smallest(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined ? b : b === undefined ? a : Math.min(a, b);
}

/** The last bytes of a stream. */
class Tail {
  private parts: Buffer[] = [];
  private size = 0;

  constructor(private readonly max: number) {}

  add(data: Buffer): void {
    this.parts.push(data);
    this.size += data.length;
    while (this.size - (this.parts[0]?.length ?? 0) > this.max) this.size -= this.parts.shift()?.length ?? 0;
  }

  bytes(): Buffer {
    return Buffer.concat(this.parts).subarray(-this.max);
  }

  text(): string {
    return this.bytes().toString('utf8');
  }
}
