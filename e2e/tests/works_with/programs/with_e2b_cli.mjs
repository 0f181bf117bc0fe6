// The command line client of E2B: sandboxes, commands in them, metrics, logs, snapshots, and templates.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'

const packageFile = createRequire(import.meta.url).resolve('@e2b/cli/package.json')
const program = join(dirname(packageFile), 'dist/index.js')

function e2b(...args) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [program, ...args], { encoding: 'utf8', timeout: 120_000 })
  return { status, stdout, stderr, shown: `e2b ${args.join(' ')}: ${status}\n${stdout}\n${stderr}` }
}

function passes(...args) {
  const result = e2b(...args)
  assert.equal(result.status, 0, result.shown)
  return result.stdout
}

function created(output) {
  const id = /\bsb[0-9a-z]{20}\b/.exec(output)?.[0]
  assert.ok(id, output)
  return id
}

const template = `works-with-${process.pid}`
const context = mkdtempSync(join(tmpdir(), 'e2b-cli-'))
writeFileSync(join(context, 'Dockerfile'), 'FROM e2bdev/base\nCOPY greeting /greeting\nRUN chmod 644 /greeting\n')
writeFileSync(join(context, 'greeting'), 'from the context\n')

const id = created(passes('sandbox', 'create', '--detach', '--timeout', '120'))
try {
  assert.match(passes('sandbox', 'list'), new RegExp(id))
  assert.match(passes('sandbox', 'info', id), new RegExp(id))
  assert.equal(passes('sandbox', 'exec', id, 'echo', 'hello there'), 'hello there\n')
  assert.equal(passes('sandbox', 'exec', '-u', 'root', '-e', 'A=1', '-c', '/tmp', id, 'sh -c \'id -u; echo $A; pwd\''), '0\n1\n/tmp\n')
  const failed = e2b('sandbox', 'exec', id, 'exit 4')
  assert.equal(failed.status, 4, failed.shown)
  passes('sandbox', 'pause', id)
  passes('sandbox', 'resume', id)
  passes('sandbox', 'metrics', id)
  assert.match(passes('sandbox', 'logs', id), /sandbox\.(created|started)/)

  const snapshot = /snap_[0-9a-z]+/.exec(passes('sandbox', 'snapshot', 'create', id))?.[0]
  assert.ok(snapshot)
  assert.match(passes('sandbox', 'snapshot', 'list', id), new RegExp(snapshot))
  passes('sandbox', 'snapshot', 'delete', snapshot)

  passes('template', 'create', template, '--path', context)
  assert.match(passes('template', 'list'), new RegExp(template))
  const second = created(passes('sandbox', 'create', '--detach', template))
  assert.equal(passes('sandbox', 'exec', second, 'cat', '/greeting'), 'from the context\n')
  passes('sandbox', 'kill', second)
  passes('template', 'delete', '--yes', template)
} finally {
  passes('sandbox', 'kill', id)
}
assert.doesNotMatch(passes('sandbox', 'list'), new RegExp(id))
console.log('ok')
