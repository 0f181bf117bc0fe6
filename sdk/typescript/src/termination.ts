/** The termination of a sandbox: on request, and by clean-ups. */

import { CLEANUP_WAIT_MS, cleanupStep } from "./cleanup.js";
import type { WorkLimit } from "./cleanup.js";
import type { SandboxContext } from "./context.js";
import { terminationReason } from "./error-classes.js";
import { SandboxdError } from "./errors.js";
import type { LifecycleEvents } from "./lifecycle.js";
import type { TerminateResult } from "./models.js";
import type { Call, Transport } from "./transport.js";

const DELETED = "deleted";

/** The termination of a sandbox. */
export type Terminated = LifecycleEvents["terminated"];

/** Terminates a sandbox. If the retry after a lost response finds it terminated, the first attempt did it. */
export async function terminate(context: SandboxContext, limits: Pick<Call, "signal" | "maxRetryWaitMs">): Promise<Terminated> {
  const end = await terminated(context, limits);
  context.ended(end);
  return end;
}

/**
 * Terminates a sandbox at the end of its block, unless it is terminated already. Waits for rate limits whatever the client allows
 * for other calls: nothing else would terminate the sandbox before its timeout.
 */
export async function dispose(context: SandboxContext): Promise<void> {
  if (context.isTerminated) return;
  const { maxRetryWaitMs } = context.transport.settings.policy;
  // Its lifetime may have ended meanwhile.
  await unlessTerminated(terminate(context, { maxRetryWaitMs: Math.max(maxRetryWaitMs, CLEANUP_WAIT_MS) }));
}

/** Terminates sandboxes as a step of a clean-up. A failure does not leave the others without a termination. */
export async function terminateAll(transport: Transport, ids: readonly string[], limit: WorkLimit): Promise<void> {
  const terminations = ids.map((id) => {
    const call: Call = { method: "DELETE", path: `/v1/sandboxes/${id}`, safety: "repeatable", ...cleanupStep(limit) };
    return unlessTerminated(transport.json<TerminateResult>(call));
  });
  const results = await Promise.allSettled(terminations);
  const rejected = results.find((result) => result.status === "rejected");
  if (rejected !== undefined) throw rejected.reason;
}

/** The result of a call, or `undefined` if its sandbox is terminated. */
export async function unlessTerminated<T>(called: Promise<T>): Promise<T | undefined> {
  try {
    return await called;
  } catch (error) {
    if (error instanceof SandboxdError && terminationReason(error) !== undefined) return undefined;
    throw error;
  }
}

async function terminated(context: SandboxContext, limits: Pick<Call, "signal" | "maxRetryWaitMs">): Promise<Terminated> {
  try {
    const call: Call = { method: "DELETE", path: context.path(), safety: "repeatable", ...limits };
    const { totalRuntimeMs, terminatedAt } = await context.inRun<TerminateResult>(call);
    return { type: "terminated", reason: DELETED, totalRuntimeMs, terminatedAt };
  } catch (error) {
    const isOwn = error instanceof SandboxdError && error.repeats > 0 && terminationReason(error) === DELETED;
    if (isOwn) return { type: "terminated", reason: DELETED };
    throw context.failed(error);
  }
}
