/** Templates against a real service. Skipped without `SANDBOXD_URL`. */

import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import process from "node:process";
import { BuildFailed, Sandboxd, TemplateNotFound } from "sandboxd";
import type { BuildOutput } from "sandboxd";
import { describe, expect, test, vi } from "vitest";

const IMAGE = process.env.SANDBOXD_TEST_IMAGE ?? "ubuntu:24.04";
const isLive = process.env.SANDBOXD_URL !== undefined;
/** Names of this run, because the cache and the versions of a name outlive it. */
const RUN = `ts-${Date.now().toString(36)}`;

function directory(files: Record<string, string>): string {
  const path = mkdtempSync(join(tmpdir(), "sandboxd-templates-"));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(path, name)), { recursive: true });
    writeFileSync(join(path, name), text);
  }
  return path;
}

/** The events without the notes of the service. */
function shown(outputs: readonly BuildOutput[]): string[] {
  return outputs.flatMap((output) => {
    if (output.type === "step") return [`${output.step.number}/${output.step.total} ${output.step.text}`];
    return output.type === "note" ? [] : ["line" in output ? output.line : output.template.state];
  });
}

describe.skipIf(!isLive)("against a service (set SANDBOXD_URL to run)", { timeout: 120_000 }, () => {
  test("a directory is built without what its .dockerignore excludes", async () => {
    using client = new Sandboxd();
    const name = `${RUN}/dir`;
    const context = directory({
      ".dockerignore": "# comment\n**/*.log\nbuild\n!build/keep\nDockerfile\n",
      Dockerfile: `FROM ${IMAGE}\nARG WHO\nENV WHO=$WHO\nCOPY . /app\nRUN echo "hello $WHO"; echo careful >&2\n`,
      ...{ "a.txt": "a", "a.log": "", "deep/b.log": "", "deep/ü": "", "build/keep": "", "build/other": "" },
    });
    const outputs: BuildOutput[] = [];
    const metadata = { run: RUN };
    const onLog = (output: BuildOutput): number => outputs.push(output);
    const template = await client.templates.build(name, { context, buildArgs: { WHO: "you" }, metadata, cpu: 2, onLog });
    expect(template).toMatchObject({ name, version: 1, state: "ready", base: IMAGE, metadata, memory: false });
    expect(shown(outputs)).toEqual(expect.arrayContaining(["hello you", "careful", "ready"]));
    expect(outputs.at(-1)).toEqual({ type: "done", template });
    expect(await client.templates.get(template.id)).toEqual(template);
    expect(await client.templates.list({ name, state: "ready", metadata }).toArray()).toEqual([template]);
    expect((await client.usage()).templates.used).toBeGreaterThan(0);
    {
      await using sandbox = await client.sandboxes.create(name);
      const found = await sandbox.execute("cd /app; find . -mindepth 1 | sort; echo $WHO");
      // The Dockerfile is sent although it is excluded.
      const files = ["./.dockerignore", "./Dockerfile", "./a.txt", "./build", "./build/keep", "./deep", "./deep/ü", "you"];
      expect(found.stdout.trim().split("\n").sort()).toEqual(files.sort());
    }
    const again = await client.templates.build(name, { context, buildArgs: { WHO: "you" } });
    expect(again).toMatchObject({ version: 2, steps: { cached: template.steps.total } });
    for (const each of [template, again]) expect((await client.templates.delete(each)).id).toBe(each.id);
    await expect(client.templates.get(template.id)).rejects.toBeInstanceOf(TemplateNotFound);
    const types = (await client.events.list({ kinds: ["template.*"] }).toArray())
      .filter(({ data }) => data.templateId === template.id)
      .map(({ type }) => type);
    expect(types).toEqual(["template.ready", "template.deleted"]);
  });

  test("an uploaded context is used by several builds", async () => {
    using client = new Sandboxd();
    const files = { "docker/File": `FROM ${IMAGE}\nCOPY data /data\n`, data: "x".repeat(3 << 20), ".dockerignore": "docker" };
    const context = await client.templates.uploadContext(directory(files), { dockerfilePath: "docker/File" });
    expect(context.sizeBytes).toBeGreaterThan(3 << 20);
    const options = { context, dockerfilePath: "docker/File", idempotencyKey: RUN };
    const first = await client.templates.build(`${RUN}/context`, options);
    expect(await client.templates.build(`${RUN}/context`, options)).toEqual(first);
    const second = await client.templates.build(`${RUN}/context`, { context, dockerfile: `FROM ${IMAGE}\nCOPY data /other\n` });
    expect([first.version, second.version]).toEqual([1, 2]);
    await using sandbox = await client.sandboxes.create(first.id);
    expect((await sandbox.execute("wc -c < /data")).stdout.trim()).toBe(String(3 << 20));
  });

  test("a build that fails is an error with its line", async () => {
    using client = new Sandboxd();
    const outputs: BuildOutput[] = [];
    const dockerfile = `FROM ${IMAGE}\nRUN true\nRUN echo why >&2; exit 3\n`;
    const options = { dockerfile, onLog: (output: BuildOutput) => outputs.push(output) };
    const error: unknown = await client.templates.build(`${RUN}/failed`, options).catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(BuildFailed);
    const { template, message } = error as BuildFailed;
    expect(template).toMatchObject({ state: "failed", error: { line: 3 } });
    expect(message).toContain("code 3");
    expect(outputs).toContainEqual({ type: "stderr", line: "why" });
    await expect(client.templates.wait(template)).rejects.toMatchObject({ code: "BUILD_FAILED", template });
    await expect(client.sandboxes.create(template.name)).rejects.toMatchObject({ code: "INVALID_CONFIG" });
    const refused = { code: "INVALID_CONFIG", details: { field: "dockerfile", line: 2 } };
    await expect(client.templates.start(`${RUN}/refused`, { dockerfile: "FROM a\nRUN --network=none x" })).rejects.toMatchObject(refused);
  });

  test("a log is followed and continues, and its build is cancelled", async () => {
    using client = new Sandboxd();
    const { templates } = client;
    const started = await templates.start(`${RUN}/slow`, { dockerfile: `FROM ${IMAGE}\nRUN echo one; echo two; sleep 600\n` });
    expect(["queued", "building"]).toContain(started.state);
    const log = templates.logs(started);
    const outputs: BuildOutput[] = [];
    for await (const output of log) {
      outputs.push(output);
      if (output.type === "stdout") break;
    }
    expect(shown(outputs)).toEqual(["1/1 RUN echo one; echo two; sleep 600", "one"]);
    expect((await templates.get(started.id)).state).toBe("building");
    const rest = templates.logs(started, { after: log.lastEventId ?? "" });
    expect((await rest.next()).value).toEqual({ type: "stdout", line: "two" });
    const cancelled = await templates.cancel(started);
    expect(cancelled).toMatchObject({ id: started.id, state: "cancelled" });
    const end: BuildOutput[] = [];
    for await (const output of rest) end.push(output);
    expect(end.at(-1)).toEqual({ type: "done", template: cancelled });
    expect(await templates.cancel(started.id)).toEqual(cancelled);
    await expect(templates.wait(started)).rejects.toMatchObject({ code: "BUILD_FAILED", template: cancelled });
  });

  test("an aborted build is cancelled", async () => {
    using client = new Sandboxd();
    const controller = new AbortController();
    const onLog = ({ type }: BuildOutput): void => {
      if (type === "stdout") controller.abort(new Error("mine"));
    };
    const name = `${RUN}/aborted`;
    const options = { dockerfile: `FROM ${IMAGE}\nRUN echo begun; sleep 600\n`, onLog, signal: controller.signal };
    await expect(client.templates.build(name, options)).rejects.toThrow("mine");
    const isCancelled = async (): Promise<void> => {
      expect((await client.templates.list({ name }).toArray()).map(({ state }) => state)).toEqual(["cancelled"]);
    };
    await vi.waitFor(isCancelled, { timeout: 20_000, interval: 100 });
  });

  test("a start command runs in every sandbox", async () => {
    using client = new Sandboxd();
    const name = `${RUN}/served`;
    const startCommand = "echo up > /tmp/up; exec sleep 1000";
    const options = { startCommand, readyCommand: "test -e /tmp/up", readyTimeoutMs: 30_000, noCache: true, timeoutMs: 100_000 };
    const template = await client.templates.build(name, { dockerfile: `FROM ${IMAGE}\nRUN true\n`, ...options });
    expect(template).toMatchObject({ startCommand, steps: { cached: 0 } });
    await using sandbox = await client.sandboxes.create(name);
    expect((await sandbox.execute("cat /tmp/up; pgrep -x sleep | wc -l")).stdout).toBe("up\n1\n");
  });
});
