// Snapshots, creates from them, forks, and pauses without processes.
import assert from 'node:assert/strict'
import { Sandbox } from 'e2b'

const source = await Sandbox.create({ timeoutMs: 300_000 })
const copies = []
try {
  await source.files.write('file', 'before')
  const snapshot = await source.createSnapshot({ name: 'after-setup' })
  assert.match(snapshot.snapshotId, /^snap_/)
  assert.deepEqual(snapshot.names, ['after-setup'])
  await source.files.write('file', 'after')
  const copy = await Sandbox.create(snapshot.snapshotId, { timeoutMs: 300_000 })
  copies.push(copy)
  assert.equal(await copy.files.read('file'), 'before')

  const listed = await source.listSnapshots().nextItems()
  assert.deepEqual(listed.map((item) => item.snapshotId), [snapshot.snapshotId])

  const forks = await source.fork({ count: 2, timeoutMs: 60_000 })
  for (const fork of forks) {
    assert(!(fork instanceof Error), String(fork))
    copies.push(fork)
    assert.equal(await fork.files.read('file'), 'after')
  }

  await source.commands.run('sleep 600', { background: true })
  await source.pause({ keepMemory: false })
  await source.connect()
  assert.equal(await source.files.read('file'), 'after')
  assert.equal((await source.commands.run('pgrep -c sleep || true')).stdout.trim(), '0')

  assert(await Sandbox.deleteSnapshot(snapshot.snapshotId))
  assert(!(await Sandbox.deleteSnapshot(snapshot.snapshotId)))
  assert.equal(await copy.files.read('file'), 'before')
} finally {
  for (const sandbox of [source, ...copies]) await sandbox.kill()
}
console.log('ok')
process.exit(0)
