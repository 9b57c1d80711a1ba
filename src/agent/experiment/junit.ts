/** JUnit XML, as node's test runner, mocha, jest-junit, pytest, Maven, Gradle and others write it. Untrusted. */
import { XMLParser } from 'fast-xml-parser';
import type { TestReport } from '../../protocol/records';
import { junitSkeleton } from './junit-skeleton';
import { CaseCollector, checkSize, unreadable } from './reports';

/** What the parser gives with `preserveOrder`: one key is the element's name, `:@` its attributes. */
type Node = Record<string, unknown>;

const parser = new XMLParser({
  preserveOrder: true,
  ignoreAttributes: false,
  attributeNamePrefix: '',
  parseTagValue: false,
  parseAttributeValue: false,
  trimValues: false,
  // Entities are read here, in one pass and without any that a document declares.
  processEntities: false,
  maxNestedTags: 70,
  ignoreDeclaration: true,
  ignorePiTags: true,
});

/**
 * Reads a JUnit report. Every `testcase` counts once: `skipped` beats `failure` and `error` (a to-do that fails is no
 * failure). An `error` or `failure` right in a suite is a failed case of its own. Errors: untrusted-data.
 */
export function parseJUnit(xml: Buffer): TestReport {
  checkSize('JUnit', xml.length);
  const skeleton = junitSkeleton(decode(xml));
  let roots: Node[];
  try {
    roots = parser.parse(skeleton) as Node[];
  } catch (error) {
    throw unreadable('JUnit', `its XML is wrong (${error instanceof Error ? error.message.slice(0, 200) : 'unknown'})`);
  }
  const cases = new CaseCollector();
  for (const root of roots) readSuite(root, [], cases);
  return cases.report();
}

function readSuite(suite: Node, path: string[], cases: CaseCollector): void {
  for (const child of childrenOf(suite)) {
    const element = elementOf(child);
    if (element === 'testsuite') readSuite(child, [...path, attribute(child, 'name')], cases);
    else if (element === 'testcase') readCase(child, path, cases);
    else if (element === 'failure' || element === 'error') {
      const own = attribute(suite, 'name');
      const inside = path.at(-1) === own ? path : [...path, own];
      cases.add({ name: join([...inside, `(${element} of the suite)`]), outcome: 'failed', message: failureOf(child) });
    }
  }
}

function readCase(node: Node, path: string[], cases: CaseCollector): void {
  const children = childrenOf(node);
  const skipped = children.find((child) => elementOf(child) === 'skipped');
  const failures = children.filter((child) => ['failure', 'error'].includes(elementOf(child)));
  const seconds = Number(attribute(node, 'time').replaceAll(',', '') || NaN);
  cases.add({
    name: caseName(attribute(node, 'classname'), attribute(node, 'name'), path),
    outcome: skipped ? 'skipped' : failures.length > 0 ? 'failed' : 'passed',
    message: skipped ? failureOf(skipped) : failures.map(failureOf).join('\n'),
    durationMs: Number.isFinite(seconds) ? Math.round(seconds * 1e6) / 1e3 : null,
  });
}

/** Class and name. Without a class (node writes "test" for every one) the suites around it say where it belongs. */
function caseName(rawClass: string, rawName: string, path: string[]): string {
  const className = rawClass.trim();
  const name = rawName.trim();
  if (className === '' || className === 'test') return join([...path, name]);
  // jest-junit repeats the whole title in both.
  return name.startsWith(className) ? name : join([className, name]);
}

function join(parts: string[]): string {
  return parts.filter((part) => part.trim() !== '').join(' › ');
}

/** The message and the text, each once. */
function failureOf(node: Node): string {
  const message = attribute(node, 'message');
  const text = childrenOf(node)
    .map((child) => (typeof child['#text'] === 'string' ? decodeEntities(child['#text']) : ''))
    .join('');
  if (message.trim() === '' || text.includes(message.trim())) return text;
  return text.trim() === '' ? message : `${message}\n${text}`;
}

function elementOf(node: Node): string {
  return Object.keys(node).find((key) => key !== ':@') ?? '';
}

function childrenOf(node: Node): Node[] {
  const children = node[elementOf(node)];
  return Array.isArray(children) ? (children as Node[]) : [];
}

function attribute(node: Node, name: string): string {
  const attributes = node[':@'];
  if (typeof attributes !== 'object' || attributes === null || !Object.hasOwn(attributes, name)) return '';
  const value = (attributes as Node)[name];
  return typeof value === 'string' ? decodeEntities(value) : '';
}

const named: Record<string, string> = { lt: '<', gt: '>', amp: '&', quot: '"', apos: "'" };

/** The five named entities of XML and numbered characters; anything else stays as it is. */
function decodeEntities(text: string): string {
  return text.replace(
    /&(?:#(\d{1,7})|#x([0-9a-f]{1,6})|(lt|gt|amp|quot|apos));/gi,
    (whole, dec?: string, hex?: string, name?: string) => {
      if (name !== undefined) return named[name.toLowerCase()] ?? whole;
      const code = dec === undefined ? parseInt(hex ?? '', 16) : parseInt(dec, 10);
      return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : '\ufffd';
    },
  );
}

/** By byte order mark, else by the declaration, else UTF-8. Bytes that don't fit become U+FFFD. */
function decode(xml: Buffer): string {
  const declared = /^(?:\xef\xbb\xbf)?<\?xml[^>]{0,200}?encoding=["']([\w.-]{1,40})["']/.exec(
    xml.toString('latin1', 0, 300),
  )?.[1];
  const bom =
    xml[0] === 0xff && xml[1] === 0xfe ? 'utf-16le' : xml[0] === 0xfe && xml[1] === 0xff ? 'utf-16be' : undefined;
  const label =
    bom ??
    (declared && /^(?:iso-8859-\d+|windows-125\d|us-ascii|shift_jis|euc-jp|gbk|gb18030|big5)$/i.test(declared)
      ? declared
      : 'utf-8');
  try {
    return new TextDecoder(label).decode(xml);
  } catch {
    return xml.toString('utf8');
  }
}
