/** Every operation of the OpenAPI document has a method, and every parameter and field of a request an option. */

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import type { Execution, Sandbox, Sandboxd } from "sandboxd";
import { events, json, Service, SNAPSHOT, TEMPLATE, VIEW } from "./service.js";
import type { Received } from "./service.js";

interface Schema {
  readonly $ref?: string;
  readonly oneOf?: Schema[];
  readonly items?: Schema;
  readonly properties?: Record<string, Schema>;
}

interface Operation {
  readonly operationId: string;
  readonly parameters?: { readonly name: string; readonly in: string }[];
  readonly requestBody?: { readonly content: Record<string, { readonly schema: Schema }> };
}

interface OpenApi {
  readonly paths: Record<string, Record<string, Operation>>;
  readonly components: { readonly schemas: Record<string, Schema> };
}

const document = JSON.parse(readFileSync(new URL("../../../docs/openapi.json", import.meta.url), "utf8")) as OpenApi;
const METHODS = ["get", "put", "post", "patch", "delete"];
const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
  METHODS.flatMap((method) => {
    const operation = methods[method];
    return operation === undefined ? [] : [{ ...operation, path, method }];
  }),
);

interface Target {
  readonly client: Sandboxd;
  readonly sandbox: Sandbox;
  readonly execution: Execution;
}

const ID = "ev_0000000000000001";
const RUN = { runId: "run_1" };
const FILTERS = { kinds: ["exec.*"], run: "r", since: "2026-01-01T00:00:00Z", until: new Date(0) };
const CREATE = {
  ...{ cpu: 2 as const, memoryMb: 1, diskMb: 1, env: {}, workdir: "/", timeoutMs: 1, idleTimeoutMs: 0, name: "a", metadata: {} },
  ...{ onTimeout: "pause" as const, autoResume: false, isolation: "container", cold: true },
  ...{ egress: { default: "deny", allow: [], allowNetworks: [], denyNetworks: [] }, ingress: { allowPorts: [] } },
};
const NETWORK = { default: "deny", allow: ["a"], allowNetworks: ["192.0.2.0/24"], denyNetworks: [], allowPorts: [1] };
const BUILD = {
  ...{ context: { id: "ctx_1", sizeBytes: 1, expiresAt: "t" }, dockerfile: "", dockerfilePath: "a", buildArgs: {} },
  ...{ startCommand: "", readyCommand: "", readyTimeoutMs: 1, timeoutMs: 1, noCache: true, metadata: {}, isolation: "auto" },
  ...{ cpu: 2 as const, memoryMb: 1, diskMb: 1, egress: CREATE.egress, ingress: CREATE.ingress },
};
const COMMAND = { cwd: "/", env: {}, user: "u", stdin: "", timeoutMs: 1, autoResume: false, ...RUN };
const TERMINAL = { cols: 1, rows: 1, command: "", cwd: "/", env: {}, user: "u", timeoutMs: 1, autoResume: false, ...RUN };
const FILE = { autoResume: false, ...RUN };

/** The calls of each operation, with all options. Together they must use all parameters and fields. */
const CALLS: Record<string, ((target: Target) => Promise<unknown>)[]> = {
  listEvents: [
    ({ client }) => client.events.list({ ...FILTERS, sandboxId: "sb_1", after: ID, before: ID, newestFirst: true }).page(1),
    ({ client }) => client.events.follow({ ...FILTERS, after: ID }).next(),
  ],
  health: [({ client }) => client.health()],
  listImages: [({ client }) => client.images.list().page(1), ({ client }) => client.images.get("a")],
  openapi: [({ client }) => client.openapi()],
  listSandboxes: [({ client }) => client.sandboxes.list({ state: "running", image: "a", metadata: { userId: "u" }, details: true }).page(1)],
  createSandbox: [({ client }) => client.sandboxes.create("ubuntu:24.04", CREATE)],
  terminateSandbox: [({ sandbox }) => sandbox.terminate()],
  getSandbox: [({ client }) => client.sandboxes.get(VIEW.id)],
  listSandboxEvents: [
    ({ sandbox }) => sandbox.events.list({ ...FILTERS, after: ID, before: ID, newestFirst: true }).page(1),
    ({ sandbox }) => sandbox.events.follow({ ...FILTERS, after: ID }).next(),
  ],
  postEvents: [({ sandbox }) => sandbox.events.post([{ type: "agent.thinking", data: {}, timestamp: "t", ...RUN }])],
  execute: [
    ({ sandbox }) => sandbox.execute("true", COMMAND),
    ({ sandbox }) => sandbox.start("true", { ...COMMAND, openStdin: true, readerTimeoutMs: 1 }),
    ({ sandbox }) => sandbox.stream("true", { lineEnds: true }).next(),
  ],
  runCode: [
    ({ sandbox }) => sandbox.runCode("1", { language: "python", context: "c-1", env: {}, timeoutMs: 1, autoResume: false, ...RUN }),
    ({ sandbox }) => sandbox.runCode("1", { onStdout: () => undefined }),
  ],
  listContexts: [({ sandbox }) => sandbox.contexts.list()],
  createContext: [({ sandbox }) => sandbox.contexts.create({ language: "python", cwd: "/" })],
  removeContext: [({ sandbox }) => sandbox.contexts.remove("c-1")],
  restartContext: [({ sandbox }) => sandbox.contexts.restart("c-1")],
  listExecutions: [({ sandbox }) => sandbox.executions.list().page(1)],
  cancelExecution: [({ execution }) => execution.cancel({ autoResume: false }), ({ execution }) => execution.kill({ autoResume: false })],
  getExecution: [({ execution }) => execution.refresh()],
  attachTerminal: [({ execution }) => execution.attach({ after: 1, autoResume: false })],
  getOutput: [
    ({ execution }) => execution.output({ after: "1.0" }),
    ({ execution }) => execution.follow({ after: "1.0", lineEnds: true }).next(),
  ],
  signalExecution: [({ execution }) => execution.signal("SIGINT", { autoResume: false })],
  writeStdin: [({ execution }) => execution.writeStdin("x", { close: true, autoResume: false })],
  deleteFile: [({ sandbox }) => sandbox.files.remove("a", { ...FILE, recursive: true })],
  readFile: [({ sandbox }) => sandbox.files.read("a", { ...FILE, start: 1, end: 2, ifRange: '"e"' })],
  writeFile: [({ sandbox }) => sandbox.files.write("a", "x", { ...FILE, parents: true, mode: 0o600 })],
  fileExists: [({ sandbox }) => sandbox.files.exists("a", FILE)],
  listFiles: [({ sandbox }) => sandbox.files.list("a", FILE).page(1)],
  makeDirectory: [({ sandbox }) => sandbox.files.mkdir("a", { ...FILE, recursive: true, mode: 0o700 })],
  moveFile: [({ sandbox }) => sandbox.files.move("a", "b", { ...FILE, overwrite: true })],
  statFile: [({ sandbox }) => sandbox.files.stat("a", { ...FILE, follow: true })],
  watchFiles: [({ sandbox }) => sandbox.files.watch("a", { autoResume: false, recursive: true }).next()],
  packDirectory: [({ sandbox }) => sandbox.files.pack("a", FILE)],
  unpackArchive: [({ sandbox }) => sandbox.files.unpack("a", new Uint8Array(), FILE)],
  getNetwork: [({ sandbox }) => sandbox.network.get()],
  changeNetwork: [({ sandbox }) => sandbox.network.update(NETWORK)],
  pauseSandbox: [({ sandbox }) => sandbox.pause({ hibernate: true })],
  listPorts: [({ sandbox }) => sandbox.ports.list()],
  exposePort: [({ sandbox }) => sandbox.ports.expose(1, { visibility: "public", autoResume: false })],
  closePort: [({ sandbox }) => sandbox.ports.close(1)],
  createPortToken: [({ sandbox }) => sandbox.ports.token(1, { expiresInMs: 1 })],
  rollbackSandbox: [({ sandbox }) => sandbox.rollback(SNAPSHOT.id)],
  takeSnapshot: [({ sandbox }) => sandbox.snapshot({ name: "n", metadata: {}, memory: true })],
  forkSandbox: [({ sandbox }) => sandbox.fork({ count: 1, env: {}, name: "a", metadata: {}, memory: true })],
  listSnapshots: [({ client }) => client.snapshots.list({ sandboxId: "sb_1", name: "n", metadata: { userId: "u" } }).page(1)],
  getSnapshot: [({ client }) => client.snapshots.get(SNAPSHOT.id)],
  deleteSnapshot: [({ client }) => client.snapshots.delete(SNAPSHOT.id)],
  listTemplates: [({ client }) => client.templates.list({ name: "n", state: "ready", metadata: { userId: "u" } }).page(1)],
  createTemplate: [({ client }) => client.templates.start("n", BUILD)],
  uploadBuildContext: [({ client }) => client.templates.uploadContext(new Uint8Array())],
  getTemplate: [({ client }) => client.templates.get(TEMPLATE.id)],
  deleteTemplate: [({ client }) => client.templates.delete(TEMPLATE.id)],
  cancelTemplate: [({ client }) => client.templates.cancel(TEMPLATE.id)],
  followTemplateLogs: [({ client }) => client.templates.logs(TEMPLATE.id, { after: "1" }).next()],
  resumeSandbox: [({ sandbox }) => sandbox.resume({ cold: true, adopt: true })],
  getMetrics: [({ sandbox }) => sandbox.metrics({ start: "2026-01-01T00:00:00Z", end: new Date(0) })],
  setTimeout: [({ sandbox }) => sandbox.setTimeout(0)],
  openTerminal: [({ sandbox }) => sandbox.terminal(TERMINAL)],
  getInfo: [({ client }) => client.info()],
  getUsage: [({ client }) => client.usage()],
};

/**
 * Parameters that are not sent: the header `Last-Event-ID` has the value of `lastEventId`, and output is text here, whose bytes a file
 * would have.
 */
const NOT_SENT = ["lastEventId", "encoding"];

async function requestsOf(operation: string): Promise<Received[]> {
  const answer = { ...VIEW, executionId: "ex_1", data: [], deleted: 0, exists: true, recorded: 1 };
  await using service = await Service.start((request, response) => {
    const isStream = request.headers.accept === "text/event-stream";
    const data = { id: ID, executionId: "ex_1", exitCode: 0 };
    const text = `id: ev_0000000000000002\nevent: done\ndata: ${JSON.stringify(data)}\n\n`;
    return (isStream ? events(text) : json(200, answer))(request, response);
  });
  const client = service.client({ retries: 0, timeoutMs: 500 });
  const sandbox = client.sandboxes.connect(VIEW.id);
  const execution = sandbox.executions.handle("ex_1");
  for (const call of CALLS[operation] ?? []) await call({ client, sandbox, execution }).catch(() => undefined);
  return service.received;
}

/** The names of the fields of a request, also below. */
function fieldsOf(schema: Schema | undefined): string[] {
  if (schema === undefined) return [];
  if (schema.$ref !== undefined) return fieldsOf(document.components.schemas[schema.$ref.split("/").at(-1) ?? ""]);
  const properties = Object.entries(schema.properties ?? {});
  const below = properties.flatMap(([name, property]) => [name, ...fieldsOf(property)]);
  return [...(schema.oneOf ?? []).flatMap(fieldsOf), ...fieldsOf(schema.items), ...below];
}

function namesIn(value: unknown): string[] {
  if (typeof value !== "object" || value === null) return [];
  const names = Array.isArray(value) ? [] : Object.keys(value);
  return [...names, ...Object.values(value).flatMap(namesIn)];
}

test("the table has exactly the operations of the document", () => {
  expect(Object.keys(CALLS).sort()).toEqual(operations.map(({ operationId }) => operationId).sort());
});

test.each(operations.map((operation) => [operation.operationId, operation] as const))("%s", async (id, operation) => {
  const pattern = new RegExp(`^${operation.path.replace(/\{\w+\}/g, "[^/?]+")}(\\?|$)`);
  const requests = (await requestsOf(id)).filter(({ method, path }) => method.toLowerCase() === operation.method && pattern.test(path));
  expect(requests.length).toBeGreaterThan(0);
  const queries = new Set(requests.flatMap(({ path }) => [...new URL(path, "http://x").searchParams.keys()]));
  const headers = new Set(requests.flatMap((request) => Object.keys(request.headers)));
  for (const parameter of operation.parameters ?? []) {
    if (parameter.in === "query" && !NOT_SENT.includes(parameter.name)) expect([...queries]).toContain(parameter.name);
    if (parameter.in === "header") expect([...headers]).toContain(parameter.name.toLowerCase());
  }
  const body = operation.requestBody?.content["application/json"]?.schema;
  const sent = requests.flatMap(({ body: text }) => (/^[{[]/.test(text) ? namesIn(JSON.parse(text)) : []));
  for (const field of fieldsOf(body)) expect(sent).toContain(field);
});
