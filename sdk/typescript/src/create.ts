/** The creation of a sandbox, and its clean-up if the call is aborted. */

import { Effect } from "./call-progress.js";
import { cleanupStep } from "./cleanup.js";
import type { WorkLimit } from "./cleanup.js";
import { defined, idempotencyHeaders, SandboxContext } from "./context.js";
import type { CallOptions } from "./context.js";
import { randomId } from "./ids.js";
import { Handlers } from "./lifecycle.js";
import type { LifecycleHandlers } from "./lifecycle.js";
import type {
  CreateBody,
  CreateEgress,
  CreateIngress,
  CreateNetwork,
  CreateResources,
  IsolationChoice,
  OnTimeout,
  SandboxView,
} from "./models.js";
import { checkNames } from "./option-names.js";
import type { OptionNames } from "./option-names.js";
import { jsonPayload } from "./payload.js";
import type { Run } from "./run.js";
import { terminateAll } from "./termination.js";
import type { Call, Transport } from "./transport.js";
import { megabytesOf, millisecondsOf } from "./units.js";
import type { Duration, Size } from "./units.js";

/** What a sandbox may use, and which destinations and ports it has. Builds of templates have these options, too. */
export interface SandboxLimits {
  /** The number of vCPUs: 2, 4 or 8. Default: 2. */
  cpu?: 2 | 4 | 8;
  /** The memory in MB. Default: 4096. */
  memoryMb?: number;
  /** The memory as a text with its unit, such as `4g`. A number is in MB. */
  memory?: Size;
  /** The disk in MB. Default: 10240. */
  diskMb?: number;
  /** The disk as a text with its unit, such as `20g`. A number is in MB. */
  disk?: Size;
  /**
   * The policy for outgoing connections, such as `{ allow: ["example.com"] }`. A list `allow` denies the rest, unless `default` is
   * `allow`; so does `allowNetworks` without `denyNetworks`. Default: all public destinations are allowed.
   */
  egress?: CreateEgress;
  /** The policy for exposed ports. Default: all ports may be exposed. */
  ingress?: CreateIngress;
  /** What separates the sandbox from the host: `container`, `gvisor`, or `auto` (default) for the operator's choice. */
  isolation?: IsolationChoice;
}

/** Options of a new sandbox. */
export interface CreateOptions extends SandboxLimits, CallOptions {
  /** Environment variables of all commands. */
  env?: Readonly<Record<string, string>>;
  /** The default working directory of commands. Default: `/workspace`. */
  workdir?: string;
  /** Terminates the sandbox after this running time, not counting pauses; see `onTimeout`. Default: 300,000, five minutes. */
  timeoutMs?: number;
  /** The same as a text with its unit, such as `90m`. */
  timeout?: Duration;
  /** What happens at the end of the timeout: `terminate` (default) or `pause`. */
  onTimeout?: OnTimeout;
  /** With `false`, commands, files and ports do not resume the sandbox while it is paused. */
  autoResume?: boolean;
  /** Pauses the sandbox after this time without activity; 0 disables it. Default: 120,000, two minutes. */
  idleTimeoutMs?: number;
  /** The same as a text with its unit, such as `10m`. */
  idleTimeout?: Duration;
  /**
   * A name, which {@link Sandbox.connect} accepts in place of the id. The create fails if another sandbox of the account that is not
   * terminated has it.
   */
  name?: string;
  /** Tags, by which lists can be filtered. */
  metadata?: Readonly<Record<string, string>>;
  /** Starts without the processes of the snapshot or template. */
  cold?: boolean;
  /** A request with the same key within 24 hours, from any process, returns the same sandbox. */
  idempotencyKey?: string;
  /** With `false` the call fails at the first refusal, which takes up to 25 s while an image is being pulled. */
  wait?: boolean;
  /** Records the events of the sandbox in this run, including its creation. */
  run?: Run;
  /** Handlers of lifecycle events, including `started`. */
  on?: LifecycleHandlers;
}

/** The names of the options that creates share with builds of templates. */
export const SANDBOX_LIMITS: OptionNames<SandboxLimits> = {
  ...{ cpu: true, memoryMb: true, memory: true, diskMb: true, disk: true, egress: true, ingress: true, isolation: true },
};
const OPTIONS: OptionNames<CreateOptions> = {
  ...SANDBOX_LIMITS,
  ...{ env: true, workdir: true, timeoutMs: true, timeout: true, onTimeout: true, autoResume: true, idleTimeoutMs: true },
  ...{ idleTimeout: true, name: true, metadata: true, cold: true, idempotencyKey: true, wait: true, run: true, on: true, signal: true },
};
const EGRESS: OptionNames<CreateEgress> = { default: true, allow: true, allowNetworks: true, denyNetworks: true };
const INGRESS: OptionNames<CreateIngress> = { allowPorts: true };

/**
 * Creates a sandbox; `wrap` makes its object. If the call is aborted, or fails after the sandbox exists, the sandbox is terminated in
 * the background.
 */
export async function create<T>(
  transport: Transport,
  image: string,
  options: CreateOptions,
  wrap: (context: SandboxContext, view: SandboxView) => T,
): Promise<T> {
  const { run, signal, idempotencyKey, wait = true, on = {} } = checkNames(options, OPTIONS);
  const effect = new Effect();
  const call: Call = {
    method: "POST",
    path: "/v1/sandboxes",
    safety: "repeatable",
    payload: jsonPayload(createBody(image, options)),
    headers: {
      ...idempotencyHeaders(idempotencyKey ?? randomId("key_")),
      ...(run === undefined ? {} : { "x-run-id": run.id }),
    },
    isCreate: true,
    effect,
    ...(wait ? {} : { patience: "none" }),
    signal,
  };
  const handlers = new Handlers();
  handlers.addAll(on);
  let view: SandboxView | undefined;
  try {
    view = await transport.json<SandboxView>(call);
    return created(new SandboxContext(transport, view.id, run, handlers), view, wrap);
  } catch (error) {
    const mayExist = view !== undefined || (signal?.aborted === true && effect.isPossible);
    // Without a key of the caller, only this call can find the sandbox.
    if (idempotencyKey === undefined && mayExist) {
      const id = view?.id;
      transport.cleanups.start("terminating the sandbox of a cancelled create", (limit) => undo(transport, call, id, limit));
    }
    throw error;
  }
}

/** An object for a new sandbox, after its creation is reported. */
export function created<T>(
  context: SandboxContext,
  view: SandboxView,
  wrap: (context: SandboxContext, view: SandboxView) => T,
): T {
  context.record("sandbox.created", { image: view.image, state: view.state });
  context.record("sandbox.started", {});
  context.handlers.notify({ type: "started" });
  return wrap(context, view);
}

/** Terminates the sandbox of a create. If its id is unknown, a request with the same idempotency key returns it. */
async function undo(transport: Transport, call: Call, id: string | undefined, limit: WorkLimit): Promise<void> {
  const known = id ?? (await transport.json<SandboxView>({ ...call, ...cleanupStep(limit) })).id;
  await terminateAll(transport, [known], limit);
}

function createBody(image: string, options: CreateOptions): CreateBody {
  const { env, workdir, name, metadata, onTimeout, autoResume, isolation, cold } = options;
  return defined<CreateBody>({
    image,
    env,
    workdir,
    timeoutMs: millisecondsOf("timeout", options.timeout, options.timeoutMs),
    idleTimeoutMs: millisecondsOf("idleTimeout", options.idleTimeout, options.idleTimeoutMs),
    onTimeout,
    autoResume,
    name,
    metadata,
    isolation,
    cold,
    ...resourcesAndNetwork(options),
  });
}

/** The fields `resources` and `network` of a request body, `undefined` without an option of theirs. */
export function resourcesAndNetwork(options: SandboxLimits): { [K in "resources" | "network"]: CreateBody[K] | undefined } {
  const { cpu, egress, ingress } = options;
  if (egress !== undefined) checkNames(egress, EGRESS, "egress");
  if (ingress !== undefined) checkNames(ingress, INGRESS, "ingress");
  const memoryMb = megabytesOf("memory", options.memory, options.memoryMb);
  const diskMb = megabytesOf("disk", options.disk, options.diskMb);
  const resources = defined<CreateResources>({ cpu, memoryMb, diskMb });
  const network = defined<CreateNetwork>({ egress: egress === undefined ? undefined : withDefault(egress), ingress });
  return {
    resources: Object.keys(resources).length === 0 ? undefined : resources,
    network: Object.keys(network).length === 0 ? undefined : network,
  };
}

/** The policy of a new sandbox. A list of what is allowed denies the rest, which is not the default of the service. */
function withDefault(egress: CreateEgress): CreateEgress {
  const { allow, allowNetworks = [], denyNetworks = [] } = egress;
  // Without names, allowed networks may also be the exceptions of denied ones. An empty list of names allows none.
  const restricts = allow !== undefined || (allowNetworks.length > 0 && denyNetworks.length === 0);
  return egress.default === undefined && restricts ? { ...egress, default: "deny" } : egress;
}
