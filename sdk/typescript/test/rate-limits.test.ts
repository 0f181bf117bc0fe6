/** Calls that the service refuses because of a limit wait for it, in order, and say so once. */

import { ResourceExhausted, RateLimited, Run } from "sandboxd";
import type { Sandbox } from "sandboxd";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { failure, hangUp, json, RESULT, Service, VIEW } from "./service.js";
import type { Responder } from "./service.js";

const LIMIT = { limit: "creates per minute", value: 10, key: "limits.create_per_minute", retryAfter: 1 };
const TERMINATED = json(200, { id: VIEW.id, state: "terminated", totalRuntimeMs: 7, terminatedAt: "t" });
const limited = failure(429, "RATE_LIMITED", LIMIT, { "retry-after": "1" });

let warned: ReturnType<typeof vi.spyOn>;

beforeEach(() => {
  warned = vi.spyOn(console, "warn").mockReturnValue();
});

afterEach(() => {
  vi.restoreAllMocks();
});

async function pause(ms: number): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, ms));
}

/** Admits `most` creates in any period, by default a second, and remembers the images in the order of admission. */
class Creates {
  readonly admitted: string[] = [];
  refusals = 0;
  #times: number[] = [];
  readonly #most: number;
  readonly #periodMs: number;

  constructor(most: number, periodMs = 1000) {
    this.#most = most;
    this.#periodMs = periodMs;
  }

  readonly respond: Responder = (request, response) => {
    const now = performance.now();
    this.#times = this.#times.filter((time) => time > now - this.#periodMs);
    const left = this.#most - this.#times.length;
    if (left === 0) {
      this.refusals++;
      return limited(request, response);
    }
    this.#times.push(now);
    const { image } = JSON.parse(request.body) as { image: string };
    this.admitted.push(image);
    const id = `sb_${String(this.admitted.length).padStart(20, "0")}`;
    return json(201, { ...VIEW, id, image }, { "x-ratelimit-remaining": left - 1 })(request, response);
  };
}

/** Creates sandboxes at the same time, of the images 0, 1 and so on. */
async function createMany(service: Service, count: number): Promise<Sandbox[]> {
  const { sandboxes } = service.client();
  return Promise.all(Array.from({ length: count }, (_, index) => sandboxes.create(String(index))));
}

test.each([
  [20, 10],
  [50, 20],
])("%i concurrent creates under a limit of %i succeed in order, with one notice", async (count, most) => {
  const creates = new Creates(most);
  await using service = await Service.start(creates.respond);
  const sandboxes = await createMany(service, count);
  expect(sandboxes.map(({ view }) => view?.image)).toEqual(Array.from({ length: count }, (_, index) => String(index)));
  expect(creates.admitted).toHaveLength(count);
  // Calls that the limit admits together are sent together, on connections of their own.
  const displacements = creates.admitted.map((image, position) => Math.abs(Number(image) - position));
  expect(Math.max(...displacements)).toBeLessThan(most);
  // The calls that wait do not ask all at once whether the limit admits them.
  expect(creates.refusals).toBeLessThan(count - most + 6);
  const notice = "sandboxd: 10 creates per minute: waiting 1 s; the operator sets limits.create_per_minute";
  expect(warned.mock.calls).toEqual([[notice]]);
});

test("a create does not overtake those that wait", async () => {
  // The service asks for whole seconds, so it admits creates before those that wait come back.
  const creates = new Creates(1, 400);
  await using service = await Service.start(creates.respond);
  const { sandboxes } = service.client();
  await sandboxes.create("first");
  const second = sandboxes.create("second");
  await pause(600);
  expect(creates.refusals).toBe(1);
  await Promise.all([second, sandboxes.create("third")]);
  expect(creates.admitted).toEqual(["first", "second", "third"]);
}, 10_000);

test("an aborted create leaves the queue, without a clean-up", async () => {
  const creates = new Creates(1);
  await using service = await Service.start(creates.respond);
  const { sandboxes } = service.client();
  await sandboxes.create("first");
  const signal = AbortSignal.timeout(100);
  const aborted = sandboxes.create("aborted", { signal });
  const waits = sandboxes.create("waits");
  await expect(aborted).rejects.toMatchObject({ name: "TimeoutError" });
  await waits;
  await pause(100);
  expect(creates.admitted).toEqual(["first", "waits"]);
});

test("with `wait: false` a create fails at once, also while others wait", async () => {
  const creates = new Creates(1);
  await using service = await Service.start(creates.respond);
  const { sandboxes } = service.client();
  await sandboxes.create("first");
  const waits = sandboxes.create("waits");
  await vi.waitFor(() => {
    expect(creates.refusals).toBe(1);
  });
  await expect(sandboxes.create("at once", { wait: false })).rejects.toBeInstanceOf(RateLimited);
  await waits;
});

test("waits do not count as retries, but their sum is bounded", async () => {
  await using service = await Service.start([limited, limited, limited, json(200, RESULT), limited, limited]);
  const sandbox = service.client({ retries: 0 }).sandboxes.connect(VIEW.id);
  expect(await sandbox.execute("true")).toEqual(RESULT);
  const impatient = service.client({ maxRetryWait: "1500ms" }).sandboxes.connect(VIEW.id);
  await expect(impatient.execute("true")).rejects.toMatchObject({ code: "RATE_LIMITED", repeats: 1 });
  expect(service.received).toHaveLength(6);
});

test("a call waits for capacity, and its notice has the message of the service", async () => {
  const pulling = failure(503, "RESOURCE_EXHAUSTED", { condition: "image_pull" }, { "retry-after": "1" });
  await using service = await Service.start([pulling, pulling, json(201, VIEW), pulling]);
  const { sandboxes } = service.client();
  await sandboxes.create("ubuntu:24.04");
  expect(warned.mock.calls).toEqual([["sandboxd: waiting 1 s: why"]]);
  await expect(sandboxes.create("ubuntu:24.04", { wait: false })).rejects.toBeInstanceOf(ResourceExhausted);
});

test("notices go to the log of the client, once while calls wait for the same limit", async () => {
  const fixed = failure(429, "RATE_LIMITED", { limit: "file operations at a time in a sandbox", value: 16 }, { "retry-after": "1" });
  let count = 0;
  await using service = await Service.start((request, response) => (++count > 5 ? json(200, { exists: true }) : fixed)(request, response));
  const log: string[] = [];
  const { files } = service.client({ log: (message) => log.push(message) }).sandboxes.connect(VIEW.id);
  expect(await Promise.all(["a", "b", "c"].map((path) => files.exists(path)))).toEqual([true, true, true]);
  expect(log).toEqual(["sandboxd: 16 file operations at a time in a sandbox: waiting 1 s; this limit is fixed"]);
  expect(warned).not.toHaveBeenCalled();
});

test("the end of a block waits for a rate limit, whatever the client allows for other calls", async () => {
  await using service = await Service.start([json(201, VIEW), limited, TERMINATED]);
  {
    await using sandbox = await service.client({ retries: 0, maxRetryWaitMs: 0 }).sandboxes.create("ubuntu:24.04");
    expect(sandbox.id).toBe(VIEW.id);
  }
  expect(service.received.map(({ method }) => method)).toEqual(["POST", "DELETE", "DELETE"]);
});

test("the clean-up of an aborted create waits for a rate limit", async () => {
  const stuck: Responder = () => undefined;
  await using service = await Service.start([stuck, limited, json(201, VIEW), limited, TERMINATED]);
  const controller = new AbortController();
  const created = service.client({ maxRetryWaitMs: 0 }).sandboxes.create("i", { signal: controller.signal });
  const rejected = expect(created).rejects.toThrow();
  await vi.waitFor(() => {
    expect(service.received).toHaveLength(1);
  });
  controller.abort();
  await rejected;
  await vi.waitFor(() => {
    expect(service.received).toHaveLength(5);
  }, 8000);
  expect(service.received.at(-1)).toMatchObject({ method: "DELETE", path: `/v1/sandboxes/${VIEW.id}` });
}, 15_000);

test("attaching to a terminal waits for a rate limit", async () => {
  await using service = await Service.start([limited, failure(404, "EXECUTION_NOT_FOUND")]);
  const attached = service.client().sandboxes.connect(VIEW.id).executions.handle("ex_1").attach();
  await expect(attached).rejects.toMatchObject({ code: "EXECUTION_NOT_FOUND", repeats: 1 });
});

test("posted events wait for a rate limit", async () => {
  await using service = await Service.start([limited, json(201, { recorded: 1 })]);
  const run = new Run().toService(service.client({ maxRetryWaitMs: 0 }).sandboxes.connect(VIEW.id));
  run.thinking("hm");
  await run.flush();
  expect(service.received.map(({ path }) => path)).toEqual(Array(2).fill(`/v1/sandboxes/${VIEW.id}/events`));
});

test("a create whose response is lost while others wait is repeated", async () => {
  const responders = [json(201, VIEW), limited, hangUp, json(201, VIEW), json(201, VIEW)];
  await using service = await Service.start(responders);
  const { sandboxes } = service.client();
  await sandboxes.create("first");
  await Promise.all([sandboxes.create("second"), sandboxes.create("third")]);
  expect(service.received.length).toBe(5);
});
