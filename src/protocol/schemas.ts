/** The JSON schemas that the extension ships for its files, made from the schemas the agent validates with. */
import * as z from 'zod';
import { experimentFile, petriFile } from './files';

/** File name in `media/schemas` → text. Draft 7, the newest that VS Code's JSON language knows wholly. */
export function schemaFiles(): Record<string, string> {
  return {
    'petri.schema.json': schemaText(petriFile),
    'experiment.schema.json': schemaText(experimentFile),
  };
}

function schemaText(file: z.ZodType): string {
  const { $schema, ...schema } = z.toJSONSchema(file, {
    io: 'input',
    target: 'draft-7',
    // Where the value is read into something else (sizes, approaches), zod leaves these out, as they could be of the output.
    // Ours are of what people write.
    override: ({ zodSchema, jsonSchema }) => {
      const examples = z.globalRegistry.get(zodSchema)?.examples;
      if (Array.isArray(examples)) jsonSchema.examples = examples;
      const { def } = zodSchema._zod;
      if (def.type === 'default') jsonSchema.default = def.defaultValue;
    },
  });
  return `${JSON.stringify({ $schema, allowComments: true, allowTrailingCommas: true, ...schema }, null, 2)}\n`;
}
