// Bundles the processes of the product (extension, agent, command) and, with --tests, the tests.
const esbuild = require('esbuild');
const { readdirSync, readFileSync, chmodSync, rmSync } = require('node:fs');
const path = require('node:path');

const watch = process.argv.includes('--watch');
const tests = process.argv.includes('--tests');
const production = process.argv.includes('--production');
const { version } = JSON.parse(readFileSync(path.join(__dirname, 'package.json'), 'utf8'));

/** What dockerode loads and Petri never uses; see scripts/absent.js. It would be a third of the agent's memory. */
const absent = Object.fromEntries(
  ['ssh2', '@grpc/grpc-js', '@grpc/proto-loader'].map((name) => [name, path.join(__dirname, 'scripts/absent.js')]),
);

const common = {
  bundle: true,
  platform: 'node',
  target: 'node20',
  format: 'cjs',
  sourcemap: production ? false : 'linked',
  minify: production,
  logLevel: 'warning',
  absWorkingDir: __dirname,
  define: { PETRI_VERSION: JSON.stringify(version) },
  mainFields: ['module', 'main'],
};

function testFiles(dir) {
  return readdirSync(dir, { withFileTypes: true, recursive: true })
    .filter((e) => e.isFile() && e.name.endsWith('.test.ts'))
    .map((e) => path.join(e.parentPath, e.name));
}

async function main() {
  const builds = [
    { ...common, entryPoints: { extension: 'src/extension/extension.ts' }, outdir: 'dist', external: ['vscode'] },
    {
      ...common,
      entryPoints: { agent: 'src/agent/main.ts', 'petri-client': 'src/client/client.ts' },
      outdir: 'dist',
      alias: absent,
    },
    {
      ...common,
      entryPoints: { petri: 'src/cli/petri.ts', 'petri-cli': 'src/cli/main.ts' },
      outdir: 'dist',
      external: ['./petri-cli.js'],
    },
    {
      ...common,
      entryPoints: { 'tools/schemas': 'scripts/schemas.ts', 'tools/capture': 'src/agent/workspace/gitStore.ts' },
      outdir: 'dist',
    },
  ];
  if (tests) {
    rmSync(path.join(__dirname, 'out/test'), { recursive: true, force: true });
    builds.push({
      ...common,
      entryPoints: testFiles('test'),
      outdir: 'out/test',
      outbase: 'test',
      packages: 'external',
    });
  }
  if (watch) {
    for (const options of builds) await (await esbuild.context(options)).watch();
    return;
  }
  await Promise.all(builds.map((options) => esbuild.build(options)));
  chmodSync(path.join(__dirname, 'dist/petri.js'), 0o755);
}

main().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
