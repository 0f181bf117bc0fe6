/** Events of the account or of one sandbox: listing, following and posting them. */

import { EventStream } from "./event-stream.js";
import { idempotencyHeaders, queryString } from "./context.js";
import type { CallOptions, SandboxContext } from "./context.js";
import { Described } from "./described.js";
import { terminationReason } from "./error-classes.js";
import { SandboxdError } from "./errors.js";
import { randomId } from "./ids.js";
import type { EventBody, EventKinds, EventList, EventsRecorded, RuntimeEvent } from "./models.js";
import { checkNames } from "./option-names.js";
import type { OptionNames } from "./option-names.js";
import { LARGEST_PAGE } from "./paging.js";
import type { Page } from "./paging.js";
import { jsonPayload } from "./payload.js";
import type { Transport } from "./transport.js";

/** Filters of events. */
export interface EventFilters {
  /** Names or groups, such as `exec.completed` or `exec.*`. Several are alternatives. */
  kinds?: readonly EventKinds[];
  /** Only events of this run. */
  run?: string;
  /** Only events at or after this time. */
  since?: Date | string;
  /** Only events before this time. */
  until?: Date | string;
  /** Only events of this sandbox. */
  sandboxId?: string;
}

/** Options of `list`. */
export interface ListEventsOptions extends EventFilters, CallOptions {
  /** Only events after the one with this id. */
  after?: string;
  /** Only events before the one with this id. */
  before?: string;
  /** Lists the newest events first. */
  newestFirst?: boolean;
  /** The number of events of a request: 1 to 100. Default: 100. */
  pageSize?: number;
}

/** Options of `follow`. */
export interface FollowEventsOptions extends EventFilters, CallOptions {
  /** Begins after the event with this id. Default: with new events. */
  after?: string;
}

/** Options of `post`. */
export interface PostEventsOptions extends CallOptions {
  /** A request with the same key within 24 hours records the events once. */
  idempotencyKey?: string;
}

const FILTERS: OptionNames<EventFilters> = { kinds: true, run: true, since: true, until: true, sandboxId: true };
const LIST: OptionNames<ListEventsOptions> = {
  ...FILTERS,
  ...{ after: true, before: true, newestFirst: true, pageSize: true, signal: true },
};
const FOLLOW: OptionNames<FollowEventsOptions> = { ...FILTERS, after: true, signal: true };
const POST: OptionNames<PostEventsOptions> = { idempotencyKey: true, signal: true };

/** Events of the account, or of one sandbox. */
export class Events extends Described {
  readonly #transport: Transport;
  readonly #sandbox: SandboxContext | undefined;

  /** For `Sandboxd.events` and `Sandbox.events`. */
  constructor(transport: Transport, sandbox?: SandboxContext) {
    super();
    this.#transport = transport;
    this.#sandbox = sandbox;
  }

  /** Lists recorded events, the oldest first. No event is missed or repeated. */
  list(options: ListEventsOptions = {}): ListedEvents {
    checkNames(options, LIST);
    return new ListedEvents((position) => this.#page(options, position), options);
  }

  /**
   * Delivers new events as they are recorded. The stream reconnects and continues after the last event, so that no event is
   * missed or repeated. It ends when the sandbox is terminated; that of the account does not end.
   *
   * Without `after`, the first read connects, and misses what happens before it: await {@link EventStream.start} before you do what
   * causes the events.
   *
   * ```ts
   * const events = await sandbox.events.follow().start();
   * await sandbox.execute("make");
   * for await (const event of events) {
   *   console.log(event.type);
   *   if (event.type === "exec.completed") break;
   * }
   * ```
   *
   * A stream that is not read to its end is closed by leaving the loop, or by {@link EventStream.close}.
   */
  follow(options: FollowEventsOptions = {}): EventStream {
    checkNames(options, FOLLOW);
    return new EventStream({
      connect: (lastEventId) =>
        this.#transport.stream({
          method: "GET",
          path: this.#path(this.#sandbox !== undefined) + queryString(this.#filters(options, this.#sandbox === undefined)),
          safety: "repeatable",
          accept: "text/event-stream",
          signal: options.signal,
          ...(lastEventId === undefined ? {} : { headers: { "last-event-id": lastEventId } }),
        }),
      recordedAfter: (id) => this.list({ ...options, after: id }),
      after: options.after,
      signal: options.signal,
    });
  }

  /** The same as {@link follow}. */
  stream(options: FollowEventsOptions = {}): EventStream {
    return this.follow(options);
  }

  /** Records events of a client program in a sandbox. `Run` does this in batches. */
  async post(events: readonly EventBody[], options: PostEventsOptions = {}): Promise<number> {
    checkNames(options, POST);
    if (this.#sandbox === undefined) throw new TypeError("only the events of a sandbox accept posted events");
    const recorded = await this.#sandbox.json<EventsRecorded>({
      method: "POST",
      path: this.#sandbox.path("/events"),
      safety: "repeatable",
      payload: jsonPayload(events),
      headers: idempotencyHeaders(options.idempotencyKey ?? randomId("key_")),
      signal: options.signal,
    });
    return recorded.recorded;
  }

  protected describe(): object {
    return this.#sandbox === undefined ? {} : { sandbox: this.#sandbox.id };
  }

  async #page(options: ListEventsOptions, position: Position): Promise<EventList> {
    const query = (ofAccount: boolean): string =>
      queryString({
        limit: options.pageSize ?? LARGEST_PAGE,
        offset: position.offset,
        ...this.#filters(options, ofAccount),
        after: position.after,
        before: position.before,
        order: options.newestFirst === true ? "desc" : undefined,
      });
    const { signal } = options;
    if (this.#sandbox !== undefined) {
      try {
        const path = this.#path(true) + query(false);
        return await this.#transport.json<EventList>({ method: "GET", path, safety: "repeatable", signal });
      } catch (error) {
        // The events of a terminated sandbox remain in the list of the account.
        if (!(error instanceof SandboxdError) || terminationReason(error) === undefined) throw error;
      }
    }
    return this.#transport.json({ method: "GET", path: this.#path(false) + query(true), safety: "repeatable", signal });
  }

  #path(ofSandbox: boolean): string {
    return ofSandbox && this.#sandbox !== undefined ? this.#sandbox.path("/events") : "/v1/events";
  }

  #filters(options: EventFilters, ofAccount: boolean): Record<string, string | readonly string[] | undefined> {
    return {
      sandboxId: ofAccount ? (this.#sandbox?.id ?? options.sandboxId) : undefined,
      type: options.kinds,
      runId: options.run,
      since: timeOf(options.since),
      until: timeOf(options.until),
    };
  }
}

/** Where a page of events begins. */
export interface Position {
  readonly offset: number;
  readonly after?: string | undefined;
  readonly before?: string | undefined;
}

/** Recorded events. Iterating them fetches pages on demand, each after the last event of the previous one. */
export class ListedEvents extends Described implements AsyncIterable<RuntimeEvent> {
  readonly #fetch: (position: Position) => Promise<Page<RuntimeEvent>>;
  readonly #options: ListEventsOptions;

  /** For `Events.list`. */
  constructor(fetch: (position: Position) => Promise<Page<RuntimeEvent>>, options: ListEventsOptions) {
    super();
    this.#fetch = fetch;
    this.#options = options;
  }

  /** The page that starts at `offset`. */
  page(offset = 0): Promise<Page<RuntimeEvent>> {
    const { after, before } = this.#options;
    return this.#fetch({ offset, after, before });
  }

  /** The exact number of events that match the filters now. */
  async total(): Promise<number> {
    return (await this.page()).pagination.total;
  }

  /** All events. */
  async toArray(): Promise<RuntimeEvent[]> {
    const events: RuntimeEvent[] = [];
    for await (const event of this) events.push(event);
    return events;
  }

  protected describe(): object {
    return {};
  }

  /** The events, page by page. */
  async *[Symbol.asyncIterator](): AsyncGenerator<RuntimeEvent> {
    let { after, before } = this.#options;
    for (;;) {
      const page = await this.#fetch({ offset: 0, after, before });
      yield* page.data;
      const last = page.data.at(-1)?.id;
      // An empty page that announces more would cause an endless loop.
      if (!page.pagination.hasMore || last === undefined) return;
      if (this.#options.newestFirst === true) before = last;
      else after = last;
    }
  }
}

/** The text of a time. */
export function timeOf(time: Date | string | undefined): string | undefined {
  return time instanceof Date ? time.toISOString() : time;
}
