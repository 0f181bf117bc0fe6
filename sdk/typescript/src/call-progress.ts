/** The progress of a call over its attempts: its waits, its retries, and whether it may have had an effect. */

import { sleep } from "./attempt.js";
import type { Failure } from "./attempt.js";
import type { WorkLimit } from "./cleanup.js";
import type { SandboxdError } from "./errors.js";
import { limitNotice } from "./notices.js";
import type { LimitNotice, Notices } from "./notices.js";
import type { RateQueue } from "./rate-queue.js";
import { delayOf, isLeftToCaller, isRefused, mayRepeat } from "./retry.js";
import type { Delay, Patience, RetryPolicy, Safety, Used } from "./retry.js";

/** Whether the attempts of a call so far may have had an effect. The caller keeps it, to know whether there is something to clean up. */
export class Effect {
  isPossible = false;
}

/** What the progress of a call depends on. */
export interface Repeatable {
  readonly safety: Safety;
  readonly patience?: Patience;
  readonly effect?: Effect;
  readonly workLimit?: WorkLimit;
  readonly signal?: AbortSignal | undefined;
}

/** What calls of a client share. */
export interface Shared {
  readonly policy: RetryPolicy;
  readonly notices: Notices;
  /** The queue of the rate limit of this call, if it has one. */
  readonly queue: RateQueue | undefined;
}

/** One call. `ready` precedes each attempt; `succeeded` or `failed` follows it, and `end` the last one. */
export class CallProgress {
  readonly #call: Repeatable;
  readonly #shared: Shared;
  readonly #number: number;
  #used: Used = { retries: 0, waits: 0, waitedMs: 0 };
  /** What precedes the next attempt, besides the turn in the queue. */
  #delay: Delay | undefined;
  /** Whether the queue counts an attempt of this call. */
  #isInFlight = false;
  #hadEffect = false;
  /** What ends the notices of the limits that this call waits for, by the id of the limit. */
  readonly #notices = new Map<string, () => void>();

  constructor(call: Repeatable, shared: Shared) {
    this.#call = call;
    this.#shared = shared;
    this.#number = shared.queue?.number() ?? 0;
  }

  /** The number of attempts after the first one. */
  get repeats(): number {
    return this.#used.retries + this.#used.waits;
  }

  /** Waits until the next attempt may be sent. */
  async ready(): Promise<void> {
    const { signal, effect } = this.#call;
    signal?.throwIfAborted();
    if (this.#delay !== undefined) await this.#waited(sleep(this.#delay.ms, signal));
    await this.#turn();
    if (effect === undefined) return;
    this.#hadEffect = effect.isPossible;
    effect.isPossible = true;
  }

  /** The attempt succeeded. `remaining` is the number of further calls that the limit admits now. */
  succeeded(remaining: number): void {
    this.#answered(remaining);
  }

  /** The attempt failed. Returns whether there will be another one. */
  failed({ fault, error }: Failure, canBeSent: boolean): boolean {
    const { safety, patience = "limits_and_capacity", effect } = this.#call;
    if (effect !== undefined && (isRefused(fault) || fault.kind === "not_sent")) effect.isPossible = this.#hadEffect;
    const again = mayRepeat(safety, fault) && canBeSent && !isLeftToCaller(patience, error.code);
    const delay = again ? delayOf(this.#shared.policy, this.#used, fault, error.retryAfterMs, Math.random()) : undefined;
    this.#delay = this.#leavesToQueue(error, delay) ? undefined : delay;
    if (delay === undefined) return false;
    const { retries, waits } = this.#used;
    this.#used = { ...this.#used, ...(delay.kind === "wait" ? { waits: waits + 1 } : { retries: retries + 1 }) };
    // Without a request of the service, the pause before a retry is short.
    if (error.retryAfterMs !== undefined) this.#notify(limitNotice(error));
    return true;
  }

  /** The call ends, with or without a result. */
  end(): void {
    this.#answered(0);
    for (const end of this.#notices.values()) end();
  }

  async #turn(): Promise<void> {
    const { policy, queue } = this.#shared;
    if (queue === undefined) return;
    const limitMs = this.#call.patience === "none" ? 0 : policy.maxRetryWaitMs - this.#used.waitedMs;
    await this.#waited(queue.turn(this.#number, limitMs, this.#call.signal));
    this.#isInFlight = true;
  }

  async #waited(wait: Promise<void>): Promise<void> {
    const { workLimit } = this.#call;
    const begin = performance.now();
    workLimit?.suspend();
    try {
      await wait;
    } finally {
      workLimit?.resume();
      this.#used = { ...this.#used, waitedMs: this.#used.waitedMs + performance.now() - begin };
    }
  }

  /** Tells the queue how the attempt ended. Returns whether the queue delays the next one. */
  #leavesToQueue(error: SandboxdError, delay: Delay | undefined): boolean {
    const isQueued = this.#isInFlight && error.code === "RATE_LIMITED" && delay?.kind === "wait";
    if (!isQueued) {
      this.#answered(0);
      return false;
    }
    this.#isInFlight = false;
    this.#shared.queue?.refused(delay.ms);
    return true;
  }

  #answered(remaining: number): void {
    if (!this.#isInFlight) return;
    this.#isInFlight = false;
    this.#shared.queue?.answered(remaining);
  }

  #notify(notice: LimitNotice): void {
    if (!this.#notices.has(notice.id)) this.#notices.set(notice.id, this.#shared.notices.waits(notice));
  }
}
