/** The SDK against a real service, with the settings of the environment. Skipped without `SANDBOXD_URL`. */

import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { CommandFailed, FileNotFound, Run, Sandbox, Sandboxd, SandboxNotFound, SnapshotNotFound } from "sandboxd";
import type { Output, RuntimeEvent } from "sandboxd";
import { describe, expect, test, vi } from "vitest";

const IMAGE = process.env.SANDBOXD_TEST_IMAGE ?? "ubuntu:24.04";
const isLive = process.env.SANDBOXD_URL !== undefined;

async function collected<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

describe.skipIf(!isLive)("against a service (set SANDBOXD_URL to run)", () => {
  test("create, execute, pause, resume, terminate", async () => {
    const names: string[] = [];
    const on = { started: () => names.push("started"), terminated: () => names.push("terminated") };
    const sandbox = await Sandbox.create(IMAGE, { env: { A: "1" }, metadata: { userId: "live" }, on });
    const result = await sandbox.execute("echo $A $B; cat >&2; exit 3", { env: { B: "2" }, stdin: "in" });
    expect(result).toMatchObject({ stdout: "1 2\n", stderr: "in", exitCode: 3, signal: null });
    await expect(sandbox.execute("false", { check: true })).rejects.toBeInstanceOf(CommandFailed);
    await sandbox.pause();
    await expect(sandbox.execute("true", { autoResume: false })).rejects.toMatchObject({ code: "INVALID_STATE" });
    expect((await sandbox.resume()).state).toBe("running");
    const client = new Sandboxd();
    const found = await client.sandboxes.list({ metadata: { userId: "live" } }).toArray();
    expect(found.map(({ id }) => id)).toContain(sandbox.id);
    expect((await client.images.get(IMAGE))?.status).toBe("ready");
    expect((await client.usage()).sandboxes.used).toBeGreaterThan(0);
    const info = await client.info();
    expect(info.backends.map(({ name }) => name)).toContain(info.defaultIsolation);
    expect(sandbox.view?.isolation).toBe(info.defaultIsolation);
    expect((await sandbox.terminate()).totalRuntimeMs).toBeGreaterThanOrEqual(0);
    await expect(sandbox.refresh()).rejects.toBeInstanceOf(SandboxNotFound);
    expect(names).toEqual(["started", "terminated"]);
  });

  test("a command with a long timeout, a list, and the error of a failed one", async () => {
    await using sandbox = await Sandbox.create(IMAGE, { memory: "2g", disk: "5g", timeout: "30m" });
    expect(sandbox.view).toMatchObject({ resources: { memoryMb: 2048, diskMb: 5120 }, timeoutMs: 1_800_000 });
    const words = ["a b", "it's", "$HOME", "", "ü"];
    const printed = await sandbox.execute(["printf", "%s\n", ...words], { timeout: "6m" });
    expect(printed).toMatchObject({ stdout: `${words.join("\n")}\n`, stderr: "", exitCode: 0, signal: null });
    const failing = "seq 1000; printf 'no\nline' >&2; exit 3";
    const attached: unknown = await sandbox.execute(failing, { check: true }).catch((error: unknown) => error);
    const detached: unknown = await sandbox.execute(failing, { check: true, timeout: "6m" }).catch((error: unknown) => error);
    const waited: unknown = await (await sandbox.start(failing)).wait({ check: true }).catch((error: unknown) => error);
    for (const error of [attached, detached, waited]) {
      expect(error).toBeInstanceOf(CommandFailed);
      expect(error).toMatchObject({ message: `exit code 3: ${failing}\nno\nline`, result: { exitCode: 3, stderr: "no\nline" } });
    }
    const signal = AbortSignal.timeout(500);
    await expect(sandbox.execute("exec sleep 1002", { timeout: "6m", signal })).rejects.toMatchObject({ name: "TimeoutError" });
    const isKilled = async (): Promise<void> => {
      expect((await sandbox.executions.list().toArray()).map(({ state }) => state)).not.toContain("running");
    };
    await vi.waitFor(isKilled, { timeout: 20_000, interval: 100 });
  });

  test("aborting a command or ending a stream kills the command", async () => {
    await using sandbox = await Sandbox.create(IMAGE);
    const signal = AbortSignal.timeout(300);
    await expect(sandbox.execute("sleep 1000", { signal })).rejects.toMatchObject({ name: "TimeoutError" });
    for await (const output of sandbox.stream("echo one; sleep 1001")) {
      expect(output).toEqual({ type: "stdout", line: "one" });
      break;
    }
    const left = await sandbox.execute("for i in $(seq 50); do pgrep -x sleep >/dev/null || exit 0; sleep 0.1 & wait; done; pgrep -a sleep");
    expect(left.stdout).not.toContain("100");
  });

  test("10,000 lines are streamed without loss", async () => {
    await using sandbox = await Sandbox.create(IMAGE);
    const outputs = await collected(sandbox.stream("seq 10000; printf end", { lineEnds: true }));
    const text = outputs.map((output) => ("line" in output ? output.line : "")).join("");
    expect(text).toBe(`${Array.from({ length: 10_000 }, (_, index) => `${index + 1}\n`).join("")}end`);
  });

  test("directories are copied in both directions", async () => {
    await using sandbox = await Sandbox.create(IMAGE);
    const local = mkdtempSync(join(tmpdir(), "sandboxd-live-"));
    writeFileSync(join(local, "main.py"), "print(1)");
    expect(await sandbox.files.uploadDirectory(local, "project")).toMatchObject({ files: 1, bytes: 8 });
    await sandbox.execute("ln -s main.py project/link; ln -s / project/root; mkdir -p project/root/x 2>/dev/null; true");
    const copy = join(local, "copy");
    expect(await sandbox.files.downloadDirectory("project", copy)).toMatchObject({ files: 1, links: 2 });
    expect(readFileSync(join(copy, "link"), "utf8")).toBe("print(1)");
    await expect(sandbox.files.uploadDirectory(join(local, "none"), "x")).rejects.toMatchObject({ code: "LOCAL_FILE" });
    await expect(sandbox.files.downloadDirectory("none", copy)).rejects.toBeInstanceOf(FileNotFound);
  });

  test("detached executions", async () => {
    await using sandbox = await Sandbox.create(IMAGE);
    const cat = await sandbox.start("cat; echo done", { openStdin: true });
    await cat.writeStdin("hello\n");
    await cat.writeStdin("", { close: true });
    const lines: Output[] = await collected(cat.follow());
    expect(lines.map((output) => ("line" in output ? output.line : output.type))).toEqual(["hello", "done", "done"]);
    expect(await cat.wait()).toMatchObject({ exitCode: 0, state: "exited" });
    expect((await cat.output()).stdout).toBe("hello\ndone\n");
    const sleep = await sandbox.start("exec sleep 1000");
    expect((await sandbox.executions.list().toArray()).map(({ executionId }) => executionId)).toEqual([sleep.id, cat.id]);
    await sleep.signal("SIGTERM");
    expect((await sleep.wait()).signal).toBe("SIGTERM");
    const killed = await sandbox.start("sleep 1000");
    expect((await killed.cancel()).signal).toBe("SIGKILL");
  });

  test("files", async () => {
    await using sandbox = await Sandbox.create(IMAGE);
    const { files } = sandbox;
    const entry = await files.write("dir/ü.txt", "hello", { parents: true, mode: 0o600 });
    expect(entry).toMatchObject({ sizeBytes: 5, mode: "0600" });
    expect(await files.readText(entry)).toBe("hello");
    expect(await files.readText("dir/ü.txt", { start: 1, end: 3 })).toBe("el");
    const large = new Uint8Array(3_000_000).fill(7);
    await files.write("large", new Blob([large]));
    await files.write("large2", (await files.stream("large")).toWebStream());
    expect((await files.read("large2")).length).toBe(large.length);
    const archive = await (await files.pack("dir")).bytes();
    expect((await files.unpack("copy", archive)).files).toBe(1);
    await files.move("copy/ü.txt", "copy/b");
    expect((await files.list("copy").toArray()).map(({ name }) => name)).toEqual(["b"]);
    expect(await files.exists("copy/ü.txt")).toBe(false);
    expect((await files.mkdir("x/y", { recursive: true })).isDirectory).toBe(true);
    expect(await files.remove("x", { recursive: true })).toBe(2);
    await expect(files.read("missing")).rejects.toBeInstanceOf(FileNotFound);
    expect((await files.stat("large")).sizeBytes).toBe(large.length);
  });

  test("the timeout changes, and samples are taken", async () => {
    await using sandbox = await Sandbox.create(IMAGE, { timeoutMs: 600_000, onTimeout: "pause", autoResume: false });
    expect(sandbox.view).toMatchObject({ onTimeout: "pause", autoResume: false });
    expect((await sandbox.setTimeout(1_200_000)).timeoutMs).toBe(1_200_000);
    const sampled = async () => {
      expect(await sandbox.metrics()).not.toHaveLength(0);
    };
    // A busy host samples less often than every 5 s.
    await vi.waitFor(sampled, { timeout: 60_000, interval: 100 });
    const [sample] = await sandbox.metrics();
    expect(sample?.memoryTotalBytes).toBeGreaterThan(sample?.memoryUsedBytes ?? 0);
    expect(await sandbox.metrics({ start: "2100-01-01T00:00:00Z" })).toEqual([]);
    await sandbox.setTimeout(0);
    const paused = async () => {
      expect((await sandbox.refresh()).state).toBe("paused");
    };
    await vi.waitFor(paused, { timeout: 10_000, interval: 100 });
    await expect(sandbox.execute("true")).rejects.toMatchObject({ code: "INVALID_STATE" });
  }, 90_000);

  test("snapshots, a rollback and a fork", async () => {
    await using sandbox = await Sandbox.create(IMAGE, { env: { A: "1", B: "1" }, metadata: { job: "live" } });
    await sandbox.files.write("file", "before");
    const snapshot = await sandbox.snapshot({ name: "before", metadata: { job: "live" } });
    expect(snapshot).toMatchObject({ sandboxId: sandbox.id, name: "before", image: IMAGE, memory: false, state: "ready" });
    const client = new Sandboxd();
    const filters = { sandboxId: sandbox.id, name: "before", metadata: { job: "live" } };
    expect(await client.snapshots.list(filters).toArray()).toEqual([snapshot]);
    expect(await client.snapshots.list({ ...filters, name: "after" }).total()).toBe(0);
    for (const named of [snapshot.id, "before"]) expect(await client.snapshots.get(named)).toEqual(snapshot);
    expect((await client.usage()).snapshots.used).toBeGreaterThan(0);
    await sandbox.files.write("file", "after");
    const forks = await sandbox.fork({ count: 2, env: { B: "2" }, metadata: { fork: "live" } });
    expect(new Set([sandbox.id, ...forks.map(({ id }) => id)]).size).toBe(3);
    for (const fork of forks) {
      expect(fork.view?.metadata).toEqual({ fork: "live" });
      expect((await fork.execute("cat file; echo $A $B")).stdout).toBe("after1 2\n");
      await fork.terminate();
    }
    expect((await sandbox.rollback("before")).state).toBe("running");
    expect(await sandbox.files.readText("file")).toBe("before");
    {
      await using copy = await Sandbox.create(snapshot.id);
      expect(await copy.files.readText("file")).toBe("before");
      await expect(copy.rollback(snapshot.id)).rejects.toMatchObject({ code: "INVALID_CONFIG" });
    }
    expect((await client.snapshots.delete(snapshot)).id).toBe(snapshot.id);
    await expect(client.snapshots.get(snapshot.id)).rejects.toBeInstanceOf(SnapshotNotFound);
    await expect(Sandbox.create(snapshot.id)).rejects.toBeInstanceOf(SnapshotNotFound);
    const recorded = await sandbox.events.list({ kinds: ["snapshot.*", "sandbox.rolled_back", "sandbox.forked"] }).toArray();
    const types = recorded.map(({ type }) => type);
    expect(types).toEqual(["snapshot.created", "sandbox.forked", "sandbox.rolled_back", "snapshot.deleted"]);
    expect(recorded[1]?.data).toEqual({ sandboxIds: forks.map(({ id }) => id) });
  });

  test("an aborted fork leaves no sandboxes", async () => {
    await using sandbox = await Sandbox.create(IMAGE);
    const metadata = { fork: sandbox.id };
    const signal = AbortSignal.timeout(5);
    await expect(sandbox.fork({ count: 2, metadata, signal })).rejects.toMatchObject({ name: "TimeoutError" });
    const client = new Sandboxd();
    const isTerminated = async (): Promise<void> => {
      const listed = await client.sandboxes.list({ metadata, state: "all" }).toArray();
      expect(listed.map(({ state }) => state)).toEqual(["terminated", "terminated"]);
    };
    await vi.waitFor(isTerminated, { timeout: 20_000, interval: 100 });
  });

  test("commands run as a user", async () => {
    await using sandbox = await Sandbox.create(IMAGE);
    const user = "nobody";
    expect((await sandbox.execute("id -un", { user })).stdout).toBe("nobody\n");
    expect((await collected(sandbox.stream("id -un", { user })))[0]).toEqual({ type: "stdout", line: "nobody" });
    const detached = await sandbox.start("id -un", { user });
    await detached.wait();
    expect((await detached.output()).stdout).toBe("nobody\n");
    let text = "";
    for await (const event of await sandbox.terminal({ command: "id -un", user })) {
      if (event.type === "bytes") text += new TextDecoder().decode(event.bytes);
    }
    expect(text).toContain("nobody");
  });

  test("a watch of a directory", async () => {
    await using sandbox = await Sandbox.create(IMAGE);
    await sandbox.files.mkdir("d/below", { recursive: true });
    const watch = await sandbox.files.watch("d", { recursive: true }).start();
    await sandbox.execute("echo 1 > d/below/f; rm -r d");
    const seen = (await collected(watch)).map((event) => (event.type === "change" ? `${event.kind} ${event.path}` : ""));
    const { workdir } = await sandbox.refresh();
    const expected = ["create", "write", "remove"].map((kind) => `${kind} ${workdir}/d/below/f`);
    expect(seen).toEqual(expect.arrayContaining(expected));
    await expect(sandbox.files.watch("missing").start()).rejects.toBeInstanceOf(FileNotFound);
  });

  test("ports and the network", async () => {
    await using sandbox = await Sandbox.create(IMAGE, { egress: { default: "deny", allow: ["example.com"] } });
    const port = await sandbox.ports.expose(8080);
    expect(port.url).toContain("8080-");
    expect((await sandbox.ports.token(8080)).url).toContain("sandbox_token=");
    expect(await sandbox.ports.list()).toHaveLength(1);
    await sandbox.ports.close(8080);
    expect((await sandbox.network.get()).egress.default).toBe("deny");
    expect((await sandbox.network.update({ default: "allow", allow: [] })).network.egress.default).toBe("allow");
  });

  test("events and runs", async () => {
    const file = join(mkdtempSync(join(tmpdir(), "sandboxd-")), "run.jsonl");
    const run = new Run().toFile(file);
    const seen: RuntimeEvent[] = [];
    run.onEvent((event) => seen.push(event));
    const sandbox = await Sandbox.create(IMAGE, { run });
    run.toService(sandbox);
    const following = await sandbox.events.follow().start();
    run.toolCall("shell", { command: "true" });
    await sandbox.execute("true");
    await run.flush();
    await sandbox.terminate();
    const types = (await collected(following)).map(({ type }) => type);
    expect(types).toEqual(expect.arrayContaining(["agent.tool_call", "exec.started", "exec.completed", "sandbox.terminated"]));
    const listed = await sandbox.events.list({ run: run.id, kinds: ["agent.*"] }).toArray();
    expect(listed.map(({ data }) => data)).toEqual([{ tool: "shell", arguments: { command: "true" } }]);
    expect(readFileSync(file, "utf8").trim().split("\n")).toHaveLength(seen.length);
  });

  test("a terminal", async () => {
    await using sandbox = await Sandbox.create(IMAGE);
    await using terminal = await sandbox.terminal({ cols: 100, rows: 30, command: "stty size; read x; echo got $x" });
    terminal.send("hello\r");
    let text = "";
    for await (const event of terminal) {
      if (event.type === "bytes") text += new TextDecoder().decode(event.bytes);
      if (event.type === "ended") expect(event.execution.exitCode).toBe(0);
    }
    expect(text).toContain("30 100");
    expect(text).toContain("got hello");
    await expect(sandbox.executions.handle("ex_00000000000000000000").attach()).rejects.toMatchObject({ status: 404 });
  });
});
