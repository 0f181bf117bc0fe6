/**
 * A stream whose events the service stores. A lost connection is established again and continues after the last event, so that no
 * event is missed or repeated.
 */

import { sleep } from "./attempt.js";
import type { StreamedResponse } from "./attempt.js";
import { ClosableIterator } from "./closable-iterator.js";
import { networkError } from "./error-classes.js";
import { SandboxdError } from "./errors.js";
import { EventSource } from "./output.js";
import type { SseEvent } from "./sse.js";

/** Limit for reconnecting without success. */
const LONGEST_AWAY_MS = 120_000;
const FIRST_WAIT_MS = 100;
const LONGEST_WAIT_MS = 2000;
/** The id of the last event. */
export const END = "end";

/** A stream that ends after its item `done`, or after the first error that does not pass. */
export abstract class FollowedStream<T extends { readonly type: string }> extends ClosableIterator<T> {
  readonly #interrupted: string;
  readonly #signal: AbortSignal | undefined;
  #position: string | undefined;
  #source: EventSource | undefined;
  #isOver = false;

  /** `interrupted` is the message of the error if the body of the response ends without the item `done`. */
  constructor(interrupted: string, after: string | undefined, signal: AbortSignal | undefined) {
    super();
    this.#interrupted = interrupted;
    this.#position = after;
    this.#signal = signal;
  }

  /** Connects, to continue after the event with this id. `undefined` if there is none after it. */
  protected abstract open(after: string | undefined): Promise<StreamedResponse | undefined>;

  /** The item in an event; `undefined` for an event that this version does not know. Throws the error in an event `error`. */
  protected abstract parse(event: SseEvent): T | undefined;

  /** The error for the caller. */
  protected abstract failed(error: unknown): unknown;

  /** The id of the event of the last item that was returned. */
  protected get position(): string | undefined {
    return this.#position;
  }

  /** Returns the next item. Connects again after a lost connection. */
  async next(): Promise<IteratorResult<T, undefined>> {
    let awaySince: number | undefined;
    for (let wait = FIRST_WAIT_MS; !this.#isOver; wait = Math.min(wait * 2, LONGEST_WAIT_MS)) {
      try {
        const value = await this.#read();
        if (value === undefined) break;
        return { done: false, value };
      } catch (error) {
        this.#disconnect();
        awaySince ??= Date.now();
        if (!passes(error) || Date.now() - awaySince > LONGEST_AWAY_MS) {
          this.#isOver = true;
          throw this.failed(error);
        }
        await sleep(wait, this.#signal);
      }
    }
    return { done: true, value: undefined };
  }

  /** Ends the stream. What it follows continues. */
  close(): void {
    this.#isOver = true;
    this.#disconnect();
  }

  async #read(): Promise<T | undefined> {
    for (;;) {
      this.#source ??= await this.#open();
      if (this.#source === undefined) return undefined;
      const event = await this.#source.next();
      if (event === undefined) throw networkError(this.#interrupted);
      // A temporary error carries no item, so the position is unchanged.
      const item = this.parse(event);
      if (item === undefined) continue;
      this.#position = event.id;
      if (item.type === "done") this.close();
      return item;
    }
  }

  async #open(): Promise<EventSource | undefined> {
    const response = await this.open(this.#position);
    if (response !== undefined) return new EventSource(response);
    this.#isOver = true;
    return undefined;
  }

  #disconnect(): void {
    this.#source?.close();
    this.#source = undefined;
  }
}

/** Whether a new connection may succeed. */
export function passes(error: unknown): boolean {
  const codes = ["NETWORK_ERROR", "RESOURCE_EXHAUSTED", "RATE_LIMITED", "INTERNAL_ERROR"];
  return error instanceof SandboxdError && codes.includes(error.code);
}
