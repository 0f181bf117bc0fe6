/** The changes in a directory of a sandbox. */

import type { StreamedResponse } from "./attempt.js";
import { ClosableIterator } from "./closable-iterator.js";
import { errorOf, errorOfEvent, networkError } from "./error-classes.js";
import type { SandboxdError } from "./errors.js";
import type { Known } from "./models.js";
import { EventSource, parsed } from "./output.js";
import type { SseEvent } from "./sse.js";

/** A change in a watched directory. */
export interface FileChange {
  /**
   * `create`: created, or moved to this path. `write`: its content changed. `remove`: deleted. `rename`: moved away from this
   * path. `chmod`: its owner, permissions, times or extended attributes changed.
   */
  readonly kind: Known<"create" | "write" | "remove" | "rename" | "chmod">;
  /** The absolute path. Bytes that are not UTF-8 are shown as U+FFFD. */
  readonly path: string;
  /** The path, percent-encoded for the query parameter `path`. Present only if the path is not UTF-8. */
  readonly rawPath?: string;
}

/** What a watch delivers, discriminated by `type`. */
export type WatchEvent =
  | ({ readonly type: "change" } & FileChange)
  /** Changes were lost because they were not read in time. */
  | { readonly type: "overflow" };

/**
 * The watch of a directory. It begins with `start` or the first read, and ends when the directory is deleted. A lost connection is
 * an error: changes meanwhile are unknown.
 */
export class FileWatch extends ClosableIterator<WatchEvent> {
  readonly #open: (signal: AbortSignal) => Promise<StreamedResponse>;
  readonly #fail: (error: unknown) => unknown;
  readonly #abort = new AbortController();
  #source: EventSource | undefined;
  #isOver = false;

  /** For `Files.watch`. */
  constructor(open: (signal: AbortSignal) => Promise<StreamedResponse>, fail: (error: unknown) => unknown) {
    super();
    this.#open = open;
    this.#fail = fail;
  }

  /** Returns once the watch is active: later changes are delivered. */
  async start(): Promise<this> {
    if (this.#source !== undefined || this.#isOver) return this;
    try {
      this.#source = new EventSource(await this.#open(this.#abort.signal));
      const first = await this.#read();
      if (first.event !== "ready") throw failure(first);
    } catch (error) {
      this.#ended(error);
    }
    return this;
  }

  /** Returns the next change. */
  async next(): Promise<IteratorResult<WatchEvent, undefined>> {
    await this.start();
    try {
      while (!this.#isOver) {
        const event = await this.#read();
        switch (event.event) {
          case "change":
            return { done: false, value: changeOf(event) };
          case "overflow":
            return { done: false, value: { type: "overflow" } };
          case "error":
            throw failure(event);
          case "done":
            this.close();
        }
      }
    } catch (error) {
      this.#ended(error);
    }
    return { done: true, value: undefined };
  }

  /** Ends the watch. */
  close(): void {
    this.#isOver = true;
    this.#abort.abort();
    this.#source?.close();
  }

  async #read(): Promise<SseEvent> {
    const event = await this.#source?.next();
    if (event === undefined) throw networkError("the stream ended before the watch did");
    return event;
  }

  /** Ends the watch after an error of a read. Throws the error, unless `close` is its cause. */
  #ended(error: unknown): void {
    if (this.#isOver) return;
    this.close();
    throw this.#fail(error);
  }
}

function changeOf(event: SseEvent): WatchEvent {
  const change = parsed<FileChange>(event.data);
  if (typeof change?.kind === "string" && typeof change.path === "string") return { type: "change", ...change };
  throw errorOf("UNKNOWN", "a change cannot be parsed", { status: 200 });
}

function failure(event: SseEvent): SandboxdError {
  const message = "the watch ended with an error that cannot be parsed";
  return errorOfEvent(event.data) ?? errorOf("UNKNOWN", message, { status: 200 });
}
