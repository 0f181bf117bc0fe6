/** One attempt of a call: its timeout, its abortion, and the stream that a successful attempt may leave open. */

import { networkError } from "./error-classes.js";
import { messageOf } from "./errors.js";
import type { SandboxdError } from "./errors.js";
import type { HttpResponse } from "./platform/types.js";
import type { Fault } from "./retry.js";

/** The longest delay of a timer of JavaScript. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** A failed attempt: the fault for the retry rules, and the error for the caller. */
export interface Failure {
  readonly fault: Fault;
  readonly error: SandboxdError;
}

/** A response whose body is still arriving. Must be closed. */
export interface StreamedResponse {
  readonly status: number;
  readonly headers: HttpResponse["headers"];
  /** The next bytes; `undefined` at the end. Fails if none arrive within `silenceMs`. */
  read(silenceMs: number): Promise<Uint8Array | undefined>;
  /** Closes the connection. The service then stops what it does for this request. */
  close(): void;
}

/** One attempt of a call. */
export class Attempt {
  readonly #controller = new AbortController();
  readonly #limitMs: number;
  readonly #caller: AbortSignal | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isStreaming = false;
  /** Whether the attempt took longer than its limit. */
  isTimedOut = false;
  /** The error of the source of the request body. */
  sourceError: unknown;

  constructor(limitMs: number, caller: AbortSignal | undefined) {
    this.#limitMs = limitMs;
    this.#caller = caller;
    caller?.addEventListener("abort", this.#abort, { once: true });
    this.resume();
  }

  /** Aborts the request. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Restarts the timeout, when the request made progress. */
  resume(): void {
    this.suspend();
    this.#timer = setTimeout(() => {
      this.isTimedOut = true;
      this.#controller.abort();
    }, Math.min(this.#limitMs, LONGEST_TIMER_MS));
  }

  /** Stops the timeout while the source of the request body has no data. */
  suspend(): void {
    clearTimeout(this.#timer);
  }

  /** Waits for a part of the response, until the attempt is aborted. */
  async read<T>(part: Promise<T>): Promise<T> {
    return abortable(part, this.signal);
  }

  /** The response as a stream, which outlives the attempt. */
  streamed(response: HttpResponse): StreamedResponse {
    this.#isStreaming = true;
    this.suspend();
    const reader = response.body?.getReader();
    return {
      status: response.status,
      headers: response.headers,
      read: async (silenceMs) => {
        if (reader === undefined) return undefined;
        return this.#readChunk(reader, silenceMs);
      },
      close: () => {
        this.end();
        this.#controller.abort();
        reader?.cancel().catch(() => undefined);
      },
    };
  }

  async #readChunk(
    reader: ReadableStreamDefaultReader<Uint8Array>,
    silenceMs: number,
  ): Promise<Uint8Array | undefined> {
    const timer = setTimeout(() => {
      this.#controller.abort(silence);
    }, silenceMs);
    const silence = networkError(`no data for ${silenceMs / 1000} s, not even a comment`);
    try {
      const { done, value } = await abortable(reader.read(), this.signal);
      return done ? undefined : value;
    } catch (error) {
      this.#caller?.throwIfAborted();
      if (error === silence) throw silence;
      throw networkError(`the stream was interrupted: ${messageOf(error)}`, error);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Ends the attempt, unless its response is still being streamed. */
  settle(): void {
    if (!this.#isStreaming) this.end();
  }

  /** Ends the attempt. */
  end(): void {
    this.suspend();
    this.#caller?.removeEventListener("abort", this.#abort);
  }

  readonly #abort = (): void => {
    this.#controller.abort(this.#caller?.reason);
  };
}

/** The promise, or a rejection when the signal is aborted. */
export async function abortable<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  if (signal.aborted) {
    // Nothing waits for the promise, so its rejection would be an unhandled one.
    promise.catch(() => undefined);
    throw signal.reason as Error;
  }
  let abort: (() => void) | undefined;
  const aborted = new Promise<never>((_, reject) => {
    abort = () => {
      reject(signal.reason as Error);
    };
    signal.addEventListener("abort", abort, { once: true });
  });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    if (abort !== undefined) signal.removeEventListener("abort", abort);
  }
}

/** Waits, until the signal is aborted. */
export async function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const slept = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, Math.min(ms, LONGEST_TIMER_MS));
  });
  try {
    await (signal === undefined ? slept : abortable(slept, signal));
  } finally {
    clearTimeout(timer);
  }
}
