/** Lifecycle events of a sandbox, for handlers registered with `Sandbox.on`. Calls of an object report what they did and observed. */

import type { SandboxdError } from "./errors.js";

/** The lifecycle events by name. */
export interface LifecycleEvents {
  /** The sandbox was created and runs. */
  started: { /** Tells the events apart. */ readonly type: "started" };
  /** The sandbox was paused. */
  paused: { readonly type: "paused"; /** The total running time so far. */ readonly runtimeDurationMs: number };
  /** The sandbox was resumed. */
  resumed: { readonly type: "resumed"; /** The duration of the pause. */ readonly pausedDurationMs: number };
  /** The sandbox is terminated. Reported once. */
  terminated: {
    readonly type: "terminated";
    /** `deleted` on request, `timeout` when its running time was used up, `expired` when it was paused for too long. */
    readonly reason: string;
    /** The total running time; absent if the call found the sandbox terminated. */
    readonly totalRuntimeMs?: number;
    /** The time of the termination; absent if the call found the sandbox terminated. */
    readonly terminatedAt?: string;
  };
  /** A call failed. */
  failed: { readonly type: "failed"; readonly error: SandboxdError };
}

/** The name of a lifecycle event. */
export type LifecycleEventName = keyof LifecycleEvents;
/** Any lifecycle event, discriminated by `type`. */
export type LifecycleEvent = LifecycleEvents[LifecycleEventName];
/** Handlers to register when a sandbox is created. */
export type LifecycleHandlers = { [E in LifecycleEventName]?: (event: LifecycleEvents[E]) => void };

/** The registered handlers of a sandbox. */
export class Handlers {
  readonly #all = new Map<LifecycleEventName, Set<(event: never) => void>>();

  /** Registers a handler, and returns a function that removes it. */
  add<E extends LifecycleEventName>(name: E, handler: (event: LifecycleEvents[E]) => void): () => void {
    const handlers = this.#all.get(name) ?? new Set();
    this.#all.set(name, handlers.add(handler));
    return () => {
      handlers.delete(handler);
    };
  }

  /** Registers several handlers. */
  addAll(handlers: LifecycleHandlers): void {
    const { started, paused, resumed, terminated, failed } = handlers;
    if (started !== undefined) this.add("started", started);
    if (paused !== undefined) this.add("paused", paused);
    if (resumed !== undefined) this.add("resumed", resumed);
    if (terminated !== undefined) this.add("terminated", terminated);
    if (failed !== undefined) this.add("failed", failed);
  }

  /** Calls the handlers of an event. */
  notify(event: LifecycleEvent): void {
    callAll(this.#all.get(event.type) ?? [], event as never);
  }
}

/** Calls handlers. An error of one is logged: what it is told about has happened, and the call must not fail because of it. */
export function callAll<E>(handlers: Iterable<(event: E) => void>, event: E): void {
  // A copy, because a handler may add another.
  for (const handler of [...handlers]) {
    try {
      handler(event);
    } catch (error) {
      console.error("a handler of sandboxd failed:", error);
    }
  }
}
