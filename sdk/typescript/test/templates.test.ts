/** Templates: builds, their logs, and what an aborted build leaves. */

import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BuildFailed, TemplateNotFound } from "sandboxd";
import type { BuildOptions, BuildOutput, Sandboxd } from "sandboxd";
import { afterEach, expect, test, vi } from "vitest";
import { platform as browser } from "../src/platform/browser.js";
import { platform } from "../src/platform/node.js";
import { events, failure, hangUp, json, Service, TEMPLATE } from "./service.js";
import type { Responder } from "./service.js";

const PATH = `/v1/templates/${TEMPLATE.id}`;
const QUEUED = json(201, { ...TEMPLATE, state: "queued" });
const CONTEXT = { id: "ctx_00000000000000000001", sizeBytes: 2048, expiresAt: "2026-01-01T01:00:00.000Z" };
const STEP = { number: 1, total: 1, line: 2, text: "RUN true", cached: false };
const CANCELLED = { ...TEMPLATE, state: "cancelled", error: { message: "the build was cancelled" } };
const WARNING = "sandboxd: cancelling the build of a cancelled call failed:";

afterEach(() => {
  vi.restoreAllMocks();
});

function event(name: string, data: unknown, id: string | number): string {
  return `id: ${id}\nevent: ${name}\ndata: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`;
}

function done(template: object = TEMPLATE): string {
  return event("done", template, "end");
}

async function collected<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

async function receives(service: Service, count: number): Promise<void> {
  await vi.waitFor(() => {
    expect(service.received).toHaveLength(count);
  }, 5000);
}

function context(files: Record<string, string>): string {
  const directory = mkdtempSync(join(tmpdir(), "sandboxd-templates-"));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(directory, name), text);
  return directory;
}

/** A stream that sends a text and then nothing. */
function stuck(text = ""): Responder {
  return (_, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" }).write(`: begins\n\n${text}`);
  };
}

/** Aborts a build once the service has received `count` requests. Returns once the call has thrown the reason. */
async function abortBuild(service: Service, client: Sandboxd, count: number, options: BuildOptions = {}): Promise<void> {
  const controller = new AbortController();
  const reason = new Error("mine");
  const built = client.templates.build("web", { dockerfile: "FROM a", ...options, signal: controller.signal });
  const rejected = expect(built).rejects.toBe(reason);
  await receives(service, count);
  controller.abort(reason);
  await rejected;
}

test("a build uploads its directory and follows the log to the template", async () => {
  const log = event("step", STEP, 1) + event("stdout", "one", 2) + event("note", "ready", 3) + event("later", "?", 4) + done();
  await using service = await Service.start([json(201, CONTEXT), QUEUED, events(log)]);
  const directory = context({ Dockerfile: "FROM a", file: "content", "file.log": "log", ".dockerignore": "*.log\n" });
  const seen: BuildOutput[] = [];
  const options = { metadata: { a: "1" }, cpu: 4 as const, egress: { default: "deny" as const }, isolation: "gvisor" as const };
  const template = await service.client().templates.build("web", { context: directory, onLog: (output) => seen.push(output), ...options });
  expect(template).toEqual(TEMPLATE);
  expect(seen).toEqual([
    { type: "step", step: STEP },
    { type: "stdout", line: "one" },
    { type: "note", text: "ready" },
    { type: "done", template: TEMPLATE },
  ]);
  const [upload, build, logs] = service.received;
  expect(upload).toMatchObject({ method: "POST", path: "/v1/templates/contexts" });
  expect(upload?.headers).toMatchObject({ "content-type": "application/x-tar", "transfer-encoding": "chunked" });
  expect(upload?.body).toContain("content");
  expect(upload?.body).not.toContain("file.log");
  expect(build).toMatchObject({ method: "POST", path: "/v1/templates" });
  const { cpu, egress, ...rest } = options;
  expect(JSON.parse(build?.body ?? "")).toEqual({ name: "web", context: CONTEXT.id, resources: { cpu }, network: { egress }, ...rest });
  expect(build?.headers["idempotency-key"]).toMatch(/^key_/);
  expect(logs).toMatchObject({ method: "GET", path: `${PATH}/logs` });
  expect(logs?.headers.accept).toBe("text/event-stream");
});

test("a text of a Dockerfile needs no upload, and an uploaded context no second one", async () => {
  await using service = await Service.start([QUEUED, json(201, CONTEXT), QUEUED]);
  const { templates } = service.client();
  expect((await templates.start("web", { dockerfile: "FROM a", idempotencyKey: "mine" })).state).toBe("queued");
  const uploaded = await templates.uploadContext(new Blob(["archive"]));
  expect(uploaded).toEqual(CONTEXT);
  await templates.start("web", { context: uploaded });
  expect(service.received.map(({ path }) => path)).toEqual(["/v1/templates", "/v1/templates/contexts", "/v1/templates"]);
  expect(service.received[0]?.headers["idempotency-key"]).toBe("mine");
  expect(service.received.map(({ body }) => body)).toEqual([
    JSON.stringify({ name: "web", dockerfile: "FROM a" }),
    "archive",
    JSON.stringify({ name: "web", context: CONTEXT.id }),
  ]);
});

test("an upload whose response is lost is repeated", async () => {
  await using service = await Service.start([hangUp, json(201, CONTEXT)]);
  await service.client().templates.uploadContext(context({ a: "b" }));
  expect(service.received[1]?.body).toBe(service.received[0]?.body);
});

test("a directory that cannot be packed is an error of this machine", async () => {
  await using service = await Service.start([]);
  const { templates } = service.client({ retries: 0 });
  for (const directory of ["/no/directory", context({ ".dockerignore": "ok\n[" })]) {
    await expect(templates.build("web", { context: directory })).rejects.toMatchObject({ code: "LOCAL_FILE" });
  }
});

test("a browser has archives, but no directories", async () => {
  vi.spyOn(platform, "directories", "get").mockReturnValue(browser.directories);
  await using service = await Service.start([json(201, CONTEXT)]);
  const { templates } = service.client();
  await expect(templates.build("web", { context: "." })).rejects.toMatchObject({ code: "CLIENT_CONFIGURATION" });
  expect(await templates.uploadContext(new Uint8Array(2))).toEqual(CONTEXT);
});

test.each([
  ["failed", "line 2: the command exited with code 1"],
  ["cancelled", "the build was cancelled"],
] as const)("a build that is %s is an error with the template", async (state, message) => {
  const template = { ...TEMPLATE, state, error: { message, line: 2 } };
  await using service = await Service.start([QUEUED, events(done(template))]);
  const error: unknown = await service.client().templates.build("web").catch((caught: unknown) => caught);
  expect(error).toBeInstanceOf(BuildFailed);
  const details = { templateId: TEMPLATE.id, state, line: 2 };
  expect(error).toMatchObject({ code: "BUILD_FAILED", message: `template web:3: ${message}`, template, details, retryable: false });
  expect(service.received).toHaveLength(2);
});

test("a log continues after its last event when its connection is lost", async () => {
  const stopping = 'event: error\nid: 2\ndata: {"code":"RESOURCE_EXHAUSTED","message":"stopping","details":{}}\n\n';
  const parts = [event("stdout", "one", 1) + "event: stdout\nda", event("stderr", "two", 2) + stopping, event("stdout", "three", 3)];
  await using service = await Service.start([...parts.map((part) => events(part, false)), failure(500, "INTERNAL_ERROR"), events(done())]);
  const log = service.client().templates.logs(TEMPLATE, { after: "0" });
  expect((await collected(log)).map((output) => ("line" in output ? output.line : output.type))).toEqual(["one", "two", "three", "done"]);
  expect(service.received.map(({ headers }) => headers["last-event-id"])).toEqual(["0", "1", "2", "3", "3"]);
  expect(log.lastEventId).toBe("end");
  expect(await collected(service.client().templates.logs(TEMPLATE.id, { after: "end" }))).toEqual([]);
  expect(service.received).toHaveLength(5);
});

test.each([
  ["TEMPLATE_NOT_FOUND", failure(404, "TEMPLATE_NOT_FOUND")],
  ["UNAUTHORIZED", events(event("error", { code: "UNAUTHORIZED", message: "revoked" }, 1))],
  ["UNKNOWN", events(event("error", "?", 1))],
  ["UNKNOWN", events(event("step", "?", 1))],
  ["UNKNOWN", events(event("done", "?", "end"))],
])("a log ends with an error that does not pass: %s", async (code, responder) => {
  await using service = await Service.start([responder]);
  const log = service.client().templates.logs(TEMPLATE.id);
  await expect(log.next()).rejects.toMatchObject({ code });
  expect(await log.next()).toEqual({ done: true, value: undefined });
});

test("ending the iteration of a log closes its connection and does not cancel the build", async () => {
  let closed: () => void = () => undefined;
  const isClosed = new Promise<void>((resolve) => (closed = resolve));
  await using service = await Service.start((request, response) => {
    response.once("close", closed);
    return stuck(event("stdout", "one", 1))(request, response);
  });
  for await (const output of service.client().templates.logs(TEMPLATE.id)) {
    expect(output).toEqual({ type: "stdout", line: "one" });
    break;
  }
  await isClosed;
  expect(service.received).toHaveLength(1);
});

test("templates are listed by filters, cancelled and deleted", async () => {
  const second = { ...TEMPLATE, id: "tpl_00000000000000000002" };
  const page = (item: object, hasMore: boolean): Responder =>
    json(200, { data: [item], pagination: { total: 2, limit: 1, offset: 0, hasMore } });
  const deleted = { id: TEMPLATE.id, deletedAt: "t" };
  const responders = [page(TEMPLATE, true), page(second, false), json(200, CANCELLED), json(200, deleted)];
  await using service = await Service.start([...responders, failure(404, "TEMPLATE_NOT_FOUND")]);
  const { templates } = service.client();
  const filters = { name: "a b", state: "ready" as const, metadata: { "k&": "v" }, pageSize: 1 };
  expect(await templates.list(filters).toArray()).toEqual([TEMPLATE, second]);
  expect(await templates.cancel(TEMPLATE)).toEqual(CANCELLED);
  expect(await templates.delete(TEMPLATE.id)).toEqual(deleted);
  await expect(templates.get(TEMPLATE.id)).rejects.toBeInstanceOf(TemplateNotFound);
  const query = "name=a%20b&state=ready&limit=1&offset=1&metadata.k%26=v";
  expect(service.received.slice(1).map(({ method, path }) => `${method} ${path}`)).toEqual([
    `GET /v1/templates?${query}`,
    `POST ${PATH}/cancel`,
    `DELETE ${PATH}`,
    `GET ${PATH}`,
  ]);
});

test("what is not the id of a template is refused without a request", async () => {
  await using service = await Service.start([]);
  const { templates } = service.client();
  for (const id of ["", "..", "tpl_1/../x"]) {
    const refused = { code: "INVALID_ARGUMENT", details: { argument: "templateId" } };
    for (const called of [templates.get(id), templates.delete(id), templates.cancel(id), templates.wait(id)]) {
      await expect(called).rejects.toMatchObject(refused);
    }
    expect(() => templates.logs(id)).toThrow("is not a template id");
  }
  expect(service.received).toHaveLength(0);
});

test("an aborted build is cancelled, also after the client is closed", async () => {
  await using service = await Service.start([QUEUED, stuck(event("step", STEP, 1)), json(200, CANCELLED)]);
  {
    using client = service.client();
    await abortBuild(service, client, 2);
  }
  await receives(service, 3);
  expect(service.received[2]).toMatchObject({ method: "POST", path: `${PATH}/cancel` });
});

test("a build that is aborted before its response is found by its key and cancelled", async () => {
  await using service = await Service.start([() => undefined, QUEUED, json(200, CANCELLED)]);
  await abortBuild(service, service.client(), 1);
  await receives(service, 3);
  const [build, repeated, cancel] = service.received;
  expect(repeated).toMatchObject({ method: "POST", path: "/v1/templates", body: build?.body });
  expect(repeated?.headers["idempotency-key"]).toBe(build?.headers["idempotency-key"]);
  expect(cancel).toMatchObject({ method: "POST", path: `${PATH}/cancel` });
});

test("an error of the handler cancels the build", async () => {
  const warned = vi.spyOn(console, "warn").mockReturnValue();
  await using service = await Service.start([QUEUED, stuck(event("step", STEP, 1)), failure(404, "TEMPLATE_NOT_FOUND")]);
  const error = new Error("mine");
  const onLog = (): never => {
    throw error;
  };
  await expect(service.client().templates.build("web", { onLog })).rejects.toBe(error);
  await receives(service, 3);
  await new Promise((resolve) => setTimeout(resolve, 100));
  // The template was deleted meanwhile.
  expect(warned).not.toHaveBeenCalled();
});

test("a clean-up that fails is logged", async () => {
  const warned = vi.spyOn(console, "warn").mockReturnValue();
  await using service = await Service.start([QUEUED, stuck(), failure(403, "FORBIDDEN")]);
  await abortBuild(service, service.client(), 2);
  await vi.waitFor(() => {
    expect(warned).toHaveBeenCalledExactlyOnceWith(WARNING, expect.objectContaining({ code: "FORBIDDEN" }));
  });
});

test.each([
  ["with a key of the caller", 2, { idempotencyKey: "mine" }, [QUEUED, stuck()]],
  ["during its upload", 1, { context: import.meta.dirname }, [() => undefined]],
])("a build that is aborted %s is left alone", async (_, count, options, responders) => {
  await using service = await Service.start(responders);
  await abortBuild(service, service.client(), count, options);
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(service.received).toHaveLength(count);
});

test("a wait that is aborted does not cancel the build", async () => {
  await using service = await Service.start([stuck()]);
  const controller = new AbortController();
  const waited = service.client().templates.wait(TEMPLATE.id, { signal: controller.signal });
  const rejected = expect(waited).rejects.toThrow("mine");
  await receives(service, 1);
  controller.abort(new Error("mine"));
  await rejected;
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(service.received).toHaveLength(1);
});
