/** Terminals over a scripted websocket service. */

import { createHash } from "node:crypto";
import type { Socket } from "node:net";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { Sandboxd } from "sandboxd";
import { expect, test } from "vitest";
import { FrameDecoder, OPCODE } from "../src/platform/websocket-frames.js";

const SUFFIX = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/** An unmasked frame of a service. */
function frame(opcode: number, payload: string | Uint8Array): Buffer {
  const bytes = Buffer.from(payload);
  const head = bytes.length < 126 ? [bytes.length] : [126, bytes.length >> 8, bytes.length & 255];
  return Buffer.concat([Buffer.from([0x80 | opcode, ...head]), bytes]);
}

const text = (value: object): Buffer => frame(OPCODE.text, JSON.stringify(value));

async function served(connections: ((socket: Socket, path: string) => void)[]): Promise<{ client: Sandboxd; close: () => void }> {
  const server = http.createServer((_, response) => response.writeHead(201).end('{"executionId":"ex_1"}'));
  server.on("upgrade", (request, socket: Socket) => {
    const accept = createHash("sha1").update(String(request.headers["sec-websocket-key"]) + SUFFIX).digest("base64");
    const head = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade", `Sec-WebSocket-Accept: ${accept}`];
    socket.write(`${head.join("\r\n")}\r\n\r\n`);
    socket.on("error", () => undefined);
    connections.shift()?.(socket, request.url ?? "");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { client: new Sandboxd({ url, apiKey: "k" }), close: () => server.close() };
}

test("a terminal continues after a lost connection where it stopped", async () => {
  const paths: string[] = [];
  const input: string[] = [];
  const { client, close } = await served([
    (socket, path) => {
      paths.push(path);
      socket.write(Buffer.concat([text({ position: 0 }), frame(OPCODE.binary, "abc"), frame(OPCODE.ping, "p")]));
      const decoder = new FrameDecoder();
      // Client frames are masked, so only their number and size are looked at.
      socket.once("data", (bytes: Buffer) => {
        input.push(`${(bytes[0] ?? 0) & 15}:${(bytes[1] ?? 0) & 127}`);
        expect(() => decoder.push(bytes)).toThrow();
        setTimeout(() => socket.destroy(), 20);
      });
    },
    (socket, path) => {
      paths.push(path);
      const parts = [text({ position: 5 }), frame(OPCODE.binary, "x".repeat(200)), text({ ended: { exitCode: 0 } })];
      const all = Buffer.concat(parts);
      for (let at = 0; at < all.length; at += 7) socket.write(all.subarray(at, at + 7));
    },
  ]);
  const terminal = await client.sandboxes.connect("sb_1").terminal({ cols: 100 });
  terminal.send("ls\r");
  const seen: string[] = [];
  for await (const event of terminal) seen.push(event.type === "bytes" ? new TextDecoder().decode(event.bytes) : event.type);
  expect(seen).toEqual(["abc", "disconnected", "reconnected", "dropped", "x".repeat(200), "ended"]);
  expect(paths.map((path) => path.split("?")[1])).toEqual(["after=0", "after=3"]);
  expect(input).toHaveLength(1);
  expect(() => {
    terminal.send("late");
  }).toThrow("the terminal has ended");
  close();
});

test("an error of the service ends the terminal", async () => {
  const error = { code: "EXECUTION_NOT_FOUND", message: "gone", details: {} };
  const { client, close } = await served([(socket) => socket.write(text({ error }))]);
  await using terminal = await client.sandboxes.connect("sb_1").executions.handle("ex_1").attach();
  expect(await terminal.receive()).toEqual({ type: "disconnected" });
  await expect(terminal.receive()).rejects.toMatchObject({ code: "EXECUTION_NOT_FOUND" });
  close();
});
