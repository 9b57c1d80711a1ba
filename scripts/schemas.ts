/** Writes `media/schemas/*.json`. Run by `npm run schemas`, from the top of the project. */
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { schemaFiles } from '../src/protocol/schemas';

const folder = path.resolve('media/schemas');
mkdirSync(folder, { recursive: true });
for (const [name, text] of Object.entries(schemaFiles())) {
  writeFileSync(path.join(folder, name), text);
  console.log(path.join('media/schemas', name));
}
