/** What the parts of a sandbox object share: its transport, its run, and the report of failures. */

import { argumentError, configurationError, terminationReason } from "./error-classes.js";
import { SandboxdError } from "./errors.js";
import { Handlers } from "./lifecycle.js";
import type { LifecycleEvents } from "./lifecycle.js";
import type { EventKind } from "./models.js";
import { checkNames } from "./option-names.js";
import type { OptionNames } from "./option-names.js";
import type { Run } from "./run.js";
import type { Call, Transport } from "./transport.js";
import type { StreamedResponse } from "./attempt.js";

/** Options of every call. */
export interface CallOptions {
  /** Aborts the call, which then throws the reason of the signal. */
  signal?: AbortSignal;
}

/** Options of calls that resume a paused sandbox. */
export interface ResumingOptions extends CallOptions {
  /** With `false` the call fails with `INVALID_STATE` if the sandbox is paused, instead of resuming it. */
  autoResume?: boolean;
}

const CALL_OPTIONS: OptionNames<CallOptions> = { signal: true };

/** The signal of a call that has no other options. */
export function signalOf(options: CallOptions): AbortSignal | undefined {
  return checkNames(options, CALL_OPTIONS).signal;
}

/**
 * The contexts of public objects. They are not properties, because whatever copies or prints the properties of an object would reach
 * the connection to the service through them.
 */
const contexts = new WeakMap<object, SandboxContext>();

/** Keeps the context of a public object. */
export function keepContext(owner: object, context: SandboxContext): void {
  contexts.set(owner, context);
}

/** The context of a public object. */
export function contextOf(owner: object): SandboxContext {
  const context = contexts.get(owner);
  if (context === undefined) throw argumentError("sandbox", "an object of a sandbox is expected");
  return context;
}

/** A sandbox, as its parts see it. */
export class SandboxContext {
  readonly transport: Transport;
  /** The name, until the id is known, if the object was made with a name. */
  id: string;
  readonly handlers: Handlers;
  run: Run | undefined;
  isTerminated = false;
  readonly #reported = new WeakSet<SandboxdError>();

  constructor(transport: Transport, id: string, run?: Run, handlers = new Handlers()) {
    this.transport = transport;
    this.id = id;
    this.run = run;
    this.handlers = handlers;
  }

  /** The URL path of the sandbox with a suffix and a query. */
  path(rest = "", query: Query = {}): string {
    return `/v1/sandboxes/${this.id}${rest}${queryString(query)}`;
  }

  /** Sends a call, and reports its failure. */
  async json<T>(call: Call): Promise<T> {
    try {
      return await this.transport.json<T>(call);
    } catch (error) {
      throw this.failed(error);
    }
  }

  /** Sends a call that counts as part of the run. The caller reports the failure. */
  inRun<T>(call: Call, runId?: string): Promise<T> {
    return this.transport.json<T>(this.withRunId(call, runId));
  }

  /** The same for a streamed response. */
  streamInRun(call: Call, runId?: string): Promise<StreamedResponse> {
    return this.transport.stream(this.withRunId(call, runId));
  }

  /** Records an event of this sandbox in its run. */
  record(kind: EventKind, data: Readonly<Record<string, unknown>>): void {
    this.run?.record(kind, data, this.id);
  }

  /** Reports a failed call, once, and the termination of the sandbox if the error reports it. Returns the error. */
  failed(error: unknown): unknown {
    // A method that is built on others passes their errors on.
    if (!(error instanceof SandboxdError) || this.#reported.has(error)) return error;
    this.#reported.add(error);
    const reason = terminationReason(error);
    if (reason !== undefined) this.ended({ type: "terminated", reason });
    const { codeName: code, message, requestId = null } = error;
    this.record("sandbox.error", { code, message, requestId });
    this.handlers.notify({ type: "failed", error });
    return error;
  }

  /** Reports the termination, once. */
  ended(end: LifecycleEvents["terminated"]): void {
    if (this.isTerminated) return;
    this.isTerminated = true;
    this.record("sandbox.terminated", { reason: end.reason, totalRuntimeMs: end.totalRuntimeMs ?? null });
    this.handlers.notify(end);
  }

  private withRunId(call: Call, runId = this.run?.id): Call {
    if (runId === undefined) return call;
    return { ...call, headers: { ...call.headers, "x-run-id": checkedRunId(runId) } };
  }
}

/** The run id, if it can be sent. */
export function checkedRunId(runId: string): string {
  if (!/^[\x21-\x7e]{1,128}$/.test(runId)) {
    throw configurationError(`invalid run id '${runId}': a run id is 1 to 128 visible ASCII characters`);
  }
  return runId;
}

/** The headers for an idempotency key. */
export function idempotencyHeaders(key: string): Record<string, string> {
  if (!/^[\x21-\x7e]{1,255}$/.test(key)) {
    throw configurationError("an Idempotency-Key is 1 to 255 visible ASCII characters");
  }
  return { "idempotency-key": key };
}

/** Query parameters. Absent values are omitted, and several values repeat the name. */
export type Query = Readonly<Record<string, string | number | boolean | readonly string[] | undefined>>;

/** The query of a URL with its question mark, or an empty string. */
export function queryString(query: Query): string {
  const pairs: string[] = [];
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined) continue;
    for (const each of Array.isArray(value) ? (value as readonly string[]) : [String(value)]) {
      pairs.push(`${encodeURIComponent(name)}=${encodeURIComponent(each)}`);
    }
  }
  return pairs.length === 0 ? "" : `?${pairs.join("&")}`;
}

/** The query parameters that filter by tags. */
export function metadataQuery(metadata: Readonly<Record<string, string>> = {}): Record<string, string> {
  return Object.fromEntries(Object.entries(metadata).map(([key, value]) => [`metadata.${key}`, value]));
}

/** Removes the properties that are `undefined`, so that they are not sent. */
export function defined<T extends object>(object: { [K in keyof T]: T[K] | undefined }): T {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined)) as T;
}
