// Evaluates code that arrives on standard input, one JSON document a line, and reports the end of each on a descriptor.
//
// Node's own REPL evaluates: declarations persist, and `await` works at the top level. An interrupt ends code that waits. Its
// option breakEvalOnSigint would also end a loop, but the signal handler is lost after the first script: the next
// interrupt would end the process. A loop is ended by the server, with the kernel.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const readline = require('node:readline');
const repl = require('node:repl');
const util = require('node:util');
const { PassThrough } = require('node:stream');
const { createRequire } = require('node:module');

const reports = Number(process.argv[2]);
let display = [];
let interrupt = () => {};

process.on('SIGINT', () => interrupt());
const evaluator = repl.start({
  prompt: '', input: new PassThrough(), output: new PassThrough(), terminal: false, useGlobal: true,
});
// The REPL sends what a script throws to its domain, and prints it to its output, which nobody reads.
evaluator._domain.on('error', (error) => interrupt(error));
evaluator.output.resume();
process.on('uncaughtException', (error) => interrupt(error));
process.on('unhandledRejection', (error) => interrupt(error));

// `display({'text/html': '<b>x</b>'})` shows a value in the form that its MIME type names.
globalThis.display = (data) => {
  if (data === null || typeof data !== 'object') throw new TypeError('display needs an object: MIME type to content');
  display.push(data);
};
globalThis.require = createRequire(path.join(process.cwd(), 'cell.js'));

const evaluate = (code) => new Promise((resolve, reject) => {
  interrupt = (error) => reject(error ?? Object.assign(new Error('the execution was interrupted'), { name: 'Interrupted' }));
  evaluator.eval(`${code}\n`, evaluator.context, 'cell', (error, value) => (error ? reject(error) : resolve(value)));
});

const failure = (thrown) => {
  const error = thrown?.name === 'Recoverable' || thrown?.err ? thrown.err : thrown;
  if (!(error instanceof Error) && typeof error?.stack !== 'string') return ['Error', util.inspect(error), [util.inspect(error)]];
  const name = error.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED' ? 'Interrupted' : String(error.name);
  return [name, String(error.message), String(error.stack).split('\n').filter((line) => !line.includes(__filename))];
};

const run = async ({ code, env }) => {
  const before = Object.fromEntries(Object.keys(env).map((name) => [name, process.env[name]]));
  Object.assign(process.env, env);
  display = [];
  let report = {};
  try {
    const value = await evaluate(code);
    if (value !== undefined) report.data = value?.[Symbol.for('Jupyter.display')]?.() ?? { 'text/plain': util.inspect(value) };
  } catch (error) {
    report.error = failure(error);
  }
  interrupt = () => {};
  for (const [name, value] of Object.entries(before)) value === undefined ? delete process.env[name] : (process.env[name] = value);
  if (display.length > 0) report.display = display;
  let line;
  try {
    line = JSON.stringify(report);
  } catch (error) {
    line = JSON.stringify({ error: failure(error) });
  }
  // Standard output is a pipe, which Node writes synchronously: all of it is there before the report.
  let rest = Buffer.from(`${line}\n`);
  while (rest.length > 0) rest = rest.subarray(fs.writeSync(reports, rest));
};

let last = Promise.resolve();
readline.createInterface({ input: process.stdin, terminal: false }).on('line', (line) => {
  last = last.then(() => run(JSON.parse(line)));
}).on('close', () => process.exit(0));
