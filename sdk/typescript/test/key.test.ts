/** The API key appears in nothing that programs log, store or report: no public object and no error shows it. */

import { format, inspect } from "node:util";
import * as sandboxd from "sandboxd";
import { CommandFailed, Run, Sandboxd, SandboxdError, SERVICE_ERROR_CODES, Terminal } from "sandboxd";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { events, failure, json, RESULT, Service, TEMPLATE, VIEW } from "./service.js";

const KEY = "sbx_0123456789abcdefghijklmnopqrstuv";

/** All ways in which a value becomes text. */
function textsOf(value: unknown): Record<string, string> {
  const all = { depth: Infinity, maxArrayLength: Infinity, maxStringLength: Infinity, showHidden: true, getters: true } as const;
  return {
    "JSON.stringify": JSON.stringify(value),
    "JSON.stringify of a property": JSON.stringify({ value }),
    "String": String(value),
    "util.inspect": inspect(value),
    "util.inspect of all": inspect(value, all),
    "util.inspect without the custom one": inspect(value, { ...all, customInspect: false }),
    "util.format": format("%s %o %O %j", value, value, value, value),
    "structuredClone": inspect(cloned(value), all),
    "stack": value instanceof Error ? String(value.stack) : "",
  };
}

function cloned(value: unknown): unknown {
  try {
    return structuredClone(value);
  } catch (error) {
    return error;
  }
}

function expectNoKey(value: unknown): void {
  for (const [way, text] of Object.entries(textsOf(value))) expect([way, text.includes(KEY)]).toEqual([way, false]);
}

let service: Service;
let client: Sandboxd;
let objects: Record<string, object>;

beforeAll(async () => {
  service = await Service.start((request, response) => {
    if (request.headers.accept === "text/event-stream") return events("")(request, response);
    return json(200, VIEW)(request, response);
  });
  client = service.client({ apiKey: KEY });
  const run = new Run("run_1");
  const sandbox = await client.sandboxes.create("ubuntu:24.04", { run, on: { failed: () => undefined } });
  run.toService(sandbox);
  const execution = sandbox.executions.handle("ex_1");
  objects = {
    BuildLog: client.templates.logs(TEMPLATE.id),
    CodeContexts: sandbox.contexts,
    EventStream: client.events.follow(),
    Events: sandbox.events,
    Execution: execution,
    Executions: sandbox.executions,
    FileStream: await sandbox.files.stream("f"),
    FileWatch: sandbox.files.watch("d"),
    Files: sandbox.files,
    FollowedOutput: execution.follow(),
    Images: client.images,
    ListedEvents: client.events.list(),
    Network: sandbox.network,
    OutputStream: await sandbox.stream("true").start(),
    PagedList: client.sandboxes.list({ state: "running" }),
    Ports: sandbox.ports,
    Run: run,
    Sandbox: sandbox,
    Sandboxd: client,
    Sandboxes: client.sandboxes,
    Snapshots: client.snapshots,
    Templates: client.templates,
    Terminal: new Terminal(execution, {}),
  };
});

afterAll(async () => {
  await service[Symbol.asyncDispose]();
});

const classes = Object.entries(sandboxd).filter(([, value]) => typeof value === "function" && value !== sandboxd.Described);
const isError = (value: unknown): boolean => value === SandboxdError || (value as () => void).prototype instanceof SandboxdError;
const names = classes.filter(([, value]) => !isError(value)).map(([name]) => name);
const errorNames = classes.filter(([, value]) => isError(value)).map(([name]) => name);

test("every public class has an object here", () => {
  expect(Object.keys(objects).sort()).toEqual([...names].sort());
  for (const [name, object] of Object.entries(objects)) expect(object.constructor.name).toBe(name);
});

test.each(names)("%s does not show the key", (name) => {
  const object = objects[name];
  expectNoKey(object);
  // The key is there, so that the test would find it.
  expect(inspect(object)).toContain(name);
});

test("objects show what they are", () => {
  const { Sandbox: sandbox, Sandboxd: shown, Execution: execution, Files: files } = objects;
  expect(JSON.parse(JSON.stringify(sandbox))).toEqual({ id: VIEW.id, state: "running", image: VIEW.image });
  const inspected = (value: unknown): string => inspect(value).replace(/\s+/g, " ");
  expect(inspected(sandbox)).toBe(`Sandbox { id: '${VIEW.id}', state: 'running', image: '${VIEW.image}' }`);
  expect((sandbox as sandboxd.Sandbox).toString()).toBe(`Sandbox {"id":"${VIEW.id}","state":"running","image":"${VIEW.image}"}`);
  expect(JSON.stringify(shown)).toBe(JSON.stringify({ url: service.url }));
  expect(inspected({ execution, files })).toBe(
    `{ execution: Execution { id: 'ex_1', sandbox: '${VIEW.id}' }, files: Files { sandbox: '${VIEW.id}' } }`,
  );
});

/** The errors of calls to a service that repeats the request, and of a connection that fails with the request in its error. */
async function errors(): Promise<Record<string, unknown>> {
  const found: Record<string, unknown> = {};
  const add = async (call: () => unknown): Promise<void> => {
    const error: unknown = await Promise.resolve().then(call).catch((caught: unknown) => caught);
    found[(error as Error).constructor.name] = error;
  };
  for (const code of SERVICE_ERROR_CODES) {
    const headers = { authorization: `Bearer ${KEY}` };
    const body = JSON.stringify({ error: { code, message: `for ${KEY}`, details: { headers } } });
    const fetch = (): Promise<Response> => Promise.resolve(new Response(body, { status: 400 }));
    await add(() => new Sandboxd({ url: service.url, apiKey: KEY, retries: 0, fetch }).health());
  }
  const fetch = (_: string, init: RequestInit): Promise<Response> => {
    throw Object.assign(new TypeError(`failed for ${KEY}`), { request: init, cause: new Error("below", { cause: KEY }) });
  };
  await add(() => new Sandboxd({ url: service.url, apiKey: KEY, retries: 0, fetch }).health());
  const echo = (): Promise<Response> => Promise.resolve(new Response(`${KEY} was sent`));
  await add(() => new Sandboxd({ url: service.url, apiKey: KEY, retries: 0, fetch: echo }).health());
  await add(() => new Sandboxd({ url: `https://user:${KEY}@127.0.0.1`, apiKey: KEY }));
  await add(() => client.sandboxes.connect("a/b"));
  await add(() => client.templates.uploadContext("/none"));
  await add(() => {
    throw new CommandFailed("false", { ...RESULT, exitCode: 1 });
  });
  await add(() => {
    throw new sandboxd.BuildFailed(TEMPLATE);
  });
  found.SandboxdError = new SandboxdError("UNKNOWN", "m", { cause: found.NetworkError });
  return found;
}

describe("errors", () => {
  let found: Record<string, unknown>;

  beforeAll(async () => {
    found = await errors();
  });

  test("every class of errors has one here", () => {
    expect(Object.keys(found).sort()).toEqual([...errorNames].sort());
  });

  test.each(errorNames)("%s does not show the key", (name) => {
    expectNoKey(found[name]);
    expect(JSON.parse(JSON.stringify(found[name]))).toMatchObject({ message: (found[name] as Error).message });
  });

  test("the key is masked, and the rest of the message stays", () => {
    expect(found.NetworkError).toMatchObject({ message: expect.stringContaining("failed for [API key]: below") as string });
    expect(found.InvalidRequest).toMatchObject({ message: "for [API key]", details: { headers: { authorization: "Bearer [API key]" } } });
  });
});

test("a URL with a user or a query is refused without its parts that may be secret", () => {
  for (const url of [`https://user:${KEY}@host`, `https://${KEY}@host/?a`, `https://host/?key=${KEY}`, `ftp://a/b:${KEY}@host`]) {
    const error = vi.fn(() => new Sandboxd({ url, apiKey: KEY }));
    expect(error).toThrow("expected a URL such as");
    expectNoKey(error.mock.results[0]?.value);
  }
});

test("an error of a websocket does not show the key", async () => {
  await using refusing = await Service.start(failure(403, "FORBIDDEN", { key: KEY }));
  const execution = refusing.client({ apiKey: KEY }).sandboxes.connect(VIEW.id).executions.handle("ex_1");
  const error: unknown = await execution.attach().catch((caught: unknown) => caught);
  expect(error).toMatchObject({ code: "FORBIDDEN" });
  expectNoKey(error);
});
