/** Reading petri.json and experiment files: what is right is read, what is wrong is said with its place. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { maxFileBytes, readExperimentFile, readPetriFile } from '../../src/agent/experiment/files';
import { checkDocument } from '../../src/agent/experiment/files-check';
import { PetriError } from '../../src/protocol/errors';
import { experimentFile, petriFile, type ExperimentFile } from '../../src/protocol/files';

const project = path.join(__dirname, '../../..');

describe('files that people write', () => {
  let dir: string;
  let file: string;
  beforeEach(() => {
    dir = mkdtempSync(path.join(tmpdir(), 'petri-files-'));
    file = path.join(dir, 'fix.experiment.json');
  });
  afterEach(() => rmSync(dir, { recursive: true, force: true }));

  const read = (text: string | Buffer): Promise<ExperimentFile> => {
    writeFileSync(file, text);
    return readExperimentFile(file);
  };
  const failure = async (promise: Promise<unknown>): Promise<PetriError> => {
    const error: unknown = await promise.then(
      () => assert.fail('was read'),
      (e: unknown) => e,
    );
    assert.ok(error instanceof PetriError, String(error));
    return error;
  };

  it('reads comments, trailing commas, a byte order mark and CRLF', async () => {
    const got = await read(
      '\ufeff// why\r\n{ "task": "t", /* x */ "approaches": [{ "name": "a", "run": ["x", "y"], },],\r\n}\r\n',
    );
    assert.deepEqual(got, {
      task: 't',
      base: 'workspace',
      approaches: [{ name: 'a', run: ['x', 'y'] }],
      artifacts: [],
    });
  });

  it('reads the file of the issue', async () => {
    const got = await read(`{ "task": "rounding is wrong for halves", "base": "workspace",          // or a commit
      "concurrency": 3, "limits": { "memory": "512m", "timeout": "5m" },
      "approaches": [ { "name": "patch", "patch": "a.patch" }, { "name": "sed", "run": "sed -i s/floor/round/ src/a.js" } ],
      "checks": [ { "name": "tests", "run": "npm test", "report": { "format": "junit", "path": "junit.xml" } },
                  { "name": "size", "run": "node size.js", "metrics": { "bytes": { "pattern": "bytes=(\\\\d+)", "better": "lower" } } } ],
      "artifacts": ["coverage/**"] }`);
    assert.deepEqual(got.limits, { memory: 512 * 1024 ** 2, timeout: 300_000 });
    assert.deepEqual(got.checks?.[1]?.metrics, { bytes: { pattern: 'bytes=(\\d+)', better: 'lower' } });
    assert.equal(got.checks?.[0]?.exitCode, 0);
  });

  it('gives defaults where there is no petri.json', async () => {
    const defaults = { environment: { include: [], history: 1 }, network: 'none', checks: [] };
    assert.deepEqual(await readPetriFile(dir), defaults);
    writeFileSync(path.join(dir, 'petri.json'), '{}');
    assert.deepEqual(await readPetriFile(dir), defaults);
  });

  it('says the place, the path, the expected form and what was found', async () => {
    const text =
      '{\n  "task": "t",\n  "approaches": [\n    { "name": "a", "run": "x" },\n    {\n      "name": "b",\n      "run":   5\n    }\n  ]\n}';
    const error = await failure(read(text));
    assert.equal(error.code, 'invalid-file');
    assert.equal(
      error.message,
      'fix.experiment.json:7:16: approaches[1].run: expected a string or a list of strings, found a number',
    );
    const { issues, ...data } = error.data;
    assert.deepEqual(data, {
      file,
      line: 7,
      column: 16,
      path: 'approaches[1].run',
      expected: 'a string or a list of strings',
    });
    assert.equal((issues as unknown[]).length, 1);
    assert.equal(error.exitCode, 2);
  });

  it('gives every issue, in the order of the file', async () => {
    const error = await failure(
      read('{ "concurrency": 0,\n "limits": { "memory": "x" },\n "task": "", "approaches": [] }'),
    );
    assert.match(
      error.message,
      /^fix\.experiment\.json:1:18: concurrency: expected a number of at least 1, found 0 \(and 3 more\)$/,
    );
    assert.deepEqual(
      (error.data['issues'] as { line: number; path: string }[]).map(({ line, path: at }) => [line, at]),
      [
        [1, 'concurrency'],
        [2, 'limits.memory'],
        [3, 'task'],
        [3, 'approaches'],
      ],
    );
  });

  const one = (approach: string): string => `{"task":"t","approaches":[{"name":"a","run":"x"},\n${approach}]}`;
  const also = (field: string): string => `{"task":"t","approaches":[{"name":"a","run":"x"}],\n${field}}`;
  const check = (fields: string): string => also(`"checks":[{"name":"t","run":"x",\n${fields}}]`);
  const metric = (fields: string): string => check(`"metrics":{"m":{${fields}}}`);
  const wrong: [title: string, text: string, message: string][] = [
    [
      'an approach with both',
      one('{"name":"b","run":"x","patch":"p"}'),
      '2:1: approaches[1]: expected either `run` or `patch`, found both',
    ],
    [
      'an approach with neither',
      one('{"name":"b"}'),
      '2:1: approaches[1]: expected either `run` or `patch`, found neither',
    ],
    ['a slip in a key', one('{"name":"b","rnu":"x"}'), '2:13: approaches[1]: unknown key "rnu"; did you mean "run"?'],
    ['another case of a key', also('"Artifacts":[]'), '2:1: unknown key "Artifacts"; did you mean "artifacts"?'],
    ['a missing key', one('{"run":"x"}'), '2:1: approaches[1].name: expected a string, found nothing'],
    ['a missing top key', '{"approaches":[{"name":"a","run":"x"}]}', '1:1: task: expected a string, found nothing'],
    [
      'a number in a list of commands',
      one('{"name":"b","run":["x",5]}'),
      '2:24: approaches[1].run[1]: expected a string, found a number',
    ],
    [
      'an empty list of commands',
      one('{"name":"b","run":[]}'),
      '2:19: approaches[1].run: expected at least one entry, found an empty list',
    ],
    [
      'a name that is used twice',
      one('{"name":"a","run":"x"}'),
      '2:9: approaches[1].name: "a" is used twice; expected a name of its own',
    ],
    [
      'a key that is given twice',
      one('{"name":"b","run":"x","run":"y"}'),
      '2:23: approaches[1].run: expected each key once, found it a second time',
    ],
    [
      'a name with odd characters',
      one('{"name":"../b","run":"x"}'),
      '2:9: approaches[1].name: expected 1–63 letters, digits, dots, dashes, underscores or spaces, beginning with a letter or digit, found "../b"',
    ],
    [
      'an unknown base',
      also('"base":"workspce"'),
      '2:8: base: expected "workspace", { "commit": … } or { "snapshot": … }, found "workspce"',
    ],
    [
      'a base of another kind',
      also('"base":5'),
      '2:8: base: expected "workspace", { "commit": … } or { "snapshot": … }, found a number',
    ],
    ['a slip in the base', also('"base":{"comit":"x"}'), '2:9: base: unknown key "comit"; did you mean "commit"?'],
    [
      'a base with both',
      also('"base":{"commit":"x","snapshot":"y"}'),
      '2:8: base: expected either `commit` or `snapshot`, found both',
    ],
    [
      'a size that is none',
      also('"limits":{"memory":"12q"}'),
      '2:20: limits.memory: expected a size such as "512m" or "2g", found "12q"',
    ],
    [
      'a size of nothing',
      also('"limits":{"memory":"0m"}'),
      '2:20: limits.memory: expected a size such as "512m" or "2g", found "0m"',
    ],
    [
      'a duration of another kind',
      also('"limits":{"timeout":true}'),
      '2:21: limits.timeout: expected a duration such as "30s", "5m" or "1h", found true',
    ],
    ['half a process', also('"limits":{"pids":1.5}'), '2:18: limits.pids: expected a whole number, found 1.5'],
    ['an unknown network', also('"network":"closed"'), '2:11: network: expected "none" or "open", found "closed"'],
    [
      'an artifact outside',
      also('"artifacts":["a/../../x"]'),
      '2:14: artifacts[0]: expected a relative path that stays inside the workspace, found "a/../../x"',
    ],
    [
      'an absolute artifact',
      also('"artifacts":["/etc"]'),
      '2:14: artifacts[0]: expected a relative path that stays inside the workspace, found "/etc"',
    ],
    [
      'a glob of another shell',
      also('"artifacts":["a/@(b|c)"]'),
      '2:14: artifacts[0]: expected a glob of *, **, ?, [a-z] and {a,b}, found "a/@(b|c)"',
    ],
    [
      'JUnit without a path',
      check('"report":{"format":"junit"}'),
      '3:10: checks[0].report.path: expected the path of the JUnit file, found nothing',
    ],
    [
      'a pattern that does not parse',
      metric('"pattern":"(","better":"lower"'),
      '3:27: checks[0].metrics.m.pattern: expected a regular expression, found one that does not parse (unterminated group)',
    ],
    [
      'a metric from two places',
      metric('"pattern":"x","file":"y","pointer":"","better":"lower"'),
      '3:16: checks[0].metrics.m: expected either `pattern` or `file`, found both (and 1 more)',
    ],
    [
      'a metric file without a pointer',
      metric('"file":"y","better":"lower"'),
      '3:16: checks[0].metrics.m.pointer: expected a JSON pointer beside `file`, found nothing',
    ],
    [
      'a pointer that is none',
      metric('"file":"y","pointer":"a/b","better":"lower"'),
      '3:38: checks[0].metrics.m.pointer: expected a JSON pointer such as "/total/bytes", found "a/b"',
    ],
    [
      'a metric’s name',
      check('"metrics":{"a/b":{"pattern":"x","better":"lower"}}'),
      '3:12: checks[0].metrics: expected 1–63 letters, digits, dots, dashes, underscores or spaces, beginning with a letter or digit, found "a/b"',
    ],
    [
      'a prototype',
      also('"__proto__":{"image":"x"}'),
      '2:1: unknown key "__proto__"; expected one of `$schema`, `task`, `base`, `image`, `concurrency`, `limits`, `network`, `approaches`, `checks`, `artifacts`',
    ],
    ['a list', '[]', '1:1: expected an object, found an empty list'],
    ['nothing', ' \n', '1:1: expected an object, found an empty file'],
    ['a missing comma', '{"task":"t"\n "x":1}', '2:2: expected a comma, found "x"'],
    ['an unclosed brace', '{"task":"t"', '1:12: expected a closing brace }, found the end of the file'],
    ['an unclosed string', '{"task":"t\n}', '1:9: expected a closing double quote, found "t'],
    [
      'single quotes',
      "{'task':1}",
      "1:2: expected a value: a string in double quotes, a number, true, false, null, an object or a list, found 'task'",
    ],
    [
      'text behind the end',
      '{} x',
      '1:4: expected a value: a string in double quotes, a number, true, false, null, an object or a list, found x',
    ],
    ['endless nesting', '['.repeat(200_000), '1:1: expected an object, found lists or objects nested too deeply'],
    [
      'escape codes',
      '{"task":"\u001b[2J"}',
      '1:9: expected no control characters; write \\n or \\t inside a string, found "\\x1b[2J"',
    ],
  ];
  for (const [title, text, message] of wrong) {
    it(`refuses ${title}`, () => {
      assert.throws(
        () => checkDocument(file, text, experimentFile),
        (error) => {
          assert.ok(error instanceof PetriError);
          assert.equal(error.message, `fix.experiment.json:${message}`);
          assert.equal(error.code, 'invalid-file');
          return true;
        },
      );
    });
  }

  it('reports two metrics of one name in different checks', () => {
    const m = '"metrics":{"m":{"pattern":"x","better":"lower"}}';
    assert.throws(
      () =>
        checkDocument(file, also(`"checks":[{"name":"a","run":"x",${m}},{"name":"b","run":"x",${m}}]`), experimentFile),
      /checks\[1\]\.metrics\.m: the metric "m" is declared twice; expected a name of its own$/,
    );
  });

  it('names the file that is missing', async () => {
    const error = await failure(readExperimentFile(path.join(dir, 'nope.json')));
    assert.equal(error.code, 'not-found');
    assert.match(error.message, /nope\.json/);
  });

  it('refuses a folder, a named pipe, a file that is too large and one that is not UTF-8', async () => {
    mkdirSync(path.join(dir, 'petri.json'));
    assert.match((await failure(readPetriFile(dir))).message, /^petri\.json: expected a file, found a folder$/);
    rmSync(path.join(dir, 'petri.json'), { recursive: true });
    if (process.platform !== 'win32') {
      execFileSync('mkfifo', [path.join(dir, 'petri.json')]);
      assert.match((await failure(readPetriFile(dir))).message, /^petri\.json: expected a file, found something else$/);
    }
    const large = await failure(read(Buffer.alloc(maxFileBytes + 1, 0x20)));
    assert.match(large.message, /expected at most 1\.0 MB, found 1\.0 MB/);
    assert.match((await failure(read(Buffer.from([0x7b, 0xff, 0x7d])))).message, /expected UTF-8 text/);
    assert.equal(
      (await failure(read(Buffer.concat([Buffer.from('{}'), Buffer.alloc(maxFileBytes - 2, 0x20)])))).data['line'],
      1,
    );
  });

  describe('the documentation', () => {
    for (const [page, kind, schema] of [
      ['experiment-file.md', 'experiment', experimentFile],
      ['petri-json.md', 'petri', petriFile],
    ] as const) {
      const text = readFileSync(path.join(project, 'docs', page), 'utf8');

      it(`${page} has examples that are right`, () => {
        const blocks = [...text.matchAll(/^```jsonc (\w+)\n([^]*?)^```$/gm)];
        assert.ok(blocks.length >= 2);
        for (const [, name, code = ''] of blocks) {
          assert.equal(name, kind);
          checkDocument(page, code, schema);
        }
        assert.doesNotMatch(text, /^```(?:json|jsonc)\n/m, 'an example without a kind is not checked');
      });

      it(`${page} says every field, and its whole example uses them`, () => {
        const whole = [...text.matchAll(/^```jsonc \w+\n([^]*?)^```$/gm)].at(-1)?.[1] ?? '';
        for (const field of Object.keys(schema.shape)) {
          assert.match(text, new RegExp(`^\\| \`${field.replace('$', '\\$')}\` +\\|`, 'm'), field);
          assert.ok(whole.includes(`"${field}"`), field);
        }
      });
    }

    it('shows errors as they are', () => {
      const petri = readFileSync(path.join(project, 'docs/petri-json.md'), 'utf8');
      assert.throws(
        () => checkDocument('petri.json', '{\n\n  "limits": {"memory":"12q"}}', petriFile),
        (error) => {
          assert.ok(error instanceof PetriError);
          assert.ok(petri.includes(error.message.replace(/^\S+ /, '')), error.message);
          return true;
        },
      );
    });
  });
});
