/** Each operation is sent as `sdk/cases/operations.json` says: its retries and its idempotency key. */

import { readFileSync } from "node:fs";
import { Sandboxd } from "sandboxd";
import type { Execution, Sandbox } from "sandboxd";
import { expect, test } from "vitest";
import { mayRepeat } from "../src/retry.js";
import type { Fault, Safety } from "../src/retry.js";
import { SNAPSHOT, TEMPLATE, VIEW } from "./service.js";

interface Row {
  readonly operation: string;
  readonly variant?: string;
  readonly safety: Safety | "none";
  readonly idempotency_key: boolean;
  readonly variants?: Omit<Row, "operation">[];
}

interface Target {
  readonly client: Sandboxd;
  readonly sandbox: Sandbox;
  readonly execution: Execution;
}

const table = JSON.parse(readFileSync(new URL("../../cases/operations.json", import.meta.url), "utf8")) as { cases: Row[] };
const rows = table.cases
  .flatMap((row) => [row, ...(row.variants ?? []).map((variant) => ({ ...variant, operation: row.operation }))])
  .map((row) => [`${row.operation} ${row.variant ?? ""}`.trim(), row] as const);
/** Websockets, and streams that connect again by themselves, without end. */
const OTHERS = ["attachTerminal", "followTemplateLogs", "getOutput stream", "listEvents stream", "listSandboxEvents stream"];

const never = new AbortController().signal;
const USES: Record<string, (target: Target) => Promise<unknown>> = {
  cancelExecution: ({ execution }) => execution.cancel(),
  cancelTemplate: ({ client }) => client.templates.cancel(TEMPLATE.id),
  changeNetwork: ({ sandbox }) => sandbox.network.update({ default: "deny" }),
  createContext: ({ sandbox }) => sandbox.contexts.create(),
  listContexts: ({ sandbox }) => sandbox.contexts.list(),
  removeContext: ({ sandbox }) => sandbox.contexts.remove("c"),
  restartContext: ({ sandbox }) => sandbox.contexts.restart("c"),
  runCode: ({ sandbox }) => sandbox.runCode("1"),
  "runCode stream": ({ sandbox }) => sandbox.runCode("1", { onStdout: () => undefined }),
  closePort: ({ sandbox }) => sandbox.ports.close(80),
  createPortToken: ({ sandbox }) => sandbox.ports.token(80),
  createTemplate: ({ client }) => client.templates.start("t", { dockerfile: "FROM i" }),
  createSandbox: ({ client }) => client.sandboxes.create("i"),
  deleteFile: ({ sandbox }) => sandbox.files.remove("f"),
  deleteSnapshot: ({ client }) => client.snapshots.delete(SNAPSHOT.id),
  deleteTemplate: ({ client }) => client.templates.delete(TEMPLATE.id),
  execute: ({ sandbox }) => sandbox.execute("x"),
  "execute stream": ({ sandbox }) => sandbox.stream("x").next(),
  "execute detached": ({ sandbox }) => sandbox.start("x"),
  "execute killed_on_cancel": ({ sandbox }) => sandbox.execute("x", { signal: never }),
  exposePort: ({ sandbox }) => sandbox.ports.expose(80),
  fileExists: ({ sandbox }) => sandbox.files.exists("f"),
  forkSandbox: ({ sandbox }) => sandbox.fork({ count: 2 }),
  getExecution: ({ sandbox }) => sandbox.executions.get("ex_1"),
  getInfo: ({ client }) => client.info(),
  getMetrics: ({ sandbox }) => sandbox.metrics(),
  getNetwork: ({ sandbox }) => sandbox.network.get(),
  getOutput: ({ execution }) => execution.output(),
  getSandbox: ({ sandbox }) => sandbox.refresh(),
  getSnapshot: ({ client }) => client.snapshots.get(SNAPSHOT.id),
  getTemplate: ({ client }) => client.templates.get(TEMPLATE.id),
  getUsage: ({ client }) => client.usage(),
  health: ({ client }) => client.health(),
  listEvents: ({ client }) => client.events.list().page(),
  listExecutions: ({ sandbox }) => sandbox.executions.list().page(),
  listFiles: ({ sandbox }) => sandbox.files.list("d").page(),
  listImages: ({ client }) => client.images.list().page(),
  listPorts: ({ sandbox }) => sandbox.ports.list(),
  listSandboxEvents: ({ sandbox }) => sandbox.events.list().page(),
  listSandboxes: ({ client }) => client.sandboxes.list().page(),
  listSnapshots: ({ client }) => client.snapshots.list().page(),
  listTemplates: ({ client }) => client.templates.list().page(),
  makeDirectory: ({ sandbox }) => sandbox.files.mkdir("d"),
  "makeDirectory recursive": ({ sandbox }) => sandbox.files.mkdir("d", { recursive: true }),
  moveFile: ({ sandbox }) => sandbox.files.move("f", "g"),
  openTerminal: ({ sandbox }) => sandbox.terminal(),
  openapi: ({ client }) => client.openapi(),
  packDirectory: ({ sandbox }) => sandbox.files.pack("d"),
  pauseSandbox: ({ sandbox }) => sandbox.pause(),
  postEvents: ({ sandbox }) => sandbox.events.post([{ type: "agent.error", data: {}, runId: "r" }]),
  readFile: ({ sandbox }) => sandbox.files.read("f"),
  resumeSandbox: ({ sandbox }) => sandbox.resume(),
  rollbackSandbox: ({ sandbox }) => sandbox.rollback(SNAPSHOT.id),
  setTimeout: ({ sandbox }) => sandbox.setTimeout(1),
  signalExecution: ({ execution }) => execution.signal("SIGINT"),
  statFile: ({ sandbox }) => sandbox.files.stat("f"),
  takeSnapshot: ({ sandbox }) => sandbox.snapshot(),
  terminateSandbox: ({ sandbox }) => sandbox.terminate(),
  unpackArchive: ({ sandbox }) => sandbox.files.unpack("d", "tar"),
  "unpackArchive stream": ({ sandbox }) => sandbox.files.uploadDirectory(import.meta.dirname, "d"),
  uploadBuildContext: ({ client }) => client.templates.uploadContext(new Uint8Array(1)),
  "uploadBuildContext stream": ({ client }) => client.templates.uploadContext(import.meta.dirname),
  watchFiles: ({ sandbox }) => sandbox.files.watch("d").next(),
  writeFile: ({ sandbox }) => sandbox.files.write("f", "x"),
  "writeFile stream": ({ sandbox }) => sandbox.files.write("f", new Blob(["x"])),
  writeStdin: ({ execution }) => execution.writeStdin("x"),
};

function refused(): never {
  throw new TypeError("fetch failed", { cause: Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" }) });
}

function cut(): never {
  throw new TypeError("fetch failed", { cause: new Error("other side closed") });
}

function answered(status: number, code: string): [Fault, () => Response] {
  const body = JSON.stringify({ error: { code, message: "m", details: {} } });
  return [{ kind: "answered", status, code }, () => new Response(body, { status })];
}

const FAULTS: [Fault, () => Response][] = [
  [{ kind: "not_sent" }, refused],
  [{ kind: "lost" }, cut],
  answered(500, "INTERNAL_ERROR"),
  answered(503, "RESOURCE_EXHAUSTED"),
  answered(507, "DISK_FULL"),
];

/** The requests of a call that fails and may be retried once. */
async function sent(use: (target: Target) => Promise<unknown>, respond: () => Response): Promise<Headers[]> {
  const requests: Headers[] = [];
  const client = new Sandboxd({
    ...{ url: "http://127.0.0.1:9", apiKey: "k", retries: 1 },
    fetch: async (_, init) => {
      requests.push(new Headers(init.headers));
      if (init.body instanceof ReadableStream) await new Response(init.body).arrayBuffer();
      return respond();
    },
  });
  const sandbox = client.sandboxes.connect(VIEW.id);
  const execution = sandbox.executions.handle("ex_1");
  await expect(use({ client, sandbox, execution })).rejects.toThrow();
  return requests;
}

test("every row of the table is called", () => {
  expect([...Object.keys(USES), ...OTHERS].sort()).toEqual(rows.map(([name]) => name).sort());
});

test.each(rows.filter(([name]) => !OTHERS.includes(name)))("%s", async (name, row) => {
  const use = USES[name];
  if (use === undefined) throw new Error(`no call for ${name}`);
  for (const [fault, respond] of FAULTS) {
    const requests = await sent(use, respond);
    expect([fault, requests.length]).toEqual([fault, mayRepeat(row.safety as Safety, fault) ? 2 : 1]);
    const keys = new Set(requests.map((headers) => headers.get("idempotency-key")));
    expect([fault, keys.size]).toEqual([fault, 1]);
    expect([fault, !keys.has(null)]).toEqual([fault, row.idempotency_key]);
  }
});
