/** A misspelled option is an error, because it would have no effect; and fields that the service ignores are logged. */

import { InvalidArgument, Sandboxd } from "sandboxd";
import type { ClientOptions, Execution, Sandbox } from "sandboxd";
import { afterEach, expect, test, vi } from "vitest";
import { nearestName } from "../src/option-names.js";
import { json, Service, SNAPSHOT, TEMPLATE, VIEW } from "./service.js";

afterEach(() => {
  vi.restoreAllMocks();
});

interface Target {
  readonly client: Sandboxd;
  readonly sandbox: Sandbox;
  readonly execution: Execution;
}

/** Every method with options; `o` has a misspelled one. */
const CALLS: Record<string, (target: Target, o: never) => unknown> = {
  "Execution.attach": ({ execution }, o) => execution.attach(o),
  "Execution.cancel": ({ execution }, o) => execution.cancel(o),
  "Execution.follow": ({ execution }, o) => execution.follow(o),
  "Execution.kill": ({ execution }, o) => execution.kill(o),
  "Execution.output": ({ execution }, o) => execution.output(o),
  "Execution.refresh": ({ execution }, o) => execution.refresh(o),
  "Execution.signal": ({ execution }, o) => execution.signal("SIGINT", o),
  "Execution.wait": ({ execution }, o) => execution.wait(o),
  "Execution.writeStdin": ({ execution }, o) => execution.writeStdin("", o),
  "Sandbox.execute": ({ sandbox }, o) => sandbox.execute("true", o),
  "Sandbox.fork": ({ sandbox }, o) => sandbox.fork(o),
  "Sandbox.metrics": ({ sandbox }, o) => sandbox.metrics(o),
  "Sandbox.pause": ({ sandbox }, o) => sandbox.pause(o),
  "Sandbox.refresh": ({ sandbox }, o) => sandbox.refresh(o),
  "Sandbox.resume": ({ sandbox }, o) => sandbox.resume(o),
  "Sandbox.rollback": ({ sandbox }, o) => sandbox.rollback(SNAPSHOT.id, o),
  "Sandbox.runCode": ({ sandbox }, o) => sandbox.runCode("1", o),
  "Sandbox.setTimeout": ({ sandbox }, o) => sandbox.setTimeout(1, o),
  "Sandbox.snapshot": ({ sandbox }, o) => sandbox.snapshot(o),
  "Sandbox.start": ({ sandbox }, o) => sandbox.start("true", o),
  "Sandbox.stream": ({ sandbox }, o) => sandbox.stream("true", o),
  "Sandbox.terminal": ({ sandbox }, o) => sandbox.terminal(o),
  "Sandbox.terminate": ({ sandbox }, o) => sandbox.terminate(o),
  "Sandboxd.health": ({ client }, o) => client.health(o),
  "Sandboxd.info": ({ client }, o) => client.info(o),
  "Sandboxd.openapi": ({ client }, o) => client.openapi(o),
  "Sandboxd.usage": ({ client }, o) => client.usage(o),
  "contexts.create": ({ sandbox }, o) => sandbox.contexts.create(o),
  "contexts.list": ({ sandbox }, o) => sandbox.contexts.list(o),
  "contexts.remove": ({ sandbox }, o) => sandbox.contexts.remove("c", o),
  "contexts.restart": ({ sandbox }, o) => sandbox.contexts.restart("c", o),
  "events.follow": ({ sandbox }, o) => sandbox.events.follow(o),
  "events.list": ({ sandbox }, o) => sandbox.events.list(o),
  "events.post": ({ sandbox }, o) => sandbox.events.post([], o),
  "events.stream": ({ sandbox }, o) => sandbox.events.stream(o),
  "executions.get": ({ sandbox }, o) => sandbox.executions.get("ex_1", o),
  "executions.list": ({ sandbox }, o) => sandbox.executions.list(o),
  "files.downloadDirectory": ({ sandbox }, o) => sandbox.files.downloadDirectory("d", "/tmp/none", o),
  "files.exists": ({ sandbox }, o) => sandbox.files.exists("f", o),
  "files.list": ({ sandbox }, o) => sandbox.files.list("d", o),
  "files.mkdir": ({ sandbox }, o) => sandbox.files.mkdir("d", o),
  "files.move": ({ sandbox }, o) => sandbox.files.move("a", "b", o),
  "files.pack": ({ sandbox }, o) => sandbox.files.pack("d", o),
  "files.read": ({ sandbox }, o) => sandbox.files.read("f", o),
  "files.readText": ({ sandbox }, o) => sandbox.files.readText("f", o),
  "files.remove": ({ sandbox }, o) => sandbox.files.remove("f", o),
  "files.stat": ({ sandbox }, o) => sandbox.files.stat("f", o),
  "files.stream": ({ sandbox }, o) => sandbox.files.stream("f", o),
  "files.unpack": ({ sandbox }, o) => sandbox.files.unpack("d", "tar", o),
  "files.uploadDirectory": ({ sandbox }, o) => sandbox.files.uploadDirectory("/none", "d", o),
  "files.watch": ({ sandbox }, o) => sandbox.files.watch("d", o),
  "files.write": ({ sandbox }, o) => sandbox.files.write("f", "", o),
  "images.get": ({ client }, o) => client.images.get("i", o),
  "images.list": ({ client }, o) => client.images.list(o),
  "network.get": ({ sandbox }, o) => sandbox.network.get(o),
  "network.update": ({ sandbox }, o) => sandbox.network.update(o),
  "ports.close": ({ sandbox }, o) => sandbox.ports.close(80, o),
  "ports.expose": ({ sandbox }, o) => sandbox.ports.expose(80, o),
  "ports.list": ({ sandbox }, o) => sandbox.ports.list(o),
  "ports.token": ({ sandbox }, o) => sandbox.ports.token(80, o),
  "sandboxes.create": ({ client }, o) => client.sandboxes.create("i", o),
  "sandboxes.get": ({ client }, o) => client.sandboxes.get(VIEW.id, o),
  "sandboxes.list": ({ client }, o) => client.sandboxes.list(o),
  "snapshots.delete": ({ client }, o) => client.snapshots.delete(SNAPSHOT.id, o),
  "snapshots.get": ({ client }, o) => client.snapshots.get(SNAPSHOT.id, o),
  "snapshots.list": ({ client }, o) => client.snapshots.list(o),
  "templates.build": ({ client }, o) => client.templates.build("t", o),
  "templates.cancel": ({ client }, o) => client.templates.cancel(TEMPLATE.id, o),
  "templates.delete": ({ client }, o) => client.templates.delete(TEMPLATE.id, o),
  "templates.get": ({ client }, o) => client.templates.get(TEMPLATE.id, o),
  "templates.list": ({ client }, o) => client.templates.list(o),
  "templates.logs": ({ client }, o) => client.templates.logs(TEMPLATE.id, o),
  "templates.start": ({ client }, o) => client.templates.start("t", o),
  "templates.uploadContext": ({ client }, o) => client.templates.uploadContext(new Uint8Array(), o),
  "templates.wait": ({ client }, o) => client.templates.wait(TEMPLATE.id, o),
};

/** The methods of an object whose code has a parameter with this name. */
function withParameter(object: object, name: string): string[] {
  const prototype = Object.getPrototypeOf(object) as Record<string, unknown>;
  const methods = Object.getOwnPropertyNames(prototype).filter((method) => {
    const descriptor = Object.getOwnPropertyDescriptor(prototype, method);
    return method !== "constructor" && typeof descriptor?.value === "function";
  });
  return methods.filter((method) => new RegExp(`^[^{]*\\b${name}\\b`).test(String(prototype[method])));
}

async function targetOf(service: Service): Promise<Target> {
  const client = service.client({ retries: 0 });
  const sandbox = client.sandboxes.connect(VIEW.id);
  return Promise.resolve({ client, sandbox, execution: sandbox.executions.handle("ex_1") });
}

test("every method with options is called", async () => {
  await using service = await Service.start([]);
  const { client, sandbox, execution } = await targetOf(service);
  const objects = { Sandbox: sandbox, Sandboxd: client, Execution: execution };
  const { files, ports, network, contexts, events, executions } = sandbox;
  const parts = { files, ports, network, contexts, events, executions };
  const { sandboxes, images, snapshots, templates } = client;
  const all = Object.entries({ ...objects, ...parts, sandboxes, images, snapshots, templates });
  const found = all.flatMap(([name, object]) =>
    ["options", "change"].flatMap((parameter) => withParameter(object, parameter)).map((method) => `${name}.${method}`),
  );
  expect(Object.keys(CALLS).sort()).toEqual([...new Set(found)].sort());
});

test.each(Object.keys(CALLS))("%s refuses an unknown option without a request", async (name) => {
  await using service = await Service.start([]);
  const target = await targetOf(service);
  // A fork needs its count, which other methods do not know.
  const call = Promise.resolve().then(() => CALLS[name]?.(target, { count: 1, sginal: null } as never));
  await expect(call).rejects.toBeInstanceOf(InvalidArgument);
  await expect(call).rejects.toThrow(/^unknown option '(count|sginal)'; /);
  expect(service.received).toHaveLength(0);
});

test.each<[object, string]>([
  [{ egres: { default: "deny" } }, "unknown option 'egres'; did you mean 'egress'?"],
  [{ Egress: {} }, "unknown option 'Egress'; did you mean 'egress'?"],
  [{ egress: { defualt: "deny" } }, "unknown option 'egress.defualt'; did you mean 'egress.default'?"],
  [{ egress: { alow: [] } }, "unknown option 'egress.alow'; did you mean 'egress.allow'?"],
  [{ ingress: { allowPort: [] } }, "unknown option 'ingress.allowPort'; did you mean 'ingress.allowPorts'?"],
  [{ memmory: "4g" }, "unknown option 'memmory'; did you mean 'memory'?"],
  [{ network: { egress: { default: "deny" } } }, "unknown option 'network'; the options are cpu, memoryMb"],
])("a create with %j", async (options, message) => {
  await using service = await Service.start([]);
  const created = service.client().sandboxes.create("i", options);
  await expect(created).rejects.toThrow(message);
  await expect(created).rejects.toMatchObject({ code: "INVALID_ARGUMENT", details: { argument: message.split("'")[1] } });
  await expect(service.client().templates.start("t", { ...options, dockerfile: "FROM i" })).rejects.toThrow(message);
  expect(service.received).toHaveLength(0);
});

test("the settings of a client are checked, too", () => {
  const options = { url: "http://127.0.0.1:1", apikey: "k" } as ClientOptions;
  expect(() => new Sandboxd(options)).toThrow("unknown option 'apikey'; did you mean 'apiKey'?");
});

test("the nearest name is at most two edits away", () => {
  const known = ["default", "allow", "allowNetworks"];
  const found = ["defualt", "DEFAULT", "alow", "allows", "allowed", "denied", "", "allownetworsk", "x".repeat(100_000)].map((name) => nearestName(name, known));
  expect(found).toEqual(["default", "default", "allow", "allow", "allow", undefined, undefined, "allowNetworks", undefined]);
});

test("fields that the service ignored are logged once", async () => {
  const warned = vi.spyOn(console, "warn").mockReturnValue();
  const ignored = json(201, VIEW, { "Sandboxd-Ignored-Fields": "colour, network.speed" });
  await using service = await Service.start([ignored, ignored, json(200, VIEW, { "sandboxd-ignored-fields": "other" }), json(200, VIEW)]);
  const client = service.client();
  for (let count = 0; count < 2; count++) await client.sandboxes.create("i");
  const sandbox = client.sandboxes.connect(VIEW.id);
  await sandbox.setTimeout(1);
  await sandbox.setTimeout(1);
  expect(warned.mock.calls).toEqual([
    ["sandboxd: the service ignored unknown fields of POST /v1/sandboxes: colour, network.speed"],
    [`sandboxd: the service ignored unknown fields of PUT /v1/sandboxes/${VIEW.id}/timeout: other`],
  ]);
});
