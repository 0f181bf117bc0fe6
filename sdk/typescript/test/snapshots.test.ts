/** Snapshots, rollbacks and forks. An aborted fork throws at once and leaves no sandboxes behind. */

import { Run, SnapshotNotFound } from "sandboxd";
import type { ForkOptions, Sandboxd } from "sandboxd";
import { afterEach, expect, test, vi } from "vitest";
import { failure, hangUp, json, Service, SNAPSHOT, VIEW } from "./service.js";
import type { Responder } from "./service.js";

const FORKS = ["sb_00000000000000000002", "sb_00000000000000000003"].map((id) => ({ ...VIEW, id }));
const TERMINATED = json(200, { id: VIEW.id, state: "terminated", totalRuntimeMs: 7, terminatedAt: "t" });
const GONE = failure(404, "SANDBOX_NOT_FOUND", { state: "terminated", reason: "deleted" });
const FAILED = "sandboxd: terminating the sandboxes of a cancelled fork failed:";

afterEach(() => {
  vi.restoreAllMocks();
});

async function pause(ms: number): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, ms));
}

async function receives(service: Service, count: number): Promise<void> {
  await vi.waitFor(() => {
    expect(service.received).toHaveLength(count);
  }, 5000);
}

/** The last requests of a service, in any order. */
function terminations(service: Service): string[] {
  return service.received.slice(-FORKS.length).map(({ method, path }) => `${method} ${path}`).sort();
}

const ALL_TERMINATED = FORKS.map(({ id }) => `DELETE /v1/sandboxes/${id}`);

/** Never responds. */
const stuck: Responder = () => undefined;

/** Aborts a fork once the service has received its request. Returns once the call has thrown the reason. */
async function abortFork(service: Service, client: Sandboxd, options: Partial<ForkOptions> = {}): Promise<void> {
  const controller = new AbortController();
  const reason = new Error("mine");
  const forked = client.sandboxes.connect(VIEW.id).fork({ count: 2, ...options, signal: controller.signal });
  const rejected = expect(forked).rejects.toBe(reason);
  await receives(service, 1);
  controller.abort(reason);
  await rejected;
}

test("a snapshot is taken, and the sandbox is rolled back to it", async () => {
  await using service = await Service.start([json(201, SNAPSHOT), json(200, VIEW), json(200, VIEW)]);
  const sandbox = service.client().sandboxes.connect(VIEW.id);
  const snapshot = await sandbox.snapshot({ name: "before", metadata: { a: "1" }, idempotencyKey: "mine" });
  expect(snapshot).toEqual(SNAPSHOT);
  expect(await sandbox.rollback(snapshot)).toEqual(VIEW);
  expect(sandbox.view).toEqual(VIEW);
  await sandbox.rollback(snapshot.id);
  const [take, ...rollbacks] = service.received;
  expect(take).toMatchObject({ method: "POST", path: `/v1/sandboxes/${VIEW.id}/snapshots` });
  expect(JSON.parse(take?.body ?? "")).toEqual({ name: "before", metadata: { a: "1" } });
  expect(take?.headers["idempotency-key"]).toBe("mine");
  for (const { method, path, body } of rollbacks) {
    expect([method, path]).toEqual(["POST", `/v1/sandboxes/${VIEW.id}/rollback`]);
    expect(JSON.parse(body)).toEqual({ snapshotId: SNAPSHOT.id });
  }
});

test("a rollback whose response is lost is not retried", async () => {
  await using service = await Service.start([hangUp]);
  const rolledBack = service.client().sandboxes.connect(VIEW.id).rollback(SNAPSHOT.id);
  await expect(rolledBack).rejects.toMatchObject({ code: "NETWORK_ERROR", repeats: 0 });
  expect(service.received).toHaveLength(1);
});

test("snapshots are listed by filters, and deleted", async () => {
  const second = { ...SNAPSHOT, id: "snap_00000000000000000002" };
  const page = (item: object, hasMore: boolean): Responder =>
    json(200, { data: [item], pagination: { total: 2, limit: 1, offset: 0, hasMore } });
  const deleted = { id: SNAPSHOT.id, deletedAt: "t" };
  const missing = failure(404, "SNAPSHOT_NOT_FOUND");
  await using service = await Service.start([page(SNAPSHOT, true), page(second, false), json(200, deleted), missing]);
  const { snapshots } = service.client();
  const filters = { sandboxId: VIEW.id, name: "a b", metadata: { "k&": "v" }, pageSize: 1 };
  expect(await snapshots.list(filters).toArray()).toEqual([SNAPSHOT, second]);
  expect(await snapshots.delete(SNAPSHOT as Parameters<typeof snapshots.delete>[0])).toEqual(deleted);
  await expect(snapshots.get(SNAPSHOT.id)).rejects.toBeInstanceOf(SnapshotNotFound);
  const query = `sandboxId=${VIEW.id}&name=a%20b&limit=1&offset=1&metadata.k%26=v`;
  expect(service.received[1]).toMatchObject({ method: "GET", path: `/v1/snapshots?${query}` });
  expect(service.received[2]).toMatchObject({ method: "DELETE", path: `/v1/snapshots/${SNAPSHOT.id}` });
});

test("what is not the id of a snapshot is refused without a request", async () => {
  await using service = await Service.start([]);
  const { snapshots } = service.client();
  for (const id of ["", "sb_00000000000000000001", "snap_1/../x"]) {
    await expect(snapshots.get(id)).rejects.toMatchObject({ code: "INVALID_ARGUMENT", details: { argument: "snapshotId" } });
    await expect(snapshots.delete(id)).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
  }
  expect(service.received).toHaveLength(0);
});

test("a fork returns sandboxes, and its run records them", async () => {
  await using service = await Service.start([json(201, SNAPSHOT), json(201, { data: FORKS }), json(200, VIEW)]);
  const run = new Run();
  const recorded: unknown[] = [];
  run.onEvent(({ type, sandboxId, data }) => recorded.push([type, sandboxId, data]));
  const sandbox = service.client().sandboxes.connect(VIEW.id).withRun(run);
  await sandbox.snapshot();
  const forks = await sandbox.fork({ count: 2, env: { A: "1" }, metadata: { b: "2" }, memory: true });
  await sandbox.rollback(SNAPSHOT.id);
  expect(forks.map(({ view }) => view)).toEqual(FORKS);
  const [, fork] = service.received;
  expect(fork).toMatchObject({ method: "POST", path: `/v1/sandboxes/${VIEW.id}/fork` });
  expect(JSON.parse(fork?.body ?? "")).toEqual({ count: 2, env: { A: "1" }, metadata: { b: "2" }, memory: true });
  const created = ({ id, image, state }: typeof VIEW): unknown[] => [
    ["sandbox.created", id, { image, state }],
    ["sandbox.started", id, {}],
  ];
  expect(recorded).toEqual([
    ["snapshot.created", VIEW.id, { snapshotId: SNAPSHOT.id, name: "before", sizeBytes: 4096 }],
    ["sandbox.forked", VIEW.id, { sandboxIds: FORKS.map(({ id }) => id) }],
    ...FORKS.flatMap(created),
    ["sandbox.rolled_back", VIEW.id, { snapshotId: SNAPSHOT.id }],
  ]);
});

test("an aborted fork terminates its sandboxes, also after the client is closed", async () => {
  await using service = await Service.start([stuck, json(201, { data: FORKS }), TERMINATED, TERMINATED]);
  {
    using client = service.client();
    await abortFork(service, client);
  }
  await receives(service, 4);
  const [fork, repeated] = service.received;
  expect(repeated).toMatchObject({ method: "POST", path: fork?.path, body: fork?.body });
  expect(repeated?.headers["idempotency-key"]).toBe(fork?.headers["idempotency-key"]);
  expect(terminations(service)).toEqual(ALL_TERMINATED);
});

test("the clean-up of a fork terminates the others if one termination fails", async () => {
  const logged = vi.spyOn(console, "warn").mockReturnValue();
  const responders = [stuck, json(201, { data: FORKS }), failure(403, "FORBIDDEN"), TERMINATED];
  await using service = await Service.start(responders);
  await abortFork(service, service.client());
  await receives(service, 4);
  expect(terminations(service)).toEqual(ALL_TERMINATED);
  await vi.waitFor(() => {
    expect(logged).toHaveBeenCalledExactlyOnceWith(FAILED, expect.objectContaining({ code: "FORBIDDEN" }));
  });
});

test("the clean-up of a fork ends if the forked sandbox is terminated and the fork created nothing", async () => {
  const logged = vi.spyOn(console, "warn").mockReturnValue();
  await using service = await Service.start([stuck, GONE]);
  await abortFork(service, service.client());
  await receives(service, 2);
  await pause(100);
  expect(logged).not.toHaveBeenCalled();
  expect(service.received).toHaveLength(2);
});

test("the clean-up of a fork accepts sandboxes that are terminated already", async () => {
  const logged = vi.spyOn(console, "warn").mockReturnValue();
  await using service = await Service.start([stuck, json(201, { data: FORKS }), GONE, TERMINATED]);
  await abortFork(service, service.client());
  await receives(service, 4);
  await pause(100);
  expect(logged).not.toHaveBeenCalled();
});

test("the clean-up of a fork does not wait for capacity", async () => {
  const logged = vi.spyOn(console, "warn").mockReturnValue();
  await using service = await Service.start([stuck, failure(503, "RESOURCE_EXHAUSTED")]);
  await abortFork(service, service.client());
  await vi.waitFor(() => {
    expect(logged).toHaveBeenCalledExactlyOnceWith(FAILED, expect.objectContaining({ code: "RESOURCE_EXHAUSTED" }));
  });
  expect(service.received).toHaveLength(2);
});

test("an aborted fork with a key of the caller is left to the caller", async () => {
  await using service = await Service.start([stuck]);
  await abortFork(service, service.client(), { idempotencyKey: "mine" });
  await pause(100);
  expect(service.received).toHaveLength(1);
});

test("a fork with an aborted signal sends nothing", async () => {
  await using service = await Service.start([]);
  const signal = AbortSignal.abort(new Error("mine"));
  await expect(service.client().sandboxes.connect(VIEW.id).fork({ count: 1, signal })).rejects.toBe(signal.reason);
  await pause(100);
  expect(service.received).toHaveLength(0);
});

test("a fork that fails after the service created the sandboxes terminates them", async () => {
  await using service = await Service.start([json(201, { data: FORKS }), TERMINATED, TERMINATED]);
  const run = new Run();
  const error = new Error("mine");
  vi.spyOn(run, "record").mockImplementation(() => {
    throw error;
  });
  await expect(service.client().sandboxes.connect(VIEW.id).withRun(run).fork({ count: 2 })).rejects.toBe(error);
  await receives(service, 3);
  expect(terminations(service)).toEqual(ALL_TERMINATED);
});
