import type { Output, RuntimeEvent } from "sandboxd";
import { expect, test } from "vitest";
import { events, failure, hangUp, json, Service, VIEW } from "./service.js";

const DONE = 'event: done\ndata: {"exitCode":0,"signal":null,"durationMs":5}\nid: end\n\n';

async function collected<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

test("the output of a command is a sequence of lines and its end", async () => {
  await using service = await Service.start([events(`event: stdout\ndata: one\n\nevent: stderr\ndata: two\n\n${DONE}`)]);
  const lines: string[] = [];
  const stream = service.client().sandboxes.connect(VIEW.id).stream("x", { onStderr: (line) => lines.push(line) });
  expect(await collected(stream)).toEqual([
    { type: "stdout", line: "one" },
    { type: "stderr", line: "two" },
    { type: "done", exitCode: 0, signal: null, durationMs: 5 },
  ] satisfies Output[]);
  expect(lines).toEqual(["two"]);
  expect(service.received[0]?.headers.accept).toBe("text/event-stream");
});

test("ending the iteration closes the connection", async () => {
  let closed: () => void = () => undefined;
  const isClosed = new Promise<void>((resolve) => (closed = resolve));
  await using service = await Service.start((_, response) => {
    response.writeHead(200).write("event: stdout\ndata: one\n\n");
    response.once("close", closed);
  });
  for await (const output of service.client().sandboxes.connect(VIEW.id).stream("yes")) {
    expect(output.type).toBe("stdout");
    break;
  }
  await isClosed;
});

test("an interrupted stream is an error, and is not repeated", async () => {
  await using service = await Service.start([events("event: stdout\ndata: one\n\n", false), events(DONE)]);
  const stream = service.client().sandboxes.connect(VIEW.id).stream("x");
  await expect(stream.done()).rejects.toMatchObject({ code: "NETWORK_ERROR" });
  expect(service.received).toHaveLength(1);
});

test("line ends are restored", async () => {
  const text = "event: stdout\ndata: a\ndata: b\nend: crlf\n\nevent: stdout\ndata: c\nend: none\n\n";
  await using service = await Service.start([events(text + DONE)]);
  const stream = service.client().sandboxes.connect(VIEW.id).stream("x", { lineEnds: true });
  const lines = (await collected(stream)).map((output) => ("line" in output ? output.line : ""));
  expect(lines.join("")).toBe("a\rb\r\nc");
});

test("a carriage return inside a line stays without line ends, too", async () => {
  // The service answers `printf 'a\rb\r\nc\rd'` with these events.
  const text = "event: stdout\ndata: a\ndata: b\n\nevent: stdout\ndata: c\ndata: d\n\n";
  await using service = await Service.start([events(text + DONE)]);
  const outputs = await collected(service.client().sandboxes.connect(VIEW.id).stream("x"));
  expect(outputs.slice(0, 2).map((output) => ("line" in output ? output.line : ""))).toEqual(["a\rb", "c\rd"]);
});

test("10,000 lines arrive once over 20 broken connections", async () => {
  const total = 10_000;
  let connections = 0;
  await using service = await Service.start(async (request, response) => {
    const from = Number(request.headers["last-event-id"] ?? 0);
    const to = connections++ < 20 ? Math.min(from + 480, total) : total;
    let text = "";
    for (let line = from + 1; line <= to; line++) text += `event: stdout\ndata: ${line}\nid: ${line}\n\n`;
    // A cut in the middle of an event, which must not count.
    await events(to === total ? text + DONE : `${text}event: stdout\ndata: ${to + 1}`, to === total)(request, response);
  });
  const execution = service.client().sandboxes.connect(VIEW.id).executions.handle("ex_1");
  const lines = (await collected(execution.follow())).flatMap((output) => ("line" in output ? [Number(output.line)] : []));
  expect(lines).toEqual(Array.from({ length: total }, (_, index) => index + 1));
  expect(connections).toBe(21);
});

test("a stream that ended has nothing more after its end", async () => {
  await using service = await Service.start((_, response) => response.writeHead(204).end() as unknown as undefined);
  const execution = service.client().sandboxes.connect(VIEW.id).executions.handle("ex_1");
  expect(await collected(execution.follow({ after: "end" }))).toEqual([]);
});

test("followed events are neither missed nor repeated, and end with the sandbox", async () => {
  const id = (number: number): string => `ev_${String(number).padStart(16, "0")}`;
  const event = (number: number): RuntimeEvent => ({
    id: id(number),
    type: "exec.started",
    timestamp: "t",
    sandboxId: VIEW.id,
    runId: "",
    data: {},
  });
  const sent = (number: number): string => `id: ${id(number)}\ndata: ${JSON.stringify(event(number))}\n\n`;
  const gone = failure(404, "SANDBOX_NOT_FOUND", { state: "terminated", reason: "deleted" });
  const pagination = { limit: 100, offset: 0, total: 1, hasMore: false };
  await using service = await Service.start([
    events(`id: ${id(1)}\n\n${sent(2)}`, false),
    events(sent(2) + sent(3), false),
    hangUp,
    gone,
    gone,
    json(200, { data: [event(4)], pagination }),
  ]);
  const stream = service.client().sandboxes.connect(VIEW.id).events.follow({ kinds: ["exec.*"] });
  expect((await collected(stream)).map((each) => each.id)).toEqual([id(2), id(3), id(4)]);
  expect(service.received[1]?.headers["last-event-id"]).toBe(id(2));
  expect(service.received.at(-1)?.path).toContain(`sandboxId=${VIEW.id}&type=exec.*`.replace("*", "*"));
});
