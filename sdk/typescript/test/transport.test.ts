import { RateLimited, ResourceExhausted, SandboxdError } from "sandboxd";
import { expect, test, vi } from "vitest";
import { failure, hangUp, json, RESULT, Service, VIEW } from "./service.js";

const FAST = { retries: 2, maxRetryWaitMs: 2000, log: () => undefined };

test("a create, a command and the end of a block", async () => {
  await using service = await Service.start([
    json(201, VIEW),
    json(200, RESULT),
    json(200, { id: VIEW.id, state: "terminated", totalRuntimeMs: 7, terminatedAt: "t" }),
  ]);
  {
    await using sandbox = await service.client().sandboxes.create("ubuntu:24.04", { cpu: 4, env: { A: "1" } });
    const result = await sandbox.execute("echo hi");
    expect(result).toEqual(RESULT);
  }
  const [create, execute, terminate] = service.received;
  expect(JSON.parse(create?.body ?? "")).toEqual({ image: "ubuntu:24.04", env: { A: "1" }, resources: { cpu: 4 } });
  expect(create?.headers["idempotency-key"]).toMatch(/^key_/);
  expect(create?.headers.authorization).toBe("Bearer sbx_test");
  expect(execute?.headers["idempotency-key"]).toMatch(/^key_/);
  expect(terminate).toMatchObject({ method: "DELETE", path: `/v1/sandboxes/${VIEW.id}` });
});

test("the timeout is changed, and samples are listed", async () => {
  const changed = { ...VIEW, timeoutMs: 90_000, expiresAt: "2026-01-01T00:01:30.000Z", onTimeout: "pause" };
  const sample = { timestamp: "2026-01-01T00:00:05.000Z", cpuUsedPercent: 12.5 };
  await using service = await Service.start([json(200, changed), json(200, { data: [sample] })]);
  const sandbox = service.client().sandboxes.connect(VIEW.id);
  expect(await sandbox.setTimeout(90_000)).toEqual(changed);
  expect(sandbox.view).toEqual(changed);
  expect(await sandbox.metrics({ start: new Date(0), end: "2026-01-02T00:00:00Z" })).toEqual([sample]);
  const [change, listing] = service.received;
  expect(change).toMatchObject({ method: "PUT", path: `/v1/sandboxes/${VIEW.id}/timeout`, body: '{"timeoutMs":90000}' });
  expect(listing?.path).toMatch(/\/metrics\?start=1970-01-01T00%3A00%3A00.000Z&end=2026-01-02T00%3A00%3A00Z$/);
});

test("a lost response is retried with the same key", async () => {
  await using service = await Service.start([hangUp, json(201, VIEW)]);
  await service.client(FAST).sandboxes.create("ubuntu:24.04");
  const keys = service.received.map(({ headers }) => headers["idempotency-key"]);
  expect(keys).toHaveLength(2);
  expect(keys[0]).toBe(keys[1]);
});

test("a command is not retried after a response 502, but after 429", async () => {
  await using service = await Service.start([failure(502, "EXECUTION_ERROR"), failure(429, "RATE_LIMITED"), json(200, RESULT)]);
  const sandbox = service.client(FAST).sandboxes.connect(VIEW.id);
  await expect(sandbox.execute("true")).rejects.toMatchObject({ code: "EXECUTION_ERROR", status: 502, repeats: 0 });
  await expect(sandbox.execute("true")).resolves.toEqual(RESULT);
});

test("a command that may be aborted has no key, and is lost with its response", async () => {
  await using service = await Service.start([hangUp]);
  const { signal } = new AbortController();
  const executed = service.client(FAST).sandboxes.connect(VIEW.id).execute("true", { signal });
  await expect(executed).rejects.toMatchObject({ code: "NETWORK_ERROR", retryable: true });
  expect(service.received[0]?.headers).not.toHaveProperty("idempotency-key");
});

test("aborting closes the connection and throws the reason", async () => {
  let closed: () => void = () => undefined;
  const isClosed = new Promise<void>((resolve) => (closed = resolve));
  await using service = await Service.start((_, response) => {
    response.once("close", closed);
  });
  const signal = AbortSignal.timeout(50);
  const executed = service.client().sandboxes.connect(VIEW.id).execute("sleep 9", { signal });
  await expect(executed.catch((error: unknown) => error === signal.reason)).resolves.toBe(true);
  await isClosed;
});

test("a response that takes too long is a network error", async () => {
  await using service = await Service.start(() => undefined);
  const slow = service.client({ timeoutMs: 50, retries: 1 }).health();
  await expect(slow).rejects.toMatchObject({ code: "NETWORK_ERROR", message: "no response within 50 ms", repeats: 1 });
  expect(service.received).toHaveLength(2);
});

test("nothing listens: every call is retried, and the error names the address", async () => {
  const service = await Service.start([]);
  const client = service.client({ retries: 1 });
  await service[Symbol.asyncDispose]();
  const sandbox = client.sandboxes.connect(VIEW.id);
  const signal = new AbortController().signal;
  await expect(sandbox.execute("true", { signal })).rejects.toMatchObject({ code: "NETWORK_ERROR", repeats: 1 });
  await expect(sandbox.execute("true", { signal })).rejects.toThrow(/ECONNREFUSED.*may prepare its images first/);
});

test("Retry-After is respected within the limit, and beyond it the caller gets the error", async () => {
  const limited = (seconds: string) => failure(429, "RATE_LIMITED", {}, { "retry-after": seconds });
  await using service = await Service.start([limited("1"), json(200, { status: "ok" }), limited("3")]);
  const client = service.client(FAST);
  const begin = Date.now();
  await client.health();
  expect(Date.now() - begin).toBeGreaterThanOrEqual(1000);
  const error = await client.health().catch((caught: unknown) => caught);
  expect(error).toBeInstanceOf(RateLimited);
  expect(error).toMatchObject({ retryAfterMs: 3000, repeats: 0 });
});

test("without waiting, an exhausted service is an error at once", async () => {
  await using service = await Service.start([failure(503, "RESOURCE_EXHAUSTED")]);
  const created = service.client(FAST).sandboxes.create("busy", { wait: false });
  await expect(created).rejects.toBeInstanceOf(ResourceExhausted);
});

test("a command that was killed for lack of memory is not retried", async () => {
  await using service = await Service.start([failure(503, "RESOURCE_EXHAUSTED", { commandStarted: true })]);
  const executed = service.client(FAST).sandboxes.connect(VIEW.id).execute("yes");
  await expect(executed).rejects.toMatchObject({ code: "RESOURCE_EXHAUSTED", repeats: 0 });
});

test("a termination whose first response was lost succeeds", async () => {
  const gone = failure(404, "SANDBOX_NOT_FOUND", { state: "terminated", reason: "deleted" });
  await using service = await Service.start([hangUp, gone]);
  const sandbox = service.client(FAST).sandboxes.connect(VIEW.id);
  const ends: unknown[] = [];
  sandbox.on("terminated", (end) => ends.push(end));
  await expect(sandbox.terminate()).resolves.toEqual({ type: "terminated", reason: "deleted" });
  expect(ends).toHaveLength(1);
});

test("a failed call notifies handlers, also of the termination that it found", async () => {
  const gone = failure(404, "SANDBOX_NOT_FOUND", { state: "terminated", reason: "timeout" });
  await using service = await Service.start([gone, gone]);
  const sandbox = service.client().sandboxes.connect(VIEW.id);
  const names: string[] = [];
  const remove = sandbox.on("failed", ({ error }) => names.push(error.code));
  sandbox.on("terminated", ({ reason }) => names.push(reason));
  await expect(sandbox.refresh()).rejects.toBeInstanceOf(SandboxdError);
  expect(names).toEqual(["timeout", "SANDBOX_NOT_FOUND"]);
  remove();
  await expect(sandbox.refresh()).rejects.toThrow();
  expect(names).toHaveLength(2);
});

test("a response that is not JSON is an unknown error with the request id", async () => {
  await using service = await Service.start((_, response) => {
    response.writeHead(200, { "x-request-id": "req_9" }).end("<html>");
  });
  await expect(service.client({ retries: 0 }).health()).rejects.toMatchObject({ code: "UNKNOWN", requestId: "req_9" });
});

test("a handler that throws does not change the call", async () => {
  const logged = vi.spyOn(console, "error").mockReturnValue();
  const result = { id: VIEW.id, state: "paused", pausedAt: "t", runtimeDurationMs: 1 };
  await using service = await Service.start([json(200, result), failure(409, "INVALID_STATE")]);
  const sandbox = service.client({ retries: 0 }).sandboxes.connect(VIEW.id);
  const fail = (): never => {
    throw new Error("mine");
  };
  sandbox.on("paused", fail);
  sandbox.on("failed", fail);
  expect(await sandbox.pause()).toEqual(result);
  await expect(sandbox.pause()).rejects.toMatchObject({ code: "INVALID_STATE" });
  expect(logged).toHaveBeenCalledTimes(2);
  logged.mockRestore();
});
