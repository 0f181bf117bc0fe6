/**
 * HTTP on Node. Node's fetch can neither trust a given certificate nor wait more than 300 s for a response, so requests go
 * through `node:http` and `node:https`, with a pool of connections.
 */

import { once } from "node:events";
import http from "node:http";
import https from "node:https";
import type { Duplex } from "node:stream";
import { Readable } from "node:stream";
import { addressOf, connect } from "./node-connection.js";
import type { HttpRequest, HttpResponse, Trust } from "./types.js";

/** Shorter than the idle timeout of the service. */
const KEEP_IDLE_MS = 60_000;
/** Two output streams of 16 MiB with every byte escaped, plus a margin. */
const LONGEST_BODY = 256 << 20;

/** A pool of connections to one service. */
export class NodeHttp {
  readonly #agents = new Map<string, http.Agent>();
  readonly #trust: Trust;

  constructor(trust: Trust) {
    this.#trust = trust;
  }

  /** Sends a request and returns the response once its headers have arrived. */
  send(request: HttpRequest): Promise<HttpResponse> {
    const url = new URL(request.url);
    const isTls = url.protocol === "https:";
    return new Promise((resolve, reject) => {
      const { method, headers } = request;
      const sent = (isTls ? https : http).request(url, { method, headers, agent: this.#agent(url) });
      const abort = (): void => {
        const reason = abortReason(request.signal);
        sent.destroy(reason);
        // While the request waits for a connection, `destroy` reports no error.
        reject(reason);
      };
      request.signal.addEventListener("abort", abort, { once: true });
      sent.once("close", () => {
        request.signal.removeEventListener("abort", abort);
      });
      sent.once("response", (message) => {
        resolve(new NodeResponse(message));
      });
      sent.on("error", reject);
      if (request.signal.aborted) abort();
      else writeBody(sent, request.body);
    });
  }

  /** Closes idle connections. */
  close(): void {
    for (const agent of this.#agents.values()) agent.destroy();
  }

  #agent(url: URL): http.Agent {
    let agent = this.#agents.get(url.origin);
    if (agent === undefined) {
      const options = { keepAlive: true, timeout: KEEP_IDLE_MS };
      const isTls = url.protocol === "https:";
      agent = isTls ? new https.Agent(options) : new http.Agent(options);
      agent.createConnection = (_, callback) => {
        connect(addressOf(url), this.#trust, (error, socket) => {
          socket?.setTimeout(KEEP_IDLE_MS);
          // On an error the agent ignores the socket.
          callback?.(error, socket as Duplex);
        });
        return undefined;
      };
      this.#agents.set(url.origin, agent);
    }
    return agent;
  }
}

function abortReason(signal: AbortSignal): Error {
  return signal.reason instanceof Error ? signal.reason : new Error("the request was aborted");
}

function writeBody(sent: http.ClientRequest, body: HttpRequest["body"]): void {
  if (body === undefined || body instanceof Uint8Array) {
    sent.end(body);
    return;
  }
  writeChunks(sent, body).catch((error: unknown) => {
    sent.destroy(error instanceof Error ? error : new Error(String(error)));
  });
}

/** Requests a chunk after the previous one was sent, so that memory use is bounded. */
async function writeChunks(sent: http.ClientRequest, body: AsyncIterable<Uint8Array>): Promise<void> {
  const closed = new AbortController();
  sent.once("close", () => {
    closed.abort();
  });
  for await (const chunk of body) {
    // The service may respond and close before it has read everything.
    if (sent.destroyed) return;
    if (!sent.write(chunk)) await once(sent, "drain", { signal: closed.signal }).catch(() => undefined);
  }
  sent.end();
}

class NodeResponse implements HttpResponse {
  readonly #message: http.IncomingMessage;
  readonly status: number;
  readonly headers: HttpResponse["headers"];

  constructor(message: http.IncomingMessage) {
    this.#message = message;
    this.status = message.statusCode ?? 0;
    this.headers = headersOf(message);
  }

  get body(): ReadableStream<Uint8Array> {
    return Readable.toWeb(this.#message) as ReadableStream<Uint8Array>;
  }

  async text(): Promise<string> {
    return readText(this.#message);
  }
}

/** The headers of a response. */
export function headersOf(message: http.IncomingMessage): HttpResponse["headers"] {
  return {
    get: (name) => {
      const value = message.headers[name.toLowerCase()];
      return Array.isArray(value) ? value.join(", ") : (value ?? null);
    },
  };
}

/** The whole body of a response as text. */
export async function readText(message: http.IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of message as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > LONGEST_BODY) throw new RangeError(`the response is longer than ${LONGEST_BODY} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}
