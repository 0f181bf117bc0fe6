/** Retry rules: whether and when a failed call is retried. Pure functions; the transport passes the fault and a random number. */

const FIRST_WAIT_MS = 100;
const GROWTH = 4;
const LONGEST_WAIT_MS = 5000;

/**
 * What a second attempt may cause:
 * - `repeatable`: nothing beyond the first, as for reads and requests whose `Idempotency-Key` is stored with their effect
 * - `command`: a command with an `Idempotency-Key`. A retry returns the result of the first attempt; but responses 500 and
 *   502 are not stored, and the command may have run
 * - `after_answer`: safe after an error response; after a lost response the state may have changed meanwhile
 * - `only_unstarted`: safe only if the first attempt did not start
 */
export type Safety = "repeatable" | "command" | "after_answer" | "only_unstarted";

/**
 * How an attempt failed:
 * - `not_sent`: no connection was established
 * - `lost`: sent, perhaps partially, without a response
 * - `no_content`: the source of the body failed
 * - `killed`: the service started the command and killed it, because there was no memory for its output
 * - `answered`: an error response
 */
export type Fault =
  | { readonly kind: "not_sent" | "lost" | "no_content" | "killed" }
  | { readonly kind: "answered"; readonly status: number; readonly code: string };

/** Limits of retries and waits. */
export interface RetryPolicy {
  /** The number of retries. Waits for `Retry-After` after a refusal do not count. */
  readonly retries: number;
  /** The longest that a call waits because the service asked it to, all its waits together; beyond it the caller gets the error. */
  readonly maxRetryWaitMs: number;
}

/** What a call has used of its policy. */
export interface Used {
  readonly retries: number;
  readonly waits: number;
  readonly waitedMs: number;
}

/** What precedes the next attempt: a wait for a limit or for capacity, or the pause before a retry. */
export interface Delay {
  readonly kind: "wait" | "retry";
  readonly ms: number;
}

/** Which refusals a call waits for. */
export type Patience = "limits_and_capacity" | "limits" | "none";

/** Whether the service refused the call before it had any effect: because of a limit, or for lack of capacity. */
export function isRefused(fault: Fault): boolean {
  return fault.kind === "answered" && (fault.code === "RATE_LIMITED" || fault.code === "RESOURCE_EXHAUSTED");
}

/** Whether a refusal with this code is left to the caller. */
export function isLeftToCaller(patience: Patience, code: string): boolean {
  if (code === "RESOURCE_EXHAUSTED") return patience !== "limits_and_capacity";
  return code === "RATE_LIMITED" && patience === "none";
}

/** What precedes the next attempt of a call that may be repeated; `undefined` to give up. `random` is between 0 and 1. */
export function delayOf(
  policy: RetryPolicy,
  used: Used,
  fault: Fault,
  retryAfterMs: number | undefined,
  random: number,
): Delay | undefined {
  const maxRetryWaitMs = policy.maxRetryWaitMs - used.waitedMs;
  // The service says when the call can succeed, so such an attempt is not one of the retries.
  const isWait = isRefused(fault) && retryAfterMs !== undefined;
  const retries = isWait ? Number.MAX_SAFE_INTEGER : policy.retries;
  const ms = retryWaitMs({ retries, maxRetryWaitMs }, (isWait ? used.waits : used.retries) + 1, retryAfterMs, random);
  return ms === undefined ? undefined : { kind: isWait ? "wait" : "retry", ms };
}

/** Whether the call may be retried. */
export function mayRepeat(safety: Safety, fault: Fault): boolean {
  switch (fault.kind) {
    case "not_sent":
      return true;
    case "no_content":
    case "killed":
      return false;
    case "lost":
      return safety === "repeatable" || safety === "command";
    case "answered":
      if (isRefused(fault)) return true;
      // A full disk stays full.
      if (fault.code === "DISK_FULL") return false;
      return fault.status >= 500 && (safety === "repeatable" || safety === "after_answer");
  }
}

/** The delay in ms before retry number `next`, starting with 1; `undefined` to give up. `random` is between 0 and 1. */
export function retryWaitMs(
  policy: RetryPolicy,
  next: number,
  retryAfterMs: number | undefined,
  random: number,
): number | undefined {
  if (next > policy.retries) return undefined;
  const grown = Math.min(FIRST_WAIT_MS * GROWTH ** (next - 1), LONGEST_WAIT_MS);
  // Jitter, so that clients that failed together do not retry together.
  const own = grown * (0.5 + Math.min(Math.max(random, 0), 1) / 2);
  if (retryAfterMs === undefined) return own;
  return retryAfterMs > policy.maxRetryWaitMs ? undefined : retryAfterMs + own / 4;
}
