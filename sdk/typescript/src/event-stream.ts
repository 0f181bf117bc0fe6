/**
 * An event stream that reconnects. Its position is the last event that was returned, or a later id that the service sent; a new
 * connection continues after it. When the sandbox is gone, the rest comes from the list of recorded events.
 */

import { sleep } from "./attempt.js";
import type { StreamedResponse } from "./attempt.js";
import { ClosableIterator } from "./closable-iterator.js";
import { errorOfEvent, networkError, terminationReason } from "./error-classes.js";
import { SandboxdError } from "./errors.js";
import type { RuntimeEvent } from "./models.js";
import { EventSource } from "./output.js";
import { retryWaitMs } from "./retry.js";
import type { RetryPolicy } from "./retry.js";
import type { SseEvent } from "./sse.js";

/** A connection that ends sooner counts as a failure, so that reconnecting slows down. */
const SHORT_MS = 1000;
const GIVE_UP_AFTER_MS = 300_000;
const POLICY: RetryPolicy = { retries: Number.MAX_SAFE_INTEGER, maxRetryWaitMs: GIVE_UP_AFTER_MS };

/** Where the events of a stream come from. */
export interface EventSourceOptions {
  connect(lastEventId: string | undefined): Promise<StreamedResponse>;
  recordedAfter(id: string): AsyncIterable<RuntimeEvent>;
  readonly after: string | undefined;
  readonly signal: AbortSignal | undefined;
}

/** A stream of events. It ends after the first error that does not pass. */
export class EventStream extends ClosableIterator<RuntimeEvent> {
  readonly #options: EventSourceOptions;
  #lastEvent: string | undefined;
  #source: EventSource | undefined;
  #recorded: AsyncIterator<RuntimeEvent> | undefined;
  #isStarted = false;
  #isOver = false;
  #connectedAt = 0;
  /** The number of short connections in succession. */
  #short = 0;

  /** For `Events.follow`. */
  constructor(options: EventSourceOptions) {
    super();
    this.#options = options;
    this.#lastEvent = options.after;
  }

  /** The id of the last event that was returned or skipped. */
  get lastEventId(): string | undefined {
    return this.#lastEvent;
  }

  /** Connects, so that all events that are recorded from now on are delivered. The first read does this otherwise. */
  async start(): Promise<this> {
    if (this.#isStarted) return this;
    this.#isStarted = true;
    try {
      this.#source = await this.#connected();
      // Without a first event or id, a lost connection could not be continued.
      while (this.#lastEvent === undefined && !this.#source.hasEvents()) {
        if (!(await this.#source.fill())) throw networkError("the stream of events ended");
        if (!this.#source.hasEvents()) this.#lastEvent = this.#source.lastId;
      }
    } catch (error) {
      this.close();
      throw error;
    }
    return this;
  }

  /** Returns the next event. Connects again after a lost connection. */
  async next(): Promise<IteratorResult<RuntimeEvent, undefined>> {
    await this.start();
    try {
      while (!this.#isOver) {
        const value = await this.#step();
        if (value !== undefined) return { done: false, value };
      }
    } catch (error) {
      this.close();
      throw error;
    }
    return { done: true, value: undefined };
  }

  /** Ends the stream. */
  close(): void {
    this.#isOver = true;
    this.#disconnect();
  }

  /** Returns an event, or makes progress towards the next one. */
  async #step(): Promise<RuntimeEvent | undefined> {
    if (this.#recorded !== undefined) {
      const next = await this.#recorded.next();
      if (next.done !== true) return next.value;
      this.close();
      return undefined;
    }
    const source = this.#source;
    if (source === undefined) {
      await this.#reconnect();
      return undefined;
    }
    try {
      if (source.hasEvents()) return this.#parse(await source.next());
      if (!(await source.fill())) this.#disconnect();
      // Waiting events are returned first, and advance the position.
      else if (!source.hasEvents()) this.#advance(source.lastId);
    } catch (error) {
      if (!isPassing(error)) throw error;
      this.#disconnect();
    }
    return undefined;
  }

  #parse(event: SseEvent | undefined): RuntimeEvent | undefined {
    if (event === undefined) return undefined;
    if (event.event === "error") {
      throw errorOfEvent(event.data) ?? networkError("the stream ended with an error that cannot be parsed");
    }
    const isOld = event.id !== undefined && this.#lastEvent !== undefined && event.id <= this.#lastEvent;
    if (isOld) return undefined;
    this.#advance(event.id);
    try {
      return JSON.parse(event.data) as RuntimeEvent;
    } catch {
      return undefined;
    }
  }

  #advance(id: string | undefined): void {
    if (id !== undefined && id > (this.#lastEvent ?? "")) this.#lastEvent = id;
  }

  async #reconnect(): Promise<void> {
    const { signal } = this.#options;
    const begin = Date.now();
    this.#short = begin - this.#connectedAt < SHORT_MS ? this.#short + 1 : 0;
    if (this.#short > 0) await sleep(retryWaitMs(POLICY, this.#short, undefined, Math.random()) ?? 0, signal);
    for (let attempt = 1; ; attempt++) {
      try {
        this.#source = await this.#connected();
        return;
      } catch (error) {
        if (!(error instanceof SandboxdError)) throw error;
        if (terminationReason(error) !== undefined) {
          const recorded = this.#options.recordedAfter(this.#lastEvent ?? "ev_0000000000000000");
          this.#recorded = recorded[Symbol.asyncIterator]();
          return;
        }
        const pause = retryWaitMs(POLICY, attempt, error.retryAfterMs, Math.random());
        if (pause === undefined || Date.now() - begin + pause > GIVE_UP_AFTER_MS || !isPassing(error)) throw error;
        await sleep(pause, signal);
      }
    }
  }

  async #connected(): Promise<EventSource> {
    const source = new EventSource(await this.#options.connect(this.#lastEvent));
    this.#connectedAt = Date.now();
    return source;
  }

  #disconnect(): void {
    this.#source?.close();
    this.#source = undefined;
  }
}

function isPassing(error: unknown): boolean {
  // Permanent failures, such as an untrusted certificate, were reported by the first connection.
  return error instanceof SandboxdError && error.retryable;
}
