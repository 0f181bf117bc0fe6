/**
 * The event uploader: sends queued `agent.*` and `cost.llm` events in batches. A single event is sent at once; after a batch
 * the next one waits, unless it is full or a caller flushes, because each request counts against the rate limit of the key.
 *
 * A batch that is rejected because of the rate limit is retried after the requested delay, for some minutes. A batch that
 * fails otherwise is lost. The next flush throws the first error.
 */

import { sleep } from "./attempt.js";
import { checkedRunId, idempotencyHeaders } from "./context.js";
import { configurationError } from "./error-classes.js";
import { randomId } from "./ids.js";
import type { EventBody, EventsRecorded, RuntimeEvent } from "./models.js";
import { jsonPayload } from "./payload.js";
import type { Transport } from "./transport.js";

const QUEUE_MAX = 4096;
const BATCH_INTERVAL_MS = 2000;
/** No caller waits for a batch, so it waits for rate limits whatever the client allows for other calls. */
const MAX_RETRY_WAIT_MS = 300_000;
const BATCH_EVENTS_MAX = 100;
const BATCH_BYTES_MAX = 200 << 10;
/** The limit of the service for the data of a posted event. */
const EVENT_DATA_BYTES = 16 << 10;

interface QueuedEvent {
  readonly body: EventBody;
  readonly bytes: number;
}

/** Uploads events to one sandbox. */
export class EventUploader {
  readonly #transport: Transport;
  readonly #path: string;
  readonly #queue: QueuedEvent[] = [];
  #working: Promise<void> | undefined;
  #notBefore = 0;
  #hurry: AbortController = new AbortController();
  #firstError: unknown;

  constructor(transport: Transport, path: string) {
    this.#transport = transport;
    this.#path = path;
  }

  /** Queues an event that clients can post; ignores others. */
  push(event: RuntimeEvent): void {
    if (!event.type.startsWith("agent.") && event.type !== "cost.llm") return;
    try {
      if (this.#queue.length === QUEUE_MAX) throw unsent(event, `${QUEUE_MAX} events are queued`);
      this.#queue.push(queued(event));
      this.#working ??= this.#work();
    } catch (error) {
      this.#firstError ??= error;
    }
  }

  /** Sends the queued events at once, waits until they are stored, and throws the first error. */
  async flush(): Promise<void> {
    this.#hurry.abort();
    await this.#working;
    const error = this.#firstError;
    this.#firstError = undefined;
    if (error !== undefined) throw error as Error;
  }

  async #work(): Promise<void> {
    // The events that are recorded without a pause go into the first batch.
    await Promise.resolve();
    while (this.#queue.length > 0) {
      const wait = this.#notBefore - Date.now();
      const isFull = this.#queue.length >= BATCH_EVENTS_MAX;
      if (wait > 0 && !isFull) await sleep(wait, this.#hurry.signal).catch(() => undefined);
      await this.#post(this.#batch()).catch((error: unknown) => {
        this.#firstError ??= error;
      });
      this.#notBefore = Date.now() + BATCH_INTERVAL_MS;
    }
    this.#hurry = new AbortController();
    this.#working = undefined;
  }

  #batch(): EventBody[] {
    let bytes = 0;
    let count = 0;
    for (const event of this.#queue) {
      bytes += event.bytes;
      if (count === BATCH_EVENTS_MAX || (count > 0 && bytes > BATCH_BYTES_MAX)) break;
      count++;
    }
    return this.#queue.splice(0, count).map(({ body }) => body);
  }

  async #post(events: EventBody[]): Promise<void> {
    await this.#transport.json<EventsRecorded>({
      method: "POST",
      path: this.#path,
      safety: "repeatable",
      payload: jsonPayload(events),
      headers: idempotencyHeaders(randomId("key_")),
      maxRetryWaitMs: MAX_RETRY_WAIT_MS,
    });
  }
}

function queued({ type, runId, data, timestamp }: RuntimeEvent): QueuedEvent {
  checkedRunId(runId);
  const dataBytes = new TextEncoder().encode(JSON.stringify(data)).length;
  if (dataBytes > EVENT_DATA_BYTES) {
    throw unsent({ type }, `its data has ${dataBytes} bytes, the limit is ${EVENT_DATA_BYTES}`);
  }
  return { body: { type, runId, data, timestamp }, bytes: dataBytes + 256 };
}

function unsent({ type }: Pick<RuntimeEvent, "type">, why: string): Error {
  return configurationError(`an event ${type} was not uploaded: ${why}`);
}
