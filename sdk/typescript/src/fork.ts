/** Forks: new sandboxes with the configuration of a sandbox and a copy of its disk. */

import { Effect } from "./call-progress.js";
import { cleanupStep } from "./cleanup.js";
import type { WorkLimit } from "./cleanup.js";
import { defined, idempotencyHeaders } from "./context.js";
import type { CallOptions, SandboxContext } from "./context.js";
import { randomId } from "./ids.js";
import type { ForkBody, ForkList, SandboxView } from "./models.js";
import { checkNames } from "./option-names.js";
import type { OptionNames } from "./option-names.js";
import { jsonPayload } from "./payload.js";
import { terminateAll, unlessTerminated } from "./termination.js";
import type { Call, Transport } from "./transport.js";

/** Options of a fork. */
export interface ForkOptions extends CallOptions {
  /** The number of new sandboxes: 1 to 100. */
  count: number;
  /** Environment variables, added to those of the sandbox. */
  env?: Readonly<Record<string, string>>;
  /** The name of the new sandbox, if `count` is 1. Without it a fork has no name. */
  name?: string;
  /** Tags of the new sandboxes, instead of those of the sandbox. */
  metadata?: Readonly<Record<string, string>>;
  /**
   * Whether the new sandboxes continue copies of the processes. `Sandboxd.info` lists the backends that can. Default: `false`.
   */
  memory?: boolean;
  /** A request with the same key within 24 hours, from any process, returns the same sandboxes. */
  idempotencyKey?: string;
}

const OPTIONS: OptionNames<ForkOptions> = {
  ...{ count: true, env: true, name: true, metadata: true, memory: true, idempotencyKey: true, signal: true },
};

/**
 * Forks a sandbox. `wrap` makes objects of the new sandboxes. If the call is aborted, or fails after the new sandboxes exist,
 * they are terminated in the background.
 */
export async function forkSandbox<T>(
  context: SandboxContext,
  options: ForkOptions,
  wrap: (views: readonly SandboxView[]) => T,
): Promise<T> {
  const { count, env, name, metadata, memory, idempotencyKey, signal } = checkNames(options, OPTIONS);
  const { transport } = context;
  const effect = new Effect();
  const call: Call = {
    method: "POST",
    path: context.path("/fork"),
    safety: "repeatable",
    payload: jsonPayload(defined<ForkBody>({ count, env, name, metadata, memory })),
    headers: idempotencyHeaders(idempotencyKey ?? randomId("key_")),
    isCreate: true,
    effect,
    signal,
  };
  let views: readonly SandboxView[] | undefined;
  try {
    views = (await context.json<ForkList>(call)).data;
    context.record("sandbox.forked", { sandboxIds: views.map(({ id }) => id) });
    return wrap(views);
  } catch (error) {
    const mayExist = views !== undefined || (signal?.aborted === true && effect.isPossible);
    // Without a key of the caller, only this call can find the new sandboxes.
    if (idempotencyKey === undefined && mayExist) {
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
  limit: WorkLimit,
): Promise<void> {
  const repeated: Call = { ...fork, ...cleanupStep(limit) };
  // If the forked sandbox is terminated and the fork has no recorded response, it created nothing.
  const views = known ?? (await unlessTerminated(transport.json<ForkList>(repeated)))?.data ?? [];
  await terminateAll(transport, views.map(({ id }) => id), limit);
}
