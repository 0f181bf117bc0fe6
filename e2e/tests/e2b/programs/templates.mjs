// Builds of templates, creates from them, and failures.
import assert from 'node:assert/strict'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Sandbox, Template } from 'e2b'

const folder = mkdtempSync(join(tmpdir(), 'e2b-template-'))
writeFileSync(join(folder, 'one.txt'), 'one')
const template = Template({ fileContextPath: folder })
  .fromBaseImage()
  .setEnvs({ GREETING: 'hello' })
  .copy('one.txt', '/opt/copied/')
  .runCmd('cat /opt/copied/one.txt > joined && echo $GREETING >> joined')
const messages = []
const built = await Template.build(template, 'js-built', {
  cpuCount: 1,
  memoryMB: 1024,
  onBuildLogs: (entry) => messages.push(entry.message),
})
assert.match(built.templateId, /^tpl_/)
assert(messages.some((message) => message.includes('joined')), messages.join('\n'))
assert(await Template.exists('js-built'))
const sandbox = await Sandbox.create('js-built', { timeoutMs: 60_000 })
try {
  assert.equal(await sandbox.files.read('joined'), 'onehello\n')
} finally {
  await sandbox.kill()
}
const exact = await Sandbox.create(`js-built:${built.buildId}`, { timeoutMs: 60_000 })
await exact.kill()
await assert.rejects(Sandbox.create('js-built:missing'), /tag 'missing' does not exist for template 'js-built'/)
await assert.rejects(
  Template.build(Template().fromTemplate('js-built').runCmd('exit 7'), 'js-bad'),
  /code 7/,
)
console.log('ok')
process.exit(0)
