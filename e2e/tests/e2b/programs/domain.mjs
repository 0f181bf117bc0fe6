// Uses a sandbox whose domain is known only from the response to the create.
import assert from 'node:assert/strict'

import { Sandbox } from 'e2b'

assert.equal(process.env.E2B_DOMAIN, undefined)
const sandbox = await Sandbox.create({ timeoutMs: 60_000 })
assert.ok(sandbox.sandboxDomain.startsWith('sandboxes.localhost:'), sandbox.sandboxDomain)
assert.equal((await sandbox.commands.run('echo hi')).stdout, 'hi\n')
await sandbox.files.write('a', 'b')
assert.equal(await (await fetch(await sandbox.downloadUrl('a'))).text(), 'b')
const same = await Sandbox.connect(sandbox.sandboxId)
assert.equal(await same.files.read('a'), 'b')
assert.ok(same.getHost(80).endsWith(`.${sandbox.sandboxDomain}`), same.getHost(80))
assert.equal(await same.kill(), true)
console.log('ok')
