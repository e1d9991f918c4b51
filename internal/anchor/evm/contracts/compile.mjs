// Compiles the contracts with solc from npm: node compile.mjs [--check]. It prints nothing where all is well.
// Needs: npm install --no-save solc@0.8.37
import { createRequire } from 'node:module';
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const require = createRequire(process.env.SOLC_FROM ? join(process.env.SOLC_FROM, 'x.js') : import.meta.url);
const solc = require('solc');
const here = dirname(fileURLToPath(import.meta.url));
const tests = join(here, '..', 'evmtest');
const folders = { Head: here, Super: here, Mapping: here, Portal: tests };
const names = Object.keys(folders);
const input = {
  language: 'Solidity',
  sources: Object.fromEntries(names.map((n) => [`${n}.sol`, { content: readFileSync(join(folders[n], `${n}.sol`), 'utf8') }])),
  settings: {
    optimizer: { enabled: true, runs: 1000000 },
    evmVersion: 'cancun',
    metadata: { bytecodeHash: 'none', appendCBOR: false },
    outputSelection: { '*': { '*': ['abi', 'evm.bytecode.object'] } },
  },
};
const out = JSON.parse(solc.compile(JSON.stringify(input)));
for (const e of out.errors ?? []) console.error(e.formattedMessage);
if ((out.errors ?? []).some((e) => e.severity === 'error')) process.exit(1);
let differ = false;
for (const n of names) {
  const c = out.contracts[`${n}.sol`][n];
  const text = JSON.stringify({ compiler: solc.version(), abi: c.abi, bytecode: '0x' + c.evm.bytecode.object }, null, 1) + '\n';
  const file = join(folders[n], `${n}.json`);
  if (!process.argv.includes('--check')) {
    writeFileSync(file, text);
  } else if (readFileSync(file, 'utf8') !== text) {
    console.error(`${n}.json isn't what ${n}.sol compiles to`);
    differ = true;
  }
}
process.exit(differ ? 1 : 0);
