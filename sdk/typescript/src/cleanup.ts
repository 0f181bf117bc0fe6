/** Clean-ups after aborted calls. They continue without their callers, for a limited time. */

import { abortable } from "./attempt.js";
import type { Log } from "./settings.js";
import type { Call } from "./transport.js";

const LIMIT_MS = 30_000;
/** Longer than the service asks for under any limit, whatever the client allows for other calls. */
export const CLEANUP_WAIT_MS = 600_000;

/** The time in which a clean-up may work. Waits for a rate limit do not count, so that a clean-up is not given up because of one. */
export class WorkLimit {
  readonly #controller = new AbortController();
  #leftMs: number;
  #since = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** The number of calls of the clean-up that wait. */
  #waits = 0;

  constructor(limitMs: number) {
    this.#leftMs = limitMs;
    this.#run();
  }

  /** Aborted at the end of the time. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Stops the clock while a call waits. */
  suspend(): void {
    if (this.#waits++ > 0) return;
    this.end();
    this.#leftMs -= performance.now() - this.#since;
  }

  /** Continues the clock. */
  resume(): void {
    if (--this.#waits === 0) this.#run();
  }

  /** Ends the clock. */
  end(): void {
    clearTimeout(this.#timer);
  }

  #run(): void {
    this.#since = performance.now();
    this.#timer = setTimeout(() => {
      this.#controller.abort(new DOMException("the clean-up took too long", "TimeoutError"));
    }, Math.max(this.#leftMs, 0));
  }
}

/** The part of a call that makes it a step of a clean-up: it waits for rate limits, but not for capacity. */
export function cleanupStep(limit: WorkLimit): Pick<Call, "signal" | "workLimit" | "patience" | "maxRetryWaitMs"> {
  return { signal: limit.signal, workLimit: limit, patience: "limits", maxRetryWaitMs: CLEANUP_WAIT_MS };
}

/** The clean-ups of a client. */
export class Cleanups {
  readonly #log: Log;
  readonly #limitMs: number;
  readonly #running = new Set<Promise<void>>();

  constructor(log: Log, limitMs = LIMIT_MS) {
    this.#log = log;
    this.#limitMs = limitMs;
  }

  /** Starts a clean-up, whose signal is aborted at the end of its time. A failure is logged, because no caller waits for it. */
  start(name: string, work: (limit: WorkLimit) => Promise<unknown>): void {
    const limit = new WorkLimit(this.#limitMs);
    const logged = async (): Promise<void> => {
      try {
        await abortable(work(limit), limit.signal);
      } catch (error) {
        this.#log(`sandboxd: ${name} failed:`, error);
      } finally {
        limit.end();
      }
    };
    const running = logged().finally(() => this.#running.delete(running));
    this.#running.add(running);
  }

  /** Calls back when no clean-up is running: at once, or after the last one. */
  whenIdle(callback: () => void): void {
    if (this.#running.size === 0) {
      callback();
    } else {
      void Promise.all(this.#running).then(() => {
        this.whenIdle(callback);
      });
    }
  }
}
