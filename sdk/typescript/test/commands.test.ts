/** Results of commands: the reason of their end, the error of a failed one, and commands that run longer than one request. */

import { CommandFailed } from "sandboxd";
import { afterEach, expect, test, vi } from "vitest";
import { CommandFailed as Failed, tailOf } from "../src/command-failed.js";
import { OutputBuffer } from "../src/output-buffer.js";
import { events, failure, hangUp, json, RESULT, Service, VIEW } from "./service.js";

const EXECUTION = {
  ...{ executionId: "ex_1", command: "make", state: "running", exitCode: null, signal: null, durationMs: null, endedAt: null },
  ...{ outputStart: "0.0", outputEnd: "0.0" },
};
const STARTED = json(201, EXECUTION);

afterEach(() => {
  vi.restoreAllMocks();
});

function done(end: object): string {
  return `id: end\nevent: done\ndata: ${JSON.stringify({ exitCode: 0, signal: null, durationMs: 5, ...end })}\n\n`;
}

test("results and the ends of streams have the reason of the service", async () => {
  const end = { exitCode: null, signal: "SIGKILL", reason: "oom" };
  await using service = await Service.start([json(200, { ...RESULT, ...end }), events(done(end))]);
  const sandbox = service.client().sandboxes.connect(VIEW.id);
  expect((await sandbox.execute("x")).reason).toBe("oom");
  expect((await sandbox.stream("x").done()).reason).toBe("oom");
});

test.each([
  [{ exitCode: 3 }, "exit code 3: make"],
  [{ exitCode: 137, reason: "oom", message: "memory ran out" }, "exit code 137 (memory ran out): make"],
  [{ exitCode: null, signal: "SIGKILL", reason: "timeout", message: "at its timeout" }, "ended by SIGKILL (at its timeout): make"],
  [{ exitCode: null, signal: "SIGTERM" }, "ended by SIGTERM: make"],
  [{ exitCode: null, signal: null, stderr: "no such directory\n" }, "ended by an error: make\nno such directory"],
])("%j is a failed command", (end, message) => {
  const result = { ...RESULT, ...end };
  expect(new Failed("make", result)).toMatchObject({ message, result, code: "COMMAND_FAILED" });
});

test("the error of a failed command has the tail of its standard error", async () => {
  const lines = Array.from({ length: 100 }, (_, index) => `line ${index}`);
  await using service = await Service.start([json(200, { ...RESULT, exitCode: 2, stderr: `${lines.join("\n")}\n` })]);
  const failed: unknown = await service.client().sandboxes.connect(VIEW.id).execute("make", { check: true }).catch((error: unknown) => error);
  expect(failed).toBeInstanceOf(CommandFailed);
  const tail = lines.slice(-20).join("\n");
  expect(failed).toMatchObject({ message: `exit code 2: make\n${tail}`, stderrTail: tail });
  expect(tailOf("x".repeat(5000))).toBe(`…${"x".repeat(2000)}`);
  expect(tailOf("\n\n")).toBe("");
});

test("a command with a long timeout runs detached, with the same result", async () => {
  const output = [
    "id: 3.0\nevent: stdout\ndata: hi\nend: lf\n\n",
    "id: 3.4\nevent: stderr\ndata: oops\nend: none\n\n",
  ];
  const killed = { exitCode: null, signal: "SIGKILL", reason: "timeout", message: "at its timeout", durationMs: 600_001 };
  const end = done(killed);
  await using service = await Service.start([STARTED, events(output[0] ?? "", false), events((output[1] ?? "") + end)]);
  const sandbox = service.client().sandboxes.connect(VIEW.id);
  const result = await sandbox.execute("make", { timeout: "10m", env: { A: "1" }, stdin: "in" });
  expect(result).toEqual({ stdout: "hi\n", stderr: "oops", ...killed });
  const [start, ...follows] = service.received;
  const body = { command: "make", env: { A: "1" }, stdin: "in", timeoutMs: 600_000, detached: true };
  expect(JSON.parse(start?.body ?? "")).toEqual(body);
  expect(start?.headers["idempotency-key"]).toMatch(/^key_/);
  expect(follows.map(({ headers }) => headers["last-event-id"])).toEqual([undefined, "3.0"]);
  expect(follows[0]?.path).toBe(`/v1/sandboxes/${VIEW.id}/executions/ex_1/output?lineEnds=true`);
});

test("a long command that could not start has the reason on its standard error", async () => {
  const ended = { ...EXECUTION, state: "exited", endedAt: "t", message: "no directory /src" };
  await using service = await Service.start([STARTED, events(done({ exitCode: null })), json(200, ended)]);
  const result = await service.client().sandboxes.connect(VIEW.id).execute("make", { timeout: "1h", cwd: "/src" });
  expect(result).toEqual({ stdout: "", stderr: "no directory /src", exitCode: null, signal: null, durationMs: 5, message: "no directory /src" });
});

test("a command that could not start has the reason in its message", async () => {
  const end = { exitCode: null, signal: null, stderr: "a warning\nno directory /src\n" };
  const lines = `event: stderr\ndata: no directory /src\nid: 1\n\n${done({ exitCode: null })}`;
  await using service = await Service.start([json(200, { ...RESULT, ...end }), events(lines), json(200, RESULT)]);
  const sandbox = service.client().sandboxes.connect(VIEW.id);
  expect((await sandbox.execute("make", { cwd: "/src" })).message).toBe("no directory /src");
  expect((await sandbox.stream("make", { cwd: "/src" }).done()).message).toBe("no directory /src");
  expect((await sandbox.execute("make")).message).toBeUndefined();
});

test("five minutes are the longest timeout of one request", async () => {
  await using service = await Service.start([json(200, RESULT), STARTED, events(done({ exitCode: 1 }))]);
  const sandbox = service.client().sandboxes.connect(VIEW.id);
  await sandbox.execute("true", { timeout: "5m" });
  await expect(sandbox.execute("true", { timeoutMs: 300_001, check: true })).rejects.toBeInstanceOf(CommandFailed);
  const detached = service.received.slice(0, 2).map(({ body }) => (JSON.parse(body) as { detached?: true }).detached);
  expect(detached).toEqual([undefined, true]);
});

test.each([
  ["while it runs", [STARTED, (() => undefined), json(200, EXECUTION)], 2],
  ["before its response", [(() => undefined), STARTED, json(200, EXECUTION)], 1],
])("a long command that is aborted %s is killed", async (_, responders, before) => {
  await using service = await Service.start(responders);
  const controller = new AbortController();
  const executed = service.client().sandboxes.connect(VIEW.id).execute("make", { timeout: "1h", signal: controller.signal });
  const rejected = expect(executed).rejects.toThrow("mine");
  await vi.waitFor(() => {
    expect(service.received).toHaveLength(before);
  });
  controller.abort(new Error("mine"));
  await rejected;
  await vi.waitFor(() => {
    expect(service.received).toHaveLength(3);
  });
  expect(service.received[2]).toMatchObject({ method: "DELETE", path: `/v1/sandboxes/${VIEW.id}/executions/ex_1` });
  const keys = service.received.flatMap(({ method, headers }) => (method === "POST" ? [headers["idempotency-key"]] : []));
  expect(new Set(keys).size).toBe(1);
});

test.each([{ killedOnAbort: false }, { idempotencyKey: "mine" }])("a long command with %j continues after an abort", async (options) => {
  await using service = await Service.start([STARTED, (() => undefined)]);
  const { signal, ...controller } = { signal: AbortSignal.timeout(200), ...options };
  await expect(service.client().sandboxes.connect(VIEW.id).execute("make", { timeout: "1h", signal, ...controller })).rejects.toThrow();
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(service.received).toHaveLength(2);
});

test("an error of a long command is reported once", async () => {
  await using service = await Service.start([STARTED, failure(404, "EXECUTION_NOT_FOUND")]);
  const sandbox = service.client().sandboxes.connect(VIEW.id);
  const failures: string[] = [];
  sandbox.on("failed", ({ error }) => failures.push(error.code));
  await expect(sandbox.execute("make", { timeout: "1h" })).rejects.toMatchObject({ code: "EXECUTION_NOT_FOUND" });
  expect(failures).toEqual(["EXECUTION_NOT_FOUND"]);
});

test("wait with check is an error with the end of the output", async () => {
  const ended = { ...EXECUTION, state: "exited", exitCode: 2, durationMs: 7, endedAt: "t", outputStart: "0.100", outputEnd: "5000.9000" };
  const output = { stdout: "out", stderr: "\ufffd\ufffdlast words\n", next: "5000.9000", more: false, dropped: false, state: "exited" };
  await using service = await Service.start([json(200, EXECUTION), events(done({})), json(200, ended), json(200, output)]);
  const execution = service.client().sandboxes.connect(VIEW.id).executions.handle("ex_1");
  const failed: unknown = await execution.wait({ check: true }).catch((error: unknown) => error);
  expect(failed).toMatchObject({
    code: "COMMAND_FAILED",
    message: "exit code 2: make\nlast words",
    result: { stdout: "out", stderr: "last words\n", exitCode: 2, signal: null, durationMs: 7, stdoutTruncated: true, stderrTruncated: true },
  });
  expect(service.received.at(-1)?.path).toMatch(/\/output\?after=904\.4904$/);
});

test.each([
  [{ reason: "oom", message: "memory ran out" }, "ended by SIGKILL (memory ran out): make\nlast", { reason: "oom", stderr: "last" }],
  [{ signal: null, message: "no such directory" }, "ended by an error: make\nno such directory", { stderr: "no such directory" }],
])("wait with check says why a command with %j failed", async (end, message, result) => {
  const ended = { ...EXECUTION, state: "exited", signal: "SIGKILL", endedAt: "t", ...end };
  const output = json(200, { stdout: "", stderr: "reason" in end ? "last" : "", next: "0.0", more: false, dropped: false, state: "exited" });
  await using service = await Service.start([json(200, ended), output]);
  const waited = service.client().sandboxes.connect(VIEW.id).executions.handle("ex_1").wait({ check: true });
  await expect(waited).rejects.toMatchObject({ message, result });
});

test("wait without check, or for a command that succeeds, returns its state", async () => {
  const ended = { ...EXECUTION, state: "exited", endedAt: "t" };
  await using service = await Service.start([json(200, { ...ended, exitCode: 2 }), json(200, { ...ended, exitCode: 0 })]);
  const execution = service.client().sandboxes.connect(VIEW.id).executions.handle("ex_1");
  expect((await execution.wait()).exitCode).toBe(2);
  expect((await execution.wait({ check: true })).exitCode).toBe(0);
});

test("of long output the first and the last half stay", () => {
  const text = (limit: number, parts: string[], missed = 0): unknown => {
    const buffer = new OutputBuffer(limit);
    if (missed > 0) buffer.miss(missed);
    for (const part of parts) buffer.push(part);
    return buffer.result();
  };
  expect(text(8, ["abcd", "efgh"])).toEqual({ text: "abcdefgh", isTruncated: false });
  expect(text(8, ["abcd", "efgh", "i"])).toEqual({ text: "abcd\n[... 1 bytes are missing here ...]\nfghi", isTruncated: true });
  expect(text(6, ["ab\ndefghi"])).toEqual({ text: "ab\n[... 3 bytes are missing here ...]\nghi", isTruncated: true });
  // A surrogate pair is not cut; é has two bytes.
  expect(text(4, ["a😀é", "é😀z"])).toEqual({ text: "a😀\n[... 8 bytes are missing here ...]\nz", isTruncated: true });
  expect(text(8, ["abc"], 7)).toEqual({ text: "[... 7 bytes are missing here ...]\nabc", isTruncated: true });
});

test("100 MB of output need a bounded amount of memory and time", () => {
  const buffer = new OutputBuffer(1 << 20);
  const line = `${"x".repeat(99)}\n`;
  const begin = performance.now();
  for (let count = 0; count < 1_000_000; count++) buffer.push(line);
  const { text, isTruncated } = buffer.result();
  expect(isTruncated).toBe(true);
  expect(text).toHaveLength((1 << 20) + "\n[... 98951424 bytes are missing here ...]\n".length);
  expect(text).toContain("98951424 bytes");
  expect(performance.now() - begin).toBeLessThan(10_000);
});

test("a lost response of the start is repeated with the same key", async () => {
  await using service = await Service.start([hangUp, STARTED, events(done({}))]);
  expect((await service.client().sandboxes.connect(VIEW.id).execute("make", { timeout: "1h" })).exitCode).toBe(0);
  expect(service.received[1]?.headers["idempotency-key"]).toBe(service.received[0]?.headers["idempotency-key"]);
});

test("a name is accepted in place of the id", async () => {
  const view = { ...VIEW, name: "web-1.x" };
  await using service = await Service.start([json(201, view), json(200, RESULT), json(200, view), json(200, RESULT)]);
  const client = service.client();
  const created = await client.sandboxes.create("i", { name: "web-1.x" });
  expect(created.view?.name).toBe("web-1.x");
  expect((JSON.parse(service.received[0]?.body ?? "") as { name?: string }).name).toBe("web-1.x");
  const sandbox = client.sandboxes.connect("web-1.x");
  expect(sandbox.id).toBe("web-1.x");
  await sandbox.execute("x");
  // From here on another holder of the name is another sandbox.
  await sandbox.refresh();
  expect(sandbox.id).toBe(VIEW.id);
  await sandbox.execute("x");
  expect(service.received.slice(1).map(({ path }) => path)).toEqual([
    "/v1/sandboxes/web-1.x/execute",
    "/v1/sandboxes/web-1.x",
    `/v1/sandboxes/${VIEW.id}/execute`,
  ]);
  for (const wrong of ["", "sb_A", "a/b", "..", "-a", "a b", "x".repeat(64)]) {
    expect(() => client.sandboxes.connect(wrong)).toThrow(/neither a sandbox id nor a name/);
  }
});
