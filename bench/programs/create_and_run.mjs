// Times `Sandbox.create()` and `commands.run("echo hi")` with the package e2b, and the same with the native TypeScript SDK, in
// alternation. Prints the milliseconds of both as JSON: create_and_run.mjs COUNT SDK
import assert from 'node:assert'
import { performance } from 'node:perf_hooks'
import { setTimeout } from 'node:timers/promises'
import { Sandbox } from 'e2b'

const WARM_UP = 5
// The pool of ready sandboxes is full again by then.
const PAUSE_MS = 300
const { Sandboxd } = await import(process.argv[3])

async function withE2b() {
  const begin = performance.now()
  const sandbox = await Sandbox.create()
  const result = await sandbox.commands.run('echo hi')
  const took = performance.now() - begin
  assert.equal(result.stdout, 'hi\n')
  await sandbox.kill()
  return took
}

async function natively(client) {
  const begin = performance.now()
  const sandbox = await client.sandboxes.create('ubuntu:24.04')
  const result = await sandbox.execute('echo hi')
  const took = performance.now() - begin
  assert.equal(result.stdout, 'hi\n')
  await sandbox.terminate()
  return took
}

const [e2b, native] = [[], []]
const client = new Sandboxd()
for (let round = 0; round < Number(process.argv[2]) + WARM_UP; round++) {
  for (const [times, measure] of [[e2b, withE2b], [native, () => natively(client)]]) {
    await setTimeout(PAUSE_MS)
    times.push(await measure())
  }
}
console.log(JSON.stringify({ 'e2b-javascript': { sandboxd: e2b.slice(WARM_UP), 'native-sdk': native.slice(WARM_UP) } }))
process.exit(0)
