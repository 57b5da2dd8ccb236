// SPDX-License-Identifier: Apache-2.0

// Builds the page into a folder, ../service/web/dist by default: one script, one style sheet, one document, and the
// licenses of what the script contains. The same sources and the same package-lock.json give the same bytes.
import { build } from 'esbuild';
import { copyFile, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';

const target = process.argv[2] ?? '../service/web/dist';
await rm(target, { recursive: true, force: true });
await mkdir(target, { recursive: true });
const result = await build({
  entryPoints: ['src/main.tsx', 'src/style.css'],
  outdir: target,
  bundle: true,
  minify: true,
  metafile: true,
  format: 'iife',
  target: 'es2022',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  legalComments: 'none',
  charset: 'utf8',
});
await copyFile('src/index.html', path.join(target, 'index.html'));
await copyFile('src/icon.svg', path.join(target, 'icon.svg'));

const names = new Set();
for (const file of Object.keys(result.metafile.inputs)) {
  const found = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(file);
  if (found) names.add(found[1]);
}
let licenses = 'The page contains these packages, each under its own license.\n';
for (const name of [...names].sort()) {
  const folder = path.join('node_modules', name);
  const about = JSON.parse(await readFile(path.join(folder, 'package.json'), 'utf8'));
  let text = `The text is not in the package. It says: ${about.license}.\n`;
  for (const file of ['LICENSE', 'LICENSE.md', 'LICENSE.txt']) {
    text = await readFile(path.join(folder, file), 'utf8').catch(() => text);
  }
  licenses += `\n== ${name} ${about.version}, ${about.license}\n\n${text.replaceAll('\r', '').trim()}\n`;
}
await writeFile(path.join(target, 'licenses.txt'), licenses);
