// Lint rules, and the house's import directions: each folder may import only what stands in `may`.
import globals from 'globals';
import tseslint from 'typescript-eslint';

const folders = ['protocol', 'agent', 'client', 'extension', 'webview', 'mcp', 'cli'];

/** What each folder of src may import from the others. The compiler's project references say the same. */
const may = {
  protocol: [],
  agent: ['protocol'],
  client: ['protocol'],
  extension: ['protocol', 'client'],
  webview: ['protocol'],
  mcp: ['protocol', 'client'],
  cli: ['protocol', 'client'],
};

/** Inside the agent: from the bottom up. A folder may import itself and what stands before it. */
const agentLayers = ['records', 'tar', 'engine', 'workspace', 'environment', 'sandbox', 'experiment', 'promotion'];

/** Packages that only one folder may import. */
const owned = {
  vscode: 'src/extension',
  dockerode: 'src/agent/engine/docker',
  'simple-git': 'src/agent/workspace',
};

function restrictions(folder, forbiddenGroups) {
  return {
    files: [`${folder}/**/*.ts`],
    rules: {
      'no-restricted-imports': [
        'error',
        {
          paths: Object.entries(owned)
            .filter(([, owner]) => !folder.startsWith(owner))
            .map(([name, owner]) => ({ name, message: `Only ${owner} imports ${name}.` })),
          patterns:
            forbiddenGroups.length > 0 ? [{ group: forbiddenGroups, message: 'Against the import directions.' }] : [],
        },
      ],
    },
  };
}

const folderRules = folders.map((folder) =>
  restrictions(
    `src/${folder}`,
    folders
      .filter((f) => f !== folder && !may[folder].includes(f))
      .map((f) => `**/${f}/**`)
      .concat(folder === 'protocol' ? ['node:*'] : []),
  ),
);
const agentRules = agentLayers.map((layer, i) =>
  restrictions(
    `src/agent/${layer}`,
    [...agentLayers.slice(i + 1), ...folders.filter((f) => f !== 'agent' && f !== 'protocol')].map((f) => `**/${f}/**`),
  ),
);
const dockerRules = restrictions(
  'src/agent/engine/docker',
  [...agentLayers.slice(3), ...folders.filter((f) => f !== 'agent' && f !== 'protocol')].map((f) => `**/${f}/**`),
);

export default tseslint.config(
  { ignores: ['dist', 'out', 'node_modules', 'test/fixtures'] },
  ...tseslint.configs.recommended,
  {
    files: ['src/**/*.ts', 'test/**/*.ts', 'scripts/**/*.ts'],
    extends: [tseslint.configs.recommendedTypeCheckedOnly],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      '@typescript-eslint/no-explicit-any': 'error',
      '@typescript-eslint/no-non-null-assertion': 'error',
      '@typescript-eslint/consistent-type-imports': 'error',
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/require-await': 'off',
      '@typescript-eslint/unbound-method': 'off',
      '@typescript-eslint/no-unused-vars': ['error', { varsIgnorePattern: '^_', argsIgnorePattern: '^_' }],
    },
  },
  ...folderRules,
  ...agentRules,
  dockerRules,
  {
    files: ['**/*.js', '**/*.mjs'],
    languageOptions: { globals: globals.node },
    rules: { '@typescript-eslint/no-require-imports': 'off' },
  },
);
