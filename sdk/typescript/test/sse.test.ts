import { expect, test } from "vitest";
import { SseParser } from "../src/sse.js";
import type { SseEvent } from "../src/sse.js";

const TEXT =
  "\ufeff: comment\r\nevent: stdout\r\ndata: ü1\r\ndata:2\r\nid: 7\r\n\r\n" +
  "data\rend: none\r\rid: 8\n\nretry: 5\ndata:  x\n\ndata: incomplete";
const EVENTS: SseEvent[] = [
  { event: "stdout", data: "ü1\n2", id: "7" },
  { event: "message", data: "", id: "7", end: "none" },
  { event: "message", data: " x", id: "8" },
];

test("events are the same wherever the bytes are split", () => {
  const bytes = new TextEncoder().encode(TEXT);
  for (let at = 0; at <= bytes.length; at++) {
    const parser = new SseParser();
    expect([...parser.push(bytes.subarray(0, at)), ...parser.push(bytes.subarray(at))]).toEqual(EVENTS);
    expect(parser.lastId).toBe("8");
  }
  const single = new SseParser();
  expect([...bytes].flatMap((byte) => single.push(new Uint8Array([byte])))).toEqual(EVENTS);
});

test("an event of unlimited length is an error", () => {
  expect(() => new SseParser().push(new Uint8Array(5 << 20).fill(120))).toThrow(RangeError);
});
