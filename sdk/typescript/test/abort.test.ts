/** An aborted create throws at once and leaves no sandbox behind. */

import { once } from "node:events";
import net from "node:net";
import { Run, Sandboxd } from "sandboxd";
import type { CreateOptions, Sandbox } from "sandboxd";
import { afterEach, expect, test, vi } from "vitest";
import { Cleanups, WorkLimit } from "../src/cleanup.js";
import { failure, hangUp, json, Service, VIEW } from "./service.js";
import type { Responder } from "./service.js";

const TERMINATED = { id: VIEW.id, state: "terminated", totalRuntimeMs: 7, terminatedAt: "t" };
const FAILED = "sandboxd: terminating the sandbox of a cancelled create failed:";

afterEach(() => {
  vi.restoreAllMocks();
});

/** Responds with a part of a response, or with nothing, and then never again. */
function stuck(head = ""): { responder: Responder; began: Promise<void>; closed: Promise<void> } {
  let begin: () => void = () => undefined;
  let close: () => void = () => undefined;
  const began = new Promise<void>((resolve) => (begin = resolve));
  const closed = new Promise<void>((resolve) => (close = resolve));
  const responder: Responder = (_, response) => {
    response.once("close", close);
    if (head !== "") response.writeHead(201, { "content-type": "application/json" }).write(head);
    begin();
  };
  return { responder, began, closed };
}

/** Aborts a create as soon as it has sent its request, or `afterMs` later. Returns once the call has thrown the reason. */
async function abortCreate(client: Sandboxd, began: Promise<void>, options: CreateOptions = {}, afterMs = 0): Promise<void> {
  const controller = new AbortController();
  const reason = new Error("mine");
  const created = client.sandboxes.create("i", { ...options, signal: controller.signal });
  const rejected = expect(created).rejects.toBe(reason);
  await began;
  if (afterMs > 0) await pause(afterMs);
  controller.abort(reason);
  await rejected;
}

async function pause(ms: number): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, ms));
}

async function receives(service: Service, count: number): Promise<void> {
  await vi.waitFor(() => {
    expect(service.received).toHaveLength(count);
  }, 5000);
}

test.each([
  ["in flight", ""],
  ["while its response is read", '{"id":"sb_'],
])("a create that is aborted %s terminates its sandbox", async (_, head) => {
  const { responder, began, closed } = stuck(head);
  await using service = await Service.start([responder, json(201, VIEW), json(200, TERMINATED)]);
  {
    using client = service.client();
    await abortCreate(client, began, {}, head === "" ? 0 : 100);
  }
  await closed;
  await receives(service, 3);
  const [create, repeated, terminate] = service.received;
  expect(repeated).toMatchObject({ method: "POST", path: "/v1/sandboxes", body: create?.body });
  expect(repeated?.headers["idempotency-key"]).toBe(create?.headers["idempotency-key"]);
  expect(terminate).toMatchObject({ method: "DELETE", path: `/v1/sandboxes/${VIEW.id}` });
});

test.each([
  ["after a refusal, which had no effect", failure(429, "RATE_LIMITED", {}, { "retry-after": "1" }), 1],
  ["after a lost response", hangUp, 3],
])("a create is aborted between two attempts, %s", async (_, first, requests) => {
  vi.spyOn(console, "warn").mockReturnValue();
  await using service = await Service.start([first, json(201, VIEW), json(200, TERMINATED)]);
  await abortCreate(service.client(), receives(service, 1), {}, first === hangUp ? 10 : 100);
  await receives(service, requests);
  // Longer than the service asks to wait.
  await pause(1500);
  expect(service.received).toHaveLength(requests);
});

test("aborting does not wait for the clean-up", async () => {
  const [first, second] = [stuck(), stuck()];
  await using service = await Service.start([first.responder, second.responder]);
  await abortCreate(service.client({ retries: 0, timeoutMs: 300 }), first.began);
  const logged = vi.spyOn(console, "warn").mockReturnValue();
  await second.began;
  expect(logged).not.toHaveBeenCalled();
  await vi.waitFor(() => {
    expect(logged).toHaveBeenCalledWith(FAILED, expect.objectContaining({ code: "NETWORK_ERROR" }));
  });
});

test("an aborted create with a key of the caller is left to the caller", async () => {
  const { responder, began, closed } = stuck();
  await using service = await Service.start([responder]);
  await abortCreate(service.client(), began, { idempotencyKey: "mine" });
  await closed;
  await pause(100);
  expect(service.received).toHaveLength(1);
});

test("a create with an aborted signal sends nothing", async () => {
  await using service = await Service.start([]);
  const signal = AbortSignal.abort(new Error("mine"));
  await expect(service.client().sandboxes.create("i", { signal })).rejects.toBe(signal.reason);
  await pause(100);
  expect(service.received).toHaveLength(0);
});

test("the clean-up of an aborted create does not wait for capacity", async () => {
  const logged = vi.spyOn(console, "warn").mockReturnValue();
  const { responder, began } = stuck();
  await using service = await Service.start([responder, failure(503, "RESOURCE_EXHAUSTED")]);
  await abortCreate(service.client(), began);
  await vi.waitFor(() => {
    expect(logged).toHaveBeenCalledExactlyOnceWith(FAILED, expect.objectContaining({ code: "RESOURCE_EXHAUSTED" }));
  });
  expect(service.received).toHaveLength(2);
});

test("closing the client does not interrupt the clean-up of an aborted create", async () => {
  const first = stuck();
  const slowly: Responder = async (received, response) => {
    await pause(200);
    await json(201, VIEW)(received, response);
  };
  await using service = await Service.start([first.responder, slowly, json(200, TERMINATED)]);
  const client = service.client({ retries: 0 });
  await abortCreate(client, first.began);
  await receives(service, 2);
  client.close();
  await receives(service, 3);
});

test("a create that fails after the service created the sandbox terminates it", async () => {
  await using service = await Service.start([json(201, VIEW), json(200, TERMINATED)]);
  const run = new Run();
  const error = new Error("mine");
  vi.spyOn(run, "record").mockImplementation(() => {
    throw error;
  });
  await expect(service.client().sandboxes.create("i", { run })).rejects.toBe(error);
  await receives(service, 2);
  expect(service.received[1]).toMatchObject({ method: "DELETE", path: `/v1/sandboxes/${VIEW.id}` });
});

test("a create that is aborted by its handler returns its sandbox, which exists", async () => {
  await using service = await Service.start([json(201, VIEW)]);
  const controller = new AbortController();
  const started = (): void => {
    controller.abort();
  };
  const { signal } = controller;
  const sandbox: Sandbox = await service.client().sandboxes.create("i", { signal, on: { started } });
  expect(sandbox.id).toBe(VIEW.id);
  await pause(100);
  expect(service.received).toHaveLength(1);
});

test("invalid handlers are refused before the sandbox is created", async () => {
  await using service = await Service.start([json(201, VIEW)]);
  const error = new Error("mine");
  const on = {
    get started(): never {
      throw error;
    },
  };
  await expect(service.client().sandboxes.create("i", { on })).rejects.toBe(error);
  expect(service.received).toHaveLength(0);
});

test("clean-ups take a limited time, also if they ignore their signal", async () => {
  const logged = vi.spyOn(console, "warn").mockReturnValue();
  const idle = vi.fn();
  const cleanups = new Cleanups(console.warn, 50);
  cleanups.whenIdle(idle);
  expect(idle).toHaveBeenCalledTimes(1);
  cleanups.start("waiting", () => new Promise(() => undefined));
  cleanups.whenIdle(idle);
  expect(idle).toHaveBeenCalledTimes(1);
  await vi.waitFor(() => {
    expect(idle).toHaveBeenCalledTimes(2);
  });
  expect(logged).toHaveBeenCalledExactlyOnceWith("sandboxd: waiting failed:", expect.objectContaining({ name: "TimeoutError" }));
});

test("waits for limits do not count in the time of a clean-up", async () => {
  const limit = new WorkLimit(100);
  limit.suspend();
  limit.suspend();
  await pause(150);
  limit.resume();
  await pause(50);
  limit.resume();
  expect(limit.signal.aborted).toBe(false);
  await pause(150);
  expect(limit.signal.reason).toMatchObject({ name: "TimeoutError" });
});

test("aborting does not wait for a connection", async () => {
  // A TLS handshake without a response.
  const server = net.createServer(() => undefined).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as net.AddressInfo;
  const client = new Sandboxd({ url: `https://127.0.0.1:${port}`, apiKey: "k", systemCertificates: true });
  const signal = AbortSignal.timeout(50);
  const begin = Date.now();
  await expect(client.health({ signal })).rejects.toMatchObject({ name: "TimeoutError" });
  expect(Date.now() - begin).toBeLessThan(5000);
  server.close();
});

test("a body that fails after the abort causes no unhandled rejection", async () => {
  const controller = new AbortController();
  const fetch = (): Promise<Response> => {
    controller.abort(new Error("mine"));
    const response = new Response(new ReadableStream({ pull: (stream) => { stream.error(new Error("aborted")); } }));
    return Promise.resolve(response);
  };
  const client = new Sandboxd({ url: "http://127.0.0.1:1", apiKey: "k", fetch });
  await expect(client.health({ signal: controller.signal })).rejects.toThrow("mine");
  // Unhandled rejections, which fail the test run, are reported after the microtasks.
  await pause(10);
});
