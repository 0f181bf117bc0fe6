/** Connections over fetch and the WebSocket of the runtime, for Deno, browsers, and a fetch function of the caller. */

import { messageOf } from "../errors.js";
import { ConnectError } from "./types.js";
import type { Connections, Fetch, HttpRequest, HttpResponse, Socket, SocketHandlers, SocketRequest } from "./types.js";

/** Errors of runtimes that say that no connection was established. The other ones do not distinguish it. */
const NOT_CONNECTED = /ECONNREFUSED|ENOTFOUND|EAI_AGAIN|error \(Connect\)|certificate/i;
const OPEN_TIMEOUT_MS = 30_000;

/** Connections over fetch. */
export class FetchConnections implements Connections {
  readonly #fetch: Fetch;
  readonly openSocket: Connections["openSocket"];

  constructor(fetch: Fetch, openSocket: Connections["openSocket"]) {
    this.#fetch = fetch;
    this.openSocket = openSocket;
  }

  async send(request: HttpRequest): Promise<HttpResponse> {
    const { method, headers, signal, body } = request;
    const init: RequestInit & { duplex?: "half" } = { method, headers: { ...headers }, signal, redirect: "manual" };
    if (body instanceof Uint8Array) init.body = body as Uint8Array<ArrayBuffer>;
    else if (body !== undefined) [init.body, init.duplex] = [readable(body), "half"];
    try {
      return await this.#fetch(request.url, init);
    } catch (error) {
      const message = messageOf(error);
      const code = error instanceof Error && "code" in error ? String(error.code) : "";
      if (!NOT_CONNECTED.test(`${message} ${code}`)) throw error;
      throw new ConnectError(message, error, /certificate/i.test(message));
    }
  }

  /** Does nothing: the runtime owns the connections. */
  close(): void {
    return;
  }
}

/** A web stream of the chunks. */
export function readable(chunks: AsyncIterable<Uint8Array>): ReadableStream<Uint8Array> {
  const iterator = chunks[Symbol.asyncIterator]();
  return new ReadableStream<Uint8Array>({
    pull: async (controller) => {
      const next = await iterator.next();
      if (next.done === true) controller.close();
      else controller.enqueue(next.value);
    },
    cancel: async () => {
      await iterator.return?.();
    },
  });
}

/** Opens a WebSocket of the runtime. It carries the key as a subprotocol, because it cannot set headers. */
export function openWebSocket(request: SocketRequest): Promise<Socket> {
  const key = request.authorization.replace(/^Bearer /, "");
  const socket = new WebSocket(request.url.replace(/^http/, "ws"), ["sandboxd.terminal", `sandboxd.key.${key}`]);
  socket.binaryType = "arraybuffer";
  return new Promise((resolve, reject) => {
    const fail = (): void => {
      clearTimeout(timer);
      socket.close();
      reject(new Error("the websocket could not be opened"));
    };
    const timer = setTimeout(fail, OPEN_TIMEOUT_MS);
    request.signal.addEventListener("abort", fail, { once: true });
    socket.onerror = fail;
    socket.onclose = fail;
    socket.onopen = () => {
      clearTimeout(timer);
      request.signal.removeEventListener("abort", fail);
      socket.onerror = null;
      resolve({
        reportsPings: false,
        listen: (handlers) => {
          listen(socket, handlers);
        },
        send: (data) => {
          socket.send(data);
        },
        close: () => {
          socket.onclose = null;
          socket.close(1000);
        },
      });
    };
  });
}

function listen(socket: WebSocket, handlers: SocketHandlers): void {
  socket.onclose = (event) => {
    handlers.close(event.reason || "the connection was closed");
  };
  socket.onmessage = (event: MessageEvent<string | ArrayBuffer>) => {
    handlers.message(typeof event.data === "string" ? event.data : new Uint8Array(event.data));
  };
}
