/** The shipped JSON schemas are those that the agent's own schemas give. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { schemaFiles } from '../../src/protocol/schemas';

const folder = path.join(__dirname, '../../../media/schemas');

interface Schema {
  title?: unknown;
  description?: unknown;
  const?: unknown;
  allowComments?: unknown;
  allowTrailingCommas?: unknown;
  properties?: Record<string, Schema>;
  anyOf?: Schema[];
  items?: Schema;
  additionalProperties?: Schema | boolean;
}

describe('shipped JSON schemas', () => {
  it('are the generated ones; if not, run `npm run schemas`', () => {
    const generated = schemaFiles();
    assert.deepEqual(readdirSync(folder).sort(), Object.keys(generated).sort());
    for (const [name, text] of Object.entries(generated)) {
      assert.equal(readFileSync(path.join(folder, name), 'utf8'), text, name);
    }
  });

  it('are contributed by the extension', () => {
    const manifest = JSON.parse(readFileSync(path.join(folder, '../../package.json'), 'utf8')) as {
      contributes: { jsonValidation: { fileMatch: string; url: string }[] };
    };
    assert.deepEqual(
      manifest.contributes.jsonValidation.map(({ url }) => path.basename(url)).sort(),
      Object.keys(schemaFiles()).sort(),
    );
  });

  for (const [name, text] of Object.entries(schemaFiles())) {
    const schema = JSON.parse(text) as Schema;

    it(`${name} allows comments and trailing commas and has a title`, () => {
      assert.equal(schema.allowTrailingCommas, true);
      assert.equal(schema.allowComments, true);
      assert.equal(typeof schema.title, 'string');
      assert.equal(typeof schema.description, 'string');
    });

    it(`${name} describes every field, for hovers`, () => {
      const missing: string[] = [];
      const visit = (node: Schema, at: string): void => {
        for (const [key, value] of Object.entries(node.properties ?? {})) {
          // The pieces of a condition say nothing themselves.
          if (typeof value.description !== 'string' && value.const === undefined) missing.push(`${at}/${key}`);
          visit(value, `${at}/${key}`);
        }
        if (node.items) visit(node.items, `${at}/[]`);
        if (typeof node.additionalProperties === 'object') visit(node.additionalProperties, `${at}/*`);
        for (const branch of node.anyOf ?? []) visit(branch, at);
      };
      visit(schema, '');
      assert.deepEqual(missing, []);
    });
  }
});
