// Uses sandboxes through the package e2b.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'

import {
  AuthenticationError, CommandExitError, FileNotFoundError, FilesystemEventType, Sandbox, SandboxError,
  SandboxNotFoundError,
} from 'e2b'

const HOME = '/home/user' // tidy: allow(machine-path): the home inside a sandbox
const BLOB = Buffer.from(Array.from({ length: 1 << 20 }, (_, index) => index % 256))
const UNKNOWN_ID = `sb${'0'.repeat(20)}`
const INVALID_KEY = `e2b_${'0'.repeat(64)}`
// The service measures every 5 s.
const METRICS_TIMEOUT_MS = 30_000

const secondsLeft = (info) => (info.endAt - info.startedAt) / 1000

async function checkInfo(sandbox, tag) {
  const info = await sandbox.getInfo()
  assert.equal(info.sandboxId, sandbox.sandboxId)
  assert.equal(info.templateId, 'base')
  assert.deepEqual(info.metadata, { test: tag })
  assert.equal(info.state, 'running')
  assert.ok(Math.abs(secondsLeft(info) - 120) < 5, `${info.startedAt} ${info.endAt}`)
  await sandbox.setTimeout(300_000)
  assert.ok(Math.abs(secondsLeft(await sandbox.getInfo()) - 305) < 10)
}

async function checkCommands({ commands }) {
  const result = await commands.run('echo out; echo err >&2; pwd; echo $CREATED; whoami')
  assert.equal(result.stdout, `out\n${HOME}\nfrom create\nuser\n`)
  assert.equal(result.stderr, 'err\n')
  assert.equal(result.exitCode, 0)
  await assert.rejects(commands.run('echo before; exit 3'), (error) => {
    assert.ok(error instanceof CommandExitError)
    assert.equal(error.exitCode, 3)
    assert.equal(error.stdout, 'before\n')
    return true
  })
  const changed = await commands.run('echo $CREATED $ONCE', { envs: { CREATED: 'changed', ONCE: '1' } })
  assert.equal(changed.stdout, 'changed 1\n')
  assert.equal((await commands.run('pwd', { cwd: '/tmp' })).stdout, '/tmp\n')
  assert.equal((await commands.run('id -u; echo $HOME', { user: 'root' })).stdout, '0\n/root\n')
  assert.equal((await commands.run('sudo id -u')).stdout, '0\n')
  const parts = []
  await commands.run('echo 1; sleep 0.2; echo 2', { onStdout: (data) => parts.push(data) })
  assert.equal(parts.join(''), '1\n2\n')
  assert.ok(parts.length >= 2, 'the output came only at the end')
  const numbers = Array.from({ length: 8 }, (_, index) => index)
  const all = await Promise.all(numbers.map((number) => commands.run(`sleep 0.2; echo ${number}`)))
  assert.deepEqual(all.map((one) => one.stdout), numbers.map((number) => `${number}\n`))
}

async function checkProcesses({ commands }) {
  const sleeper = await commands.run('sleep 1000', { background: true })
  const pids = async () => (await commands.list()).map((process) => process.pid)
  assert.ok((await pids()).includes(sleeper.pid))
  assert.equal(await commands.kill(sleeper.pid), true)
  await assert.rejects(sleeper.wait(), CommandExitError)
  assert.equal(await commands.kill(sleeper.pid), false)
  assert.ok(!(await pids()).includes(sleeper.pid))

  const reader = await commands.run('read line; echo got $line; cat', { background: true, stdin: true })
  const again = await commands.connect(reader.pid)
  await reader.disconnect()
  await commands.sendStdin(reader.pid, 'a line\n')
  await commands.sendStdin(reader.pid, 'rest')
  await commands.closeStdin(reader.pid)
  assert.equal((await again.wait()).stdout, 'got a line\nrest')
}

async function checkTerminal({ pty }) {
  let shown = ''
  const first = deferred()
  const onData = (data) => {
    shown += Buffer.from(data).toString()
    if (shown.includes('24 80')) first.resolve()
  }
  const terminal = await pty.create({ rows: 24, cols: 80, onData })
  await pty.sendInput(terminal.pid, Buffer.from('stty size\n'))
  await first.promise
  await pty.resize(terminal.pid, { rows: 40, cols: 120 })
  await pty.sendInput(terminal.pid, Buffer.from('stty size; exit\n'))
  await terminal.wait()
  assert.ok(shown.includes('40 120'), shown)
}

function deferred() {
  const made = {}
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }))
  return made
}

async function checkFiles({ commands, files }) {
  const written = await files.write('notes.txt', 'ä first\n')
  assert.equal(written.path, `${HOME}/notes.txt`)
  assert.equal(await files.read('notes.txt'), 'ä first\n')
  assert.equal((await commands.run("stat -c '%U %a' notes.txt")).stdout, 'user 644\n')
  assert.equal(await files.exists('notes.txt'), true)
  assert.equal(await files.exists('missing.txt'), false)
  await assert.rejects(files.read('missing.txt'), FileNotFoundError)
  await files.write('blob', BLOB.buffer.slice(BLOB.byteOffset, BLOB.byteOffset + BLOB.length))
  assert.ok(BLOB.equals(await files.read('blob', { format: 'bytes' })))
  const both = await files.write([{ path: 'many/a', data: 'A' }, { path: 'many/b', data: 'B' }])
  assert.deepEqual(both.map((entry) => entry.path), [`${HOME}/many/a`, `${HOME}/many/b`])
  const listed = await files.list('many')
  assert.deepEqual(listed.map((entry) => [entry.name, entry.type]), [['a', 'file'], ['b', 'file']])
  assert.equal(await files.makeDir('many/deep/er'), true)
  assert.equal(await files.makeDir('many/deep/er'), false)
  assert.equal((await files.rename('many/a', 'many/c')).path, `${HOME}/many/c`)
  const info = await files.getInfo('many/c')
  assert.deepEqual([info.size, info.owner, info.type], [1, 'user', 'file'])
  await files.remove('many')
  assert.equal(await files.exists('many'), false)
}

async function checkUrls(sandbox) {
  const options = { user: 'user', useSignatureExpiration: 60 }
  const form = new FormData()
  form.append('file', new Blob([BLOB]), 'up.bin')
  const sent = await fetch(await sandbox.uploadUrl('up.bin', options), { method: 'POST', body: form })
  assert.equal(sent.status, 200, await sent.text())
  const url = await sandbox.downloadUrl('up.bin', options)
  assert.ok(BLOB.equals(Buffer.from(await (await fetch(url)).arrayBuffer())))
  assert.equal((await fetch(url.replace('up.bin', 'notes.txt'))).status, 401)
}

async function checkWatch({ files }) {
  const removed = deferred()
  const events = []
  await files.makeDir('watched')
  const handle = await files.watchDir('watched', (event) => {
    events.push(`${event.name} ${event.type}`)
    if (event.type === FilesystemEventType.REMOVE) removed.resolve()
  })
  await files.write('watched/new', 'text')
  await files.remove('watched/new')
  await removed.promise
  await handle.stop()
  assert.equal(events[0], 'new create')
  assert.ok(events.includes('new write'), events.join())
}

async function checkPort(sandbox) {
  await sandbox.files.write('site/index.html', 'served inside')
  const server = await sandbox.commands.run('python3 -m http.server 8000 -d site', { background: true })
  const host = sandbox.getHost(8000)
  assert.ok(host.startsWith(`8000-${sandbox.sandboxId}.`), host)
  let response = await fetch(`https://${host}/`)
  for (let tries = 0; response.status === 502 && tries < 100; tries += 1) {
    await sleep(100)
    response = await fetch(`https://${host}/`)
  }
  assert.equal(await response.text(), 'served inside')
  await server.kill()
}

async function checkList(sandbox, tag) {
  const other = await Sandbox.create({ timeoutMs: 60_000, metadata: { test: tag } })
  const pages = Sandbox.list({ query: { metadata: { test: tag } }, limit: 1 })
  const found = []
  while (pages.hasNext) {
    const items = await pages.nextItems()
    assert.equal(items.length, 1)
    found.push(items[0].sandboxId)
  }
  assert.deepEqual(found, [other.sandboxId, sandbox.sandboxId])
  assert.equal(await other.kill(), true)
  assert.equal(await Sandbox.kill(other.sandboxId), false)
  assert.equal(await other.isRunning(), false)
  await assert.rejects(Sandbox.connect(other.sandboxId), SandboxNotFoundError)
}

async function checkPause(sandbox) {
  await sandbox.files.write('ticks', '')
  const counter = await sandbox.commands.run('while sleep 0.1; do echo >> ticks; done', { background: true })
  await sandbox.pause()
  assert.equal((await sandbox.getInfo()).state, 'paused')
  assert.equal(await sandbox.isRunning(), false)
  const same = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 200_000 })
  assert.equal((await same.getInfo()).state, 'running')
  assert.ok((await same.commands.list()).some((process) => process.pid === counter.pid))
  const before = (await same.files.getInfo('ticks')).size
  await sleep(500)
  assert.ok((await same.files.getInfo('ticks')).size > before)
  assert.equal(await same.commands.kill(counter.pid), true)
}

async function checkMetrics(sandbox) {
  const begin = Date.now()
  let metrics = await sandbox.getMetrics()
  while (metrics.length === 0) {
    assert.ok(Date.now() < begin + METRICS_TIMEOUT_MS, 'there are no metrics')
    await sleep(500)
    metrics = await sandbox.getMetrics()
  }
  const sample = metrics.at(-1)
  assert.ok(sample.cpuCount > 0 && sample.memUsed > 0 && sample.memUsed < sample.memTotal)
  assert.ok(sample.diskUsed > 0 && sample.diskUsed < sample.diskTotal)
}

async function checkErrors() {
  await assert.rejects(Sandbox.connect(UNKNOWN_ID), SandboxNotFoundError)
  assert.equal(await Sandbox.kill(UNKNOWN_ID), false)
  await assert.rejects(Sandbox.create({ apiKey: INVALID_KEY }), AuthenticationError)
  await assert.rejects(Sandbox.create('no-such-template'), (error) => {
    assert.ok(error instanceof SandboxError)
    assert.match(error.message, /no-such-template.*not found/)
    return true
  })
}

const tag = randomUUID()
const sandbox = await Sandbox.create({
  timeoutMs: 120_000,
  metadata: { test: tag },
  envs: { CREATED: 'from create' },
})
await checkInfo(sandbox, tag)
await checkCommands(sandbox)
await checkProcesses(sandbox)
await checkTerminal(sandbox)
await checkFiles(sandbox)
await checkUrls(sandbox)
await checkWatch(sandbox)
await checkPort(sandbox)
await checkList(sandbox, tag)
await checkPause(sandbox)
await checkMetrics(sandbox)
assert.equal(await sandbox.kill(), true)
await checkErrors()
console.log('ok')
