/** Websockets on Node. Node 20 has no WebSocket, and that of later versions cannot trust a given certificate. */

import { createHash, randomBytes } from "node:crypto";
import http from "node:http";
import type net from "node:net";
import { addressOf, connect } from "./node-connection.js";
import { headersOf, readText } from "./node-http.js";
import { encodeFrame, FrameDecoder, OPCODE } from "./websocket-frames.js";
import type { Frame } from "./websocket-frames.js";
import { UpgradeRefused } from "./types.js";
import type { Socket, SocketHandlers, SocketRequest, Trust } from "./types.js";

const HANDSHAKE_SUFFIX = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/** Opens a websocket on a connection of its own. */
export async function openNodeSocket(
  request: SocketRequest,
  trust: Trust,
): Promise<Socket> {
  const url = new URL(request.url);
  const connection = await opened(url, trust);
  const abort = (): void => {
    connection.destroy(new Error("the websocket was aborted"));
  };
  request.signal.addEventListener("abort", abort, { once: true });
  try {
    const head = await upgraded(url, connection, request);
    return new NodeSocket(connection, head);
  } finally {
    request.signal.removeEventListener("abort", abort);
  }
}

function opened(url: URL, trust: Trust): Promise<net.Socket> {
  return new Promise((resolve, reject) => {
    connect(addressOf(url), trust, (error, socket) => {
      if (socket === undefined) reject(error ?? new Error("no connection"));
      else resolve(socket);
    });
  });
}

/** Requests the upgrade, and returns the bytes that arrived after the response. */
function upgraded(url: URL, connection: net.Socket, request: SocketRequest): Promise<Uint8Array> {
  const key = randomBytes(16).toString("base64");
  const headers = {
    connection: "upgrade",
    upgrade: "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": key,
    authorization: request.authorization,
    "user-agent": request.userAgent,
  };
  return new Promise((resolve, reject) => {
    const path = `${url.pathname}${url.search}`;
    const options = { host: url.hostname, port: url.port, path, headers, createConnection: () => connection };
    const sent = http.request(options);
    sent.once("error", reject);
    sent.once("response", (message) => {
      readText(message).then((body) => {
        reject(new UpgradeRefused(message.statusCode ?? 0, body, headersOf(message)));
      }, reject);
    });
    sent.once("upgrade", (message, _, head) => {
      const expected = createHash("sha1").update(key + HANDSHAKE_SUFFIX).digest("base64");
      if (message.headers["sec-websocket-accept"] === expected) {
        resolve(head);
      } else {
        connection.destroy();
        reject(new Error("the response is not a websocket upgrade"));
      }
    });
    sent.end();
  });
}

class NodeSocket implements Socket {
  readonly reportsPings = true;
  readonly #connection: net.Socket;
  readonly #head: Uint8Array;
  #handlers: SocketHandlers | undefined;
  readonly #decoder = new FrameDecoder();
  #isClosed = false;

  constructor(connection: net.Socket, head: Uint8Array) {
    this.#connection = connection;
    this.#head = head;
    connection.on("error", (error) => {
      this.#closed(error.message);
    });
    connection.on("close", () => {
      this.#closed("the connection was closed");
    });
  }

  listen(handlers: SocketHandlers): void {
    this.#handlers = handlers;
    if (this.#head.length > 0) this.#receive(this.#head);
    this.#connection.on("data", (bytes: Buffer) => {
      this.#receive(bytes);
    });
  }

  send(data: string | Uint8Array): void {
    const isText = typeof data === "string";
    const payload = isText ? new TextEncoder().encode(data) : data;
    this.#connection.write(encodeFrame(isText ? OPCODE.text : OPCODE.binary, payload));
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#connection.end(encodeFrame(OPCODE.close, new Uint8Array([0x03, 0xe8])));
    this.#connection.unref();
  }

  #receive(bytes: Uint8Array): void {
    try {
      for (const frame of this.#decoder.push(bytes)) this.#take(frame);
    } catch (error) {
      this.#connection.destroy();
      this.#closed(String(error));
    }
  }

  #take(frame: Frame): void {
    if (this.#isClosed) return;
    this.#handlers?.alive();
    switch (frame.opcode) {
      case OPCODE.text:
        this.#handlers?.message(new TextDecoder().decode(frame.payload));
        break;
      case OPCODE.binary:
        this.#handlers?.message(frame.payload);
        break;
      case OPCODE.ping:
        this.#connection.write(encodeFrame(OPCODE.pong, frame.payload));
        break;
      case OPCODE.close:
        this.#connection.end(encodeFrame(OPCODE.close, frame.payload));
        this.#closed(new TextDecoder().decode(frame.payload.subarray(2)) || "the connection was closed");
        break;
      default:
    }
  }

  #closed(reason: string): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#handlers?.close(reason);
  }
}
