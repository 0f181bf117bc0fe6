/**
 * The calls of a client that count against the same rate limit. Without a queue, calls that are refused together would come back
 * together, and one could be overtaken by others again and again. While a call waits, later ones wait behind it; when the limit
 * admits calls again, they are sent in the order in which they were made.
 */

import { abortable, LONGEST_TIMER_MS } from "./attempt.js";

/** A call that waits for its turn. */
interface Waiter {
  readonly number: number;
  readonly begin: () => void;
  isReleased: boolean;
}

/** The queue of one rate limit. */
export class RateQueue {
  #lastNumber = 0;
  /** In the order of their numbers. */
  #waiting: Waiter[] = [];
  /** The number of calls that are sent and not answered. */
  #inFlight = 0;
  #pausedUntil = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** The number of a new call. */
  number(): number {
    return ++this.#lastNumber;
  }

  /**
   * Waits until the call may be sent, but not longer than `limitMs`: then it is sent nevertheless, so that the service says why it
   * is refused. After each turn `answered` or `refused` must be called.
   */
  async turn(number: number, limitMs: number, signal: AbortSignal | undefined): Promise<void> {
    const pausedMs = this.#pausedMs();
    const isFree = this.#waiting.length === 0 && pausedMs === 0;
    if (isFree || pausedMs > limitMs) this.#inFlight++;
    else await this.#wait(number, limitMs, signal);
  }

  /** The call was not refused. `remaining` is the number of further calls that the limit admits, 0 if it is not known. */
  answered(remaining: number): void {
    this.#inFlight--;
    // Of the calls in flight, the service may have counted none.
    this.#release(remaining - this.#inFlight);
  }

  /** The call was refused, and the limit admits the next one after this time. */
  refused(waitMs: number): void {
    this.#inFlight--;
    this.#pausedUntil = Math.max(this.#pausedUntil, performance.now() + waitMs);
    this.#schedule();
  }

  async #wait(number: number, limitMs: number, signal: AbortSignal | undefined): Promise<void> {
    let begin: () => void = () => undefined;
    const begun = new Promise<void>((resolve) => (begin = resolve));
    const waiter: Waiter = { number, begin, isReleased: false };
    this.#insert(waiter);
    const timer = setTimeout(begin, Math.min(limitMs, LONGEST_TIMER_MS));
    try {
      await (signal === undefined ? begun : abortable(begun, signal));
      if (!waiter.isReleased) this.#inFlight++;
    } catch (error) {
      if (waiter.isReleased) this.answered(0);
      throw error;
    } finally {
      clearTimeout(timer);
      this.#waiting = this.#waiting.filter((each) => each !== waiter);
      this.#schedule();
    }
  }

  #insert(waiter: Waiter): void {
    const after = this.#waiting.findIndex(({ number }) => number > waiter.number);
    this.#waiting.splice(after < 0 ? this.#waiting.length : after, 0, waiter);
    this.#schedule();
  }

  /** Lets waiting calls be sent. One of them is always sent if none is in flight, because nothing else would wake the others. */
  #release(count: number): void {
    if (this.#pausedMs() > 0) return;
    for (let left = Math.max(count, this.#inFlight === 0 ? 1 : 0); left > 0; left--) {
      const waiter = this.#waiting.shift();
      if (waiter === undefined) return;
      waiter.isReleased = true;
      this.#inFlight++;
      waiter.begin();
    }
  }

  /** Sets the timer for the end of the pause. Without waiting calls there is none, because it would keep the program running. */
  #schedule(): void {
    clearTimeout(this.#timer);
    if (this.#waiting.length === 0) return;
    const pausedMs = this.#pausedMs();
    if (pausedMs === 0) {
      // The pause ended before its timer was called.
      this.#release(0);
      return;
    }
    this.#timer = setTimeout(() => {
      // A timer may be called slightly too early.
      this.#pausedUntil = 0;
      // The first call finds out whether the limit admits calls again.
      this.#release(1);
    }, Math.min(pausedMs, LONGEST_TIMER_MS));
  }

  #pausedMs(): number {
    return Math.max(this.#pausedUntil - performance.now(), 0);
  }
}
