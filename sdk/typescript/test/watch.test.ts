/** The watch of a directory. */

import type { FileWatch, SandboxdError, WatchEvent } from "sandboxd";
import { expect, test } from "vitest";
import { events, failure, json, Service, VIEW } from "./service.js";
import type { Responder } from "./service.js";

const READY = "event: ready\ndata: {}\n\n";
const CREATED = 'event: change\ndata: {"kind":"create","path":"/d/f"}\n\n';
const DONE = "event: done\ndata: {}\n\n";
const CHANGE: WatchEvent = { type: "change", kind: "create", path: "/d/f" };
const OVER = { done: true, value: undefined };

function watchOf(service: Service): FileWatch {
  return service.client().sandboxes.connect(VIEW.id).files.watch("d");
}

/** A watch with one change, after which nothing happens. */
function idle(closed: () => void): Responder {
  return (_, response) => {
    response.writeHead(200).write(READY + CREATED);
    response.once("close", closed);
  };
}

test("a watch delivers changes until the directory is deleted", async () => {
  const raw = 'event: change\ndata: {"kind":"write","path":"/d/\ufffd","rawPath":"/d/%FF"}\n\n';
  const unknown = "event: novelty\ndata: {}\n\n";
  const text = `${READY}${CREATED}: nothing new\n\n${unknown}${raw}event: overflow\ndata: {}\n\n${DONE}`;
  await using service = await Service.start([events(text), json(200, { exists: true, path: "/d/f" })]);
  const { files } = service.client().sandboxes.connect(VIEW.id);
  const seen: WatchEvent[] = [];
  for await (const event of files.watch("d e", { recursive: true, autoResume: false })) seen.push(event);
  const change = { type: "change", kind: "write", path: "/d/\ufffd", rawPath: "/d/%FF" } as const;
  expect(seen).toEqual([CHANGE, change, { type: "overflow" }]);
  expect(await files.exists(change)).toBe(true);
  expect(service.received[0]?.path).toMatch(/\/files\/watch\?path=d%20e&recursive=true&autoResume=false$/);
  expect(service.received[1]?.path).toMatch(/\?path=\/d\/%FF$/);
});

test("ending the iteration closes the connection", async () => {
  let closed: () => void = () => undefined;
  const isClosed = new Promise<void>((resolve) => (closed = resolve));
  await using service = await Service.start(idle(closed));
  for await (const event of watchOf(service)) {
    expect(event).toEqual(CHANGE);
    break;
  }
  await isClosed;
});

test("closing a watch ends a read in flight", async () => {
  await using service = await Service.start(idle(() => undefined));
  const watch = watchOf(service);
  expect((await watch.next()).value).toEqual(CHANGE);
  const reading = watch.next();
  watch.close();
  expect(await reading).toEqual(OVER);
  expect(await watch.next()).toEqual(OVER);
});

test("an aborted watch throws the reason", async () => {
  await using service = await Service.start(idle(() => undefined));
  const controller = new AbortController();
  const watch = service.client().sandboxes.connect(VIEW.id).files.watch("d", { signal: controller.signal });
  await watch.next();
  const reading = watch.next();
  controller.abort(new Error("enough"));
  await expect(reading).rejects.toThrow("enough");
  expect(await watch.next()).toEqual(OVER);
});

test.each([
  ["NETWORK_ERROR", ""],
  ["INTERNAL_ERROR", 'event: error\ndata: {"code":"INTERNAL_ERROR","message":"m","details":{}}\n\n'],
  ["UNKNOWN", "event: error\ndata: ?\n\n"],
  ["UNKNOWN", "event: change\ndata: {}\n\n"],
  ["UNKNOWN", "event: change\ndata: [\n\n"],
])("a watch that fails is an error and does not begin again: %s %s", async (code, text) => {
  await using service = await Service.start([events(READY + CREATED + text, code !== "NETWORK_ERROR")]);
  const sandbox = service.client().sandboxes.connect(VIEW.id);
  const errors: SandboxdError[] = [];
  sandbox.on("failed", ({ error }) => errors.push(error));
  const watch = sandbox.files.watch("d");
  expect((await watch.next()).value).toEqual(CHANGE);
  await expect(watch.next()).rejects.toMatchObject({ code });
  expect(errors).toHaveLength(1);
  expect(await watch.next()).toEqual(OVER);
  expect(service.received).toHaveLength(1);
});

test.each([
  ["FILE_NOT_FOUND", failure(404, "FILE_NOT_FOUND")],
  ["NETWORK_ERROR", events("")],
  ["UNKNOWN", events(DONE)],
])("a watch that does not begin is an error: %s", async (code, responder) => {
  await using service = await Service.start([responder]);
  const watch = watchOf(service);
  await expect(watch.start()).rejects.toMatchObject({ code });
  expect(await watch.next()).toEqual(OVER);
});
