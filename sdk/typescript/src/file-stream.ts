/** The content of a file or an archive that is being received. */

import type { StreamedResponse } from "./attempt.js";
import { ClosableIterator } from "./closable-iterator.js";
import { readable } from "./platform/fetch.js";
import { concat } from "./platform/websocket-frames.js";

/** Longer than the service waits for a slow disk. */
const LONGEST_SILENCE_MS = 90_000;

/** A stream of bytes from a sandbox, read once. */
export class FileStream extends ClosableIterator<Uint8Array> {
  readonly #response: StreamedResponse;
  readonly #fail: (error: unknown) => unknown;
  /** The number of bytes, if the service knows it. */
  readonly length: number | undefined;
  /** The version of the file, for `ifRange`. */
  readonly etag: string | undefined;
  /** The id of the request. */
  readonly requestId: string | undefined;

  /** For `Files.stream` and `Files.pack`. */
  constructor(response: StreamedResponse, fail: (error: unknown) => unknown) {
    super();
    this.#response = response;
    this.#fail = fail;
    const length = response.headers.get("content-length");
    this.length = length === null ? undefined : Number(length);
    this.etag = response.headers.get("etag") ?? undefined;
    this.requestId = response.headers.get("x-request-id") ?? undefined;
  }

  /** The whole content. */
  async bytes(): Promise<Uint8Array> {
    const chunks: Uint8Array[] = [];
    for await (const chunk of this) chunks.push(chunk);
    return chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : concat(chunks);
  }

  /** The content as a web stream. */
  toWebStream(): ReadableStream<Uint8Array> {
    return readable(this);
  }

  /** Returns the next bytes. */
  async next(): Promise<IteratorResult<Uint8Array, undefined>> {
    try {
      const value = await this.#response.read(LONGEST_SILENCE_MS);
      if (value !== undefined) return { done: false, value };
    } catch (error) {
      this.close();
      throw this.#fail(error);
    }
    this.close();
    return { done: true, value: undefined };
  }

  /** Ends the transfer. */
  close(): void {
    this.#response.close();
  }
}
