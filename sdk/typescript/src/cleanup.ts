/** Clean-ups after aborted calls. They continue without their callers, for a limited time. */

import { abortable } from "./attempt.js";

const LIMIT_MS = 30_000;

/** The clean-ups of a client. */
export class Cleanups {
  readonly #limitMs: number;
  readonly #running = new Set<Promise<void>>();

  constructor(limitMs = LIMIT_MS) {
    this.#limitMs = limitMs;
  }

  /** Starts a clean-up, whose signal is aborted at the end of its time. A failure is logged, because no caller waits for it. */
  start(name: string, work: (signal: AbortSignal) => Promise<unknown>): void {
    // The timer of this signal does not keep the program running.
    const signal = AbortSignal.timeout(this.#limitMs);
    const logged = async (): Promise<void> => {
      try {
        await abortable(work(signal), signal);
      } catch (error) {
        console.warn(`sandboxd: ${name} failed:`, error);
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
