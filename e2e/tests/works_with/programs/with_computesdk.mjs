// ComputeSDK with its provider for E2B: commands, files, and the list of sandboxes.
import assert from 'node:assert/strict'

import { e2b } from '@computesdk/e2b'
import { compute } from 'computesdk'

compute.setConfig({ provider: e2b({ apiKey: process.env.E2B_API_KEY }) })
const sandbox = await compute.sandbox.create({ timeout: 120_000 })
try {
  const greeting = await sandbox.runCommand('sh -c "printenv GREETING; whoami"', { env: { GREETING: 'hello' } })
  assert.equal(greeting.stdout.trim(), 'hello\nuser')
  const failed = await sandbox.runCommand('echo wrong >&2; exit 3')
  assert.equal(failed.exitCode, 3)
  assert.equal(failed.stderr.trim(), 'wrong')
  const files = sandbox.filesystem
  await files.mkdir('/tmp/data')
  await files.writeFile('/tmp/data/hello.py', 'print("hello from", 6 * 7)')
  assert.equal(await files.readFile('/tmp/data/hello.py'), 'print("hello from", 6 * 7)')
  assert.deepEqual((await files.readdir('/tmp/data')).map((entry) => entry.name), ['hello.py'])
  assert.equal((await sandbox.runCommand('python3 /tmp/data/hello.py')).stdout.trim(), 'hello from 42')
  await files.remove('/tmp/data/hello.py')
  assert.equal(await files.exists('/tmp/data/hello.py'), false)
  assert.equal((await sandbox.getInfo()).status, 'running')
  const listed = (await compute.sandbox.list()).map((each) => each.sandboxId)
  assert.ok(listed.includes(sandbox.sandboxId), String(listed))
} finally {
  await sandbox.destroy()
}
console.log('ok')
