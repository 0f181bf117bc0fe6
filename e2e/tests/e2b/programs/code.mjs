// Runs code through the package @e2b/code-interpreter.
import assert from 'node:assert/strict'

import { Sandbox } from '@e2b/code-interpreter'

const PLOT = 'import matplotlib.pyplot as plt\nplt.plot([1, 2, 4])\nplt.show()'
const PNG = Buffer.from('\x89PNG\r\n\x1a\n', 'latin1')

async function checkResults(sandbox) {
  await sandbox.runCode('x = 41')
  assert.equal((await sandbox.runCode('x + 1')).text, '42')
  const execution = await sandbox.runCode("import sys; print('out'); print('err', file=sys.stderr); 'last'")
  assert.deepEqual([execution.logs.stdout, execution.logs.stderr], [['out\n'], ['err\n']])
  assert.equal(execution.text, "'last'")
  assert.equal(execution.error, undefined)
  const failed = await sandbox.runCode("print('before')\n1 / 0")
  assert.equal(failed.error.name, 'ZeroDivisionError')
  assert.ok(failed.error.traceback.includes('ZeroDivisionError'))
  assert.deepEqual(failed.logs.stdout, ['before\n'])
  const image = Buffer.from((await sandbox.runCode(PLOT)).results[0].png, 'base64')
  assert.ok(image.subarray(0, PNG.length).equals(PNG) && image.length > 1000)
}

async function checkStreams(sandbox) {
  const seen = []
  const code = "import time\nprint(1, flush=True)\ntime.sleep(0.3)\nprint(2, flush=True)\ndisplay('shown')\n1 / 0"
  await sandbox.runCode(code, {
    onStdout: (message) => seen.push(message.line),
    onResult: (result) => seen.push(result.text),
    onError: (error) => seen.push(error.name),
  })
  assert.deepEqual(seen, ['1\n', '2\n', "'shown'", 'ZeroDivisionError'])
}

async function checkContexts(sandbox) {
  const ids = async () => (await sandbox.listCodeContexts()).map((context) => context.id)
  const context = await sandbox.createCodeContext({ cwd: '/tmp', language: 'python' })
  assert.deepEqual([context.cwd, context.language], ['/tmp', 'python'])
  assert.equal((await sandbox.runCode('x', { context })).error.name, 'NameError')
  assert.equal((await sandbox.runCode('import os; os.getcwd()', { context })).text, "'/tmp'")
  assert.ok((await ids()).includes(context.id))
  await sandbox.runCode('y = 1', { context })
  await sandbox.restartCodeContext(context)
  assert.equal((await sandbox.runCode('y', { context })).error.name, 'NameError')
  await sandbox.removeCodeContext(context)
  assert.ok(!(await ids()).includes(context.id))
  assert.equal((await sandbox.runCode('x')).text, '41')
}

async function checkEnvironment(sandbox) {
  const read = "import os; [os.environ.get('CREATED'), os.environ.get('ONCE')]"
  assert.equal((await sandbox.runCode(read, { envs: { ONCE: '1' } })).text, "['from create', '1']")
  assert.equal((await sandbox.runCode(read)).text, "['from create', None]")
  assert.deepEqual((await sandbox.runCode('echo $((6 * 7))', { language: 'bash' })).logs.stdout, ['42\n'])
  assert.equal((await sandbox.runCode('const a = 20; a + 1', { language: 'javascript' })).text, '21')
}

const sandbox = await Sandbox.create({ timeoutMs: 120_000, envs: { CREATED: 'from create' } })
assert.equal((await sandbox.getInfo()).templateId, 'code-interpreter-v1')
await checkResults(sandbox)
await checkStreams(sandbox)
await checkContexts(sandbox)
await checkEnvironment(sandbox)
await sandbox.files.write('data.txt', 'from a file')
assert.equal((await sandbox.runCode("open('data.txt').read()")).text, "'from a file'")
assert.equal(await sandbox.kill(), true)
console.log('ok')
