/** A scripted HTTP service for tests: it records requests and responds as told. */

import http from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { Sandboxd } from "sandboxd";
import type { ClientOptions } from "sandboxd";

/** A received request. */
export interface Received {
  readonly method: string;
  readonly path: string;
  readonly headers: http.IncomingHttpHeaders;
  readonly body: string;
}

/** Responds to a request. */
export type Responder = (request: Received, response: http.ServerResponse) => void | Promise<void>;

/** A scripted service with its client. */
export class Service implements AsyncDisposable {
  readonly received: Received[] = [];
  readonly #server: http.Server;
  readonly #sockets = new Set<Socket>();

  private constructor(responders: Responder | Responder[]) {
    const queue = Array.isArray(responders) ? [...responders] : undefined;
    this.#server = http.createServer((request, response) => {
      void (async () => {
        const chunks: Buffer[] = [];
        for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk);
        const { method = "", url: path = "", headers } = request;
        const received = { method, path, headers, body: Buffer.concat(chunks).toString() };
        this.received.push(received);
        const respond = queue === undefined ? (responders as Responder) : queue.shift();
        if (respond === undefined) void json(599, { error: { code: "UNEXPECTED", message: path } })(received, response);
        else await respond(received, response);
      })().catch(() => undefined);
    });
    this.#server.on("connection", (socket: Socket) => {
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
    });
  }

  /** Starts a service that responds with the responders, one after the other, or always with the same. */
  static async start(responders: Responder | Responder[]): Promise<Service> {
    const service = new Service(responders);
    await new Promise<void>((resolve) => service.#server.listen(0, "127.0.0.1", resolve));
    return service;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** A client of this service. */
  client(options: ClientOptions = {}): Sandboxd {
    return new Sandboxd({ url: this.url, apiKey: "sbx_test", timeoutMs: 2000, ...options });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

/** A JSON response. */
export function json(status: number, body: unknown, headers: http.OutgoingHttpHeaders = {}): Responder {
  return (_, response) => {
    response.writeHead(status, { "content-type": "application/json", ...headers });
    response.end(JSON.stringify(body));
  };
}

/** An error response. */
export function failure(status: number, code: string, details: object = {}, headers: http.OutgoingHttpHeaders = {}): Responder {
  return json(status, { error: { code, message: "why", details, requestId: "req_1" } }, headers);
}

/** Closes the connection without a response. */
export const hangUp: Responder = (_, response) => {
  response.socket?.destroy();
};

/** An event stream; the connection is cut at its end unless `ends`. */
export function events(text: string, ends = true): Responder {
  return async (_, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    await new Promise((resolve) => response.write(text, resolve));
    if (ends) response.end();
    else setTimeout(() => response.socket?.destroy(), 20);
  };
}

/** A view of a sandbox. */
export const VIEW = {
  id: "sb_00000000000000000001",
  state: "running",
  image: "ubuntu:24.04",
  createdAt: "2026-01-01T00:00:00.000Z",
  env: {},
  metadata: {},
  idleTimeoutMs: 0,
  timeoutMs: 1,
  autoResume: true,
  isolation: "container",
  workdir: "/workspace",
  resources: { cpu: 2, memoryMb: 1, diskMb: 1 },
  network: { egress: { default: "allow", allow: [] } },
};

/** A snapshot. */
export const SNAPSHOT = {
  id: "snap_00000000000000000001",
  sandboxId: VIEW.id,
  name: "before",
  image: VIEW.image,
  isolation: "container",
  memory: false,
  sizeBytes: 4096,
  state: "ready",
  createdAt: "2026-01-01T00:00:00.000Z",
  metadata: {},
};

/** A template. */
export const TEMPLATE = {
  id: "tpl_00000000000000000001",
  name: "web",
  version: 3,
  state: "ready",
  base: VIEW.image,
  isolation: "container",
  steps: { total: 1, done: 1, cached: 0 },
  sizeBytes: 4096,
  memory: false,
  createdAt: "2026-01-01T00:00:00.000Z",
  metadata: {},
};

/** The result of a command. */
export const RESULT = { stdout: "hi\n", stderr: "", exitCode: 0, signal: null, durationMs: 1 };
