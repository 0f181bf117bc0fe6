/** What the SDK reports besides results and errors: calls that wait for a limit, and fields that the service ignored. */

import type { SandboxdError } from "./errors.js";
import type { Log } from "./settings.js";

/** The response header that names the fields of a request which the service does not know. */
const IGNORED_FIELDS = "sandboxd-ignored-fields";
/** Beyond that many different warnings, the earlier ones may appear again. */
const MOST_WARNINGS = 1000;

/** The limit that refused a call. */
export interface LimitNotice {
  /** The same for all refusals of the limit. */
  readonly id: string;
  readonly message: string;
}

/** The notices of a client. */
export class Notices {
  readonly #log: Log;
  /** The number of waiting calls by the id of the limit. */
  readonly #waiting = new Map<string, number>();
  readonly #warned = new Set<string>();

  constructor(log: Log) {
    this.#log = log;
  }

  /** A call begins to wait. Only the first of the calls that wait for a limit is reported. Returns what ends the wait. */
  waits({ id, message }: LimitNotice): () => void {
    const others = this.#waiting.get(id) ?? 0;
    this.#waiting.set(id, others + 1);
    if (others === 0) this.#log(`sandboxd: ${message}`);
    return () => {
      const left = (this.#waiting.get(id) ?? 1) - 1;
      if (left === 0) this.#waiting.delete(id);
      else this.#waiting.set(id, left);
    };
  }

  /** Warns, once, about fields of a request that the service ignored: they may be misspelled, or need a newer service. */
  ignoredFields(method: string, path: string, headers: { get(name: string): string | null }): void {
    const fields = headers.get(IGNORED_FIELDS);
    if (fields === null || fields === "") return;
    const kind = `${method} ${fields}`;
    if (this.#warned.has(kind)) return;
    if (this.#warned.size === MOST_WARNINGS) this.#warned.clear();
    this.#warned.add(kind);
    const [endpoint = path] = path.split("?");
    this.#log(`sandboxd: the service ignored unknown fields of ${method} ${endpoint}: ${fields}`);
  }
}

/** What to report of a call that was refused and waits. The details of the error name the limit, its value and its setting. */
export function limitNotice({ code, message, details, retryAfterMs = 0 }: SandboxdError): LimitNotice {
  const { limit, value, key, condition } = details;
  const seconds = Math.ceil(retryAfterMs / 1000);
  if (typeof limit !== "string" || typeof value !== "number") {
    return { id: `${code} ${String(condition)}`, message: `waiting ${seconds} s: ${message}` };
  }
  const setting = typeof key === "string" ? `; the operator sets ${key}` : "; this limit is fixed";
  return { id: `${code} ${limit}`, message: `${value} ${limit}: waiting ${seconds} s${setting}` };
}
