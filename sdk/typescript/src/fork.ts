/** Forks: new sandboxes with the configuration of a sandbox and a copy of its disk. */

import { defined, idempotencyHeaders } from "./context.js";
import type { CallOptions, SandboxContext } from "./context.js";
import { terminationReason } from "./error-classes.js";
import { SandboxdError } from "./errors.js";
import { randomId } from "./ids.js";
import type { ForkBody, ForkList, SandboxView, TerminateResult } from "./models.js";
import { jsonPayload } from "./payload.js";
import type { Call, Transport } from "./transport.js";

/** Options of a fork. */
export interface ForkOptions extends CallOptions {
  /** The number of new sandboxes: 1 to 100. */
  count: number;
  /** Environment variables, added to those of the sandbox. */
  env?: Readonly<Record<string, string>>;
  /** Tags of the new sandboxes, instead of those of the sandbox. */
  metadata?: Readonly<Record<string, string>>;
  /**
   * Whether the new sandboxes continue copies of the processes. `Sandboxd.info` lists the backends that can. Default: `false`.
   */
  memory?: boolean;
  /** A request with the same key within 24 hours, from any process, returns the same sandboxes. */
  idempotencyKey?: string;
}

/**
 * Forks a sandbox. `wrap` makes objects of the new sandboxes. If the call is aborted, or fails after the new sandboxes exist,
 * they are terminated in the background.
 */
export async function forkSandbox<T>(
  context: SandboxContext,
  options: ForkOptions,
  wrap: (views: readonly SandboxView[]) => T,
): Promise<T> {
  const { count, env, metadata, memory, idempotencyKey, signal } = options;
  const { transport } = context;
  const call: Call = {
    method: "POST",
    path: context.path("/fork"),
    safety: "repeatable",
    payload: jsonPayload(defined<ForkBody>({ count, env, metadata, memory })),
    headers: idempotencyHeaders(idempotencyKey ?? randomId("key_")),
    signal,
  };
  // Before the first request there is nothing to clean up.
  signal?.throwIfAborted();
  let views: readonly SandboxView[] | undefined;
  try {
    views = (await context.json<ForkList>(call)).data;
    context.record("sandbox.forked", { sandboxIds: views.map(({ id }) => id) });
    return wrap(views);
  } catch (error) {
    // Without a key of the caller, only this call can find the new sandboxes.
    if (idempotencyKey === undefined && (views !== undefined || signal?.aborted === true)) {
      const known = views;
      transport.cleanups.start("terminating the sandboxes of a cancelled fork", (limit) => undo(transport, call, known, limit));
    }
    throw error;
  }
}

/** Terminates the sandboxes of a fork. If they are unknown, a request with the same idempotency key returns them. */
async function undo(
  transport: Transport,
  fork: Call,
  known: readonly SandboxView[] | undefined,
  signal: AbortSignal,
): Promise<void> {
  const repeated: Call = { ...fork, isImpatient: true, signal };
  // If the forked sandbox is terminated and the fork has no recorded response, it created nothing.
  const views = known ?? (await unlessTerminated(transport.json<ForkList>(repeated)))?.data ?? [];
  const terminations = views.map(({ id }) => {
    const call: Call = { method: "DELETE", path: `/v1/sandboxes/${id}`, safety: "repeatable", signal };
    return unlessTerminated(transport.json<TerminateResult>(call));
  });
  // A failure must not leave the others without a termination.
  const results = await Promise.allSettled(terminations);
  const rejected = results.find((result) => result.status === "rejected");
  if (rejected !== undefined) throw rejected.reason;
}

/** The result of a call, or `undefined` if its sandbox is terminated. */
async function unlessTerminated<T>(called: Promise<T>): Promise<T | undefined> {
  try {
    return await called;
  } catch (error) {
    if (error instanceof SandboxdError && terminationReason(error) !== undefined) return undefined;
    throw error;
  }
}
