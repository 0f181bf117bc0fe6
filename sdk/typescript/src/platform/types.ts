/** What the SDK needs from a JavaScript runtime. The modules of this directory implement it. */

import type { Unpacked } from "../models.js";

/** Which certificates to trust. */
export type Trust =
  | { readonly kind: "system" }
  /** Only these certificates, in PEM. */
  | { readonly kind: "certificates"; readonly pem: string }
  /**
   * Only the certificate with this SHA-256 digest, as 64 hexadecimal digits; its names and dates are not checked. A runtime that
   * cannot check the digest trusts `pem`, the certificate itself, if that is known.
   */
  | { readonly kind: "pinned"; readonly sha256: string; readonly pem?: string };

/** A request of one attempt. */
export interface HttpRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: Uint8Array | AsyncIterable<Uint8Array>;
  readonly signal: AbortSignal;
}

/** A response whose body is read once, with either method. `Response` of fetch implements it. */
export interface HttpResponse {
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  readonly body: ReadableStream<Uint8Array> | null;
  text(): Promise<string>;
}

/** The error of a request that was not sent, because no connection was established. */
export class ConnectError extends Error {
  /** Whether the certificate of the service is not trusted. */
  readonly isCertificate: boolean;

  constructor(message: string, cause: unknown, isCertificate = false) {
    super(message, { cause });
    this.isCertificate = isCertificate;
  }
}

/** The error of a websocket that the service refused with an error response. */
export class UpgradeRefused extends Error {
  readonly status: number;
  readonly body: string;
  readonly headers: { get(name: string): string | null };

  constructor(status: number, body: string, headers: { get(name: string): string | null }) {
    super(`status ${status}`);
    this.status = status;
    this.body = body;
    this.headers = headers;
  }
}

/** The events of a websocket. After `close` there are no others. */
export interface SocketHandlers {
  message(data: string | Uint8Array): void;
  /** Any sign that the connection works, such as a ping. Runtimes that hide pings never call it. */
  alive(): void;
  close(reason: string): void;
}

/** An open websocket. */
export interface Socket {
  /** Whether `alive` reports pings, so that silence means a broken connection. */
  readonly reportsPings: boolean;
  /** Begins the delivery of events. Must be called in the task in which the socket was opened. */
  listen(handlers: SocketHandlers): void;
  send(data: string | Uint8Array): void;
  close(): void;
}

/** A request for a websocket. */
export interface SocketRequest {
  readonly url: string;
  readonly authorization: string;
  readonly userAgent: string;
  readonly signal: AbortSignal;
}

/** The connections to one service. */
export interface Connections {
  send(request: HttpRequest): Promise<HttpResponse>;
  /** Opens a websocket. Rejects with {@link UpgradeRefused} if the service responds with an error. */
  openSocket: (request: SocketRequest) => Promise<Socket>;
  /** Closes idle connections. */
  close(): void;
}

/** The function fetch, for tests and for connections through a proxy. */
export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

/** Transfer of directories of this machine as tar archives. */
export interface Directories {
  /** Packs a directory. */
  pack(directory: string): AsyncIterable<Uint8Array>;
  /** Packs a directory without what its `.dockerignore` excludes, except the file `dockerfile`. */
  packContext(directory: string, dockerfile?: string): AsyncIterable<Uint8Array>;
  /** Unpacks an archive, which is not trusted, into a directory. */
  unpack(archive: AsyncIterable<Uint8Array>, directory: string): Promise<Unpacked>;
}

/** A runtime. */
export interface Platform {
  /** The value of an environment variable. */
  environment(name: string): string | undefined;
  /** The text of a file. Throws if it cannot be read. */
  readTextFile(path: string): string;
  /** Appends to a file, and creates it if necessary. */
  appendToFile(path: string, text: string): void;
  /** Absent where the runtime has no file system. */
  readonly directories?: Directories;
  connect(trust: Trust, fetch?: Fetch): Connections;
}
