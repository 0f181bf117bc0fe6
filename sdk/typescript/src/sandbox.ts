/** One sandbox. */

import { CodeContexts, runCode } from "./code.js";
import type { RunCodeOptions } from "./code.js";
import { SandboxContext, defined, idempotencyHeaders } from "./context.js";
import type { CallOptions } from "./context.js";
import { argumentError, terminationReason } from "./error-classes.js";
import { SandboxdError } from "./errors.js";
import { Events, timeOf } from "./events.js";
import { execute, OutputStream } from "./execute.js";
import type { ExecuteOptions, StreamOptions } from "./execute.js";
import { Executions, start } from "./execution.js";
import type { Execution, StartOptions } from "./execution.js";
import { Files } from "./files.js";
import { forkSandbox } from "./fork.js";
import type { ForkOptions } from "./fork.js";
import { randomId } from "./ids.js";
import { Handlers } from "./lifecycle.js";
import type { LifecycleEventName, LifecycleEvents, LifecycleHandlers } from "./lifecycle.js";
import type {
  CodeExecution,
  CreateBody,
  CreateEgress,
  CreateIngress,
  CreateNetwork,
  CreateResources,
  ExecutionResult,
  IsolationChoice,
  OnTimeout,
  PauseBody,
  PauseResult,
  ResourceMetrics,
  ResourceSample,
  ResumeBody,
  ResumeResult,
  SandboxView,
  Snapshot,
  TerminateResult,
  TimeoutBody,
} from "./models.js";
import { Network } from "./network.js";
import { jsonPayload } from "./payload.js";
import { Ports } from "./ports.js";
import type { Run } from "./run.js";
import { rollBack, takeSnapshot } from "./snapshots.js";
import type { SnapshotOptions } from "./snapshots.js";
import { attachOptions, openTerminal } from "./terminal.js";
import type { Terminal, TerminalOptions } from "./terminal.js";
import { Transport } from "./transport.js";
import type { Call } from "./transport.js";

const DELETED = "deleted";

/** What the static methods of {@link Sandbox} use, with the settings of the environment. */
let defaultTransport: Transport | undefined;

/** Options of a new sandbox. */
export interface CreateOptions extends CallOptions {
  /** The number of vCPUs. */
  cpu?: 2 | 4 | 8;
  memoryMb?: number;
  diskMb?: number;
  /** Environment variables of all commands. */
  env?: Readonly<Record<string, string>>;
  /** The default working directory of commands. */
  workdir?: string;
  /** Terminates the sandbox after this running time, not counting pauses; see `onTimeout`. */
  timeoutMs?: number;
  /** What happens at the end of the timeout. */
  onTimeout?: OnTimeout;
  /** With `false`, commands, files and ports do not resume the sandbox while it is paused. */
  autoResume?: boolean;
  /** Pauses the sandbox after this time without activity; 0 disables it. */
  idleTimeoutMs?: number;
  /** Tags, by which lists can be filtered. */
  metadata?: Readonly<Record<string, string>>;
  /** The policy for outgoing connections. */
  egress?: CreateEgress;
  /** The policy for exposed ports. */
  ingress?: CreateIngress;
  /** What separates the sandbox from the host: `container`, `gvisor`, or `auto` (default) for the operator's choice. */
  isolation?: IsolationChoice;
  /** Starts without the processes of the snapshot or template. */
  cold?: boolean;
  /** A request with the same key within 24 hours, from any process, returns the same sandbox. */
  idempotencyKey?: string;
  /** With `false` the call fails at once if the service has no capacity or the image is still being pulled. */
  wait?: boolean;
  /** Records the events of the sandbox in this run, including its creation. */
  run?: Run;
  /** Handlers of lifecycle events, including `started`. */
  on?: LifecycleHandlers;
}

/** How a sandbox is paused. */
export interface PauseOptions extends CallOptions {
  /**
   * Stores the processes on the host's disk, where they need no memory and survive a reboot, also those of a paused sandbox. The
   * next command, file operation or port request wakes them.
   */
  hibernate?: boolean;
}

/** How a sandbox is resumed. */
export interface ResumeOptions extends CallOptions {
  /** Ends the processes, frozen or stored, and starts the sandbox again on its disk. */
  cold?: boolean;
  /** Adopts the sandbox if a lost host has stored it in the object store. */
  adopt?: boolean;
}

/** Which samples of a sandbox are fetched. */
export interface MetricsOptions extends CallOptions {
  /** Only samples at or after this time. */
  start?: Date | string;
  /** Only samples at or before this time. */
  end?: Date | string;
}

/** The termination of a sandbox. */
export type Terminated = LifecycleEvents["terminated"];

/** A sandbox. With `await using` it is terminated at the end of the block. */
export class Sandbox implements AsyncDisposable {
  /** Other modules of the SDK use it. */
  readonly context: SandboxContext;
  /** The identifier. */
  readonly id: string;
  readonly files: Files;
  readonly ports: Ports;
  /** The contexts of the code interpreter. */
  readonly contexts: CodeContexts;
  readonly events: Events;
  readonly network: Network;
  readonly executions: Executions;
  #view: SandboxView | undefined;

  constructor(context: SandboxContext, view?: SandboxView) {
    this.context = context;
    this.id = context.id;
    this.files = new Files(context);
    this.ports = new Ports(context);
    this.contexts = new CodeContexts(context);
    this.events = new Events(context.transport, context);
    this.network = new Network(context);
    this.executions = new Executions(context);
    this.#view = view;
  }

  /**
   * Creates a sandbox, with a client whose settings come from the environment or from the local daemon. `image` is the name of
   * an image or template, or the id of a snapshot or template.
   */
  static create(image: string, options: CreateOptions = {}): Promise<Sandbox> {
    return createSandbox((defaultTransport ??= new Transport({})), image, options);
  }

  /** An object for a sandbox, with the same client. Sends no request, so the sandbox need not exist. */
  static connect(id: string): Sandbox {
    return sandboxHandle((defaultTransport ??= new Transport({})), id);
  }

  /** The state as of the last create or refresh. Sends no request. */
  get view(): SandboxView | undefined {
    return this.#view;
  }

  /** Fetches the current state. */
  async refresh(options: CallOptions = {}): Promise<SandboxView> {
    const path = this.context.path();
    this.#view = await this.context.json<SandboxView>({ method: "GET", path, safety: "repeatable", ...options });
    return this.#view;
  }

  /** Runs a bash command line and returns its result. A failed command is a result, too; `check` makes it an error. */
  execute(command: string, options: ExecuteOptions = {}): Promise<ExecutionResult> {
    return execute(this.context, command, options);
  }

  /**
   * Runs code in the code interpreter; the sandbox needs an image that has one, such as `code-interpreter`. Aborting the call
   * interrupts the code. With a callback the output is streamed.
   */
  runCode(code: string, options: RunCodeOptions = {}): Promise<CodeExecution> {
    return runCode(this.context, code, options);
  }

  /** Runs a bash command line and delivers its output line by line. Ending the iteration early kills the command. */
  stream(command: string, options: StreamOptions = {}): OutputStream {
    return new OutputStream(this.context, command, options);
  }

  /** Starts a detached command, which continues without its client. */
  start(command: string, options: StartOptions = {}): Promise<Execution> {
    return start(this.context, command, options);
  }

  /** Opens a terminal and attaches to it. */
  async terminal(options: TerminalOptions = {}): Promise<Terminal> {
    const execution = await openTerminal(this.context, options);
    return execution.attach(attachOptions(options));
  }

  /** Pauses the sandbox: freezes all its processes. */
  async pause(options: PauseOptions = {}): Promise<PauseResult> {
    const { hibernate, signal } = options;
    const body: PauseBody | undefined = hibernate === true ? { hibernate } : undefined;
    const paused = await this.context.json<PauseResult>({ ...this.#order("/pause", body), signal });
    const { runtimeDurationMs } = paused;
    this.context.record("sandbox.paused", { runtimeDurationMs });
    this.context.handlers.notify({ type: "paused", runtimeDurationMs });
    return paused;
  }

  /** Resumes the sandbox. Commands resume it automatically. */
  async resume(options: ResumeOptions = {}): Promise<ResumeResult> {
    const { cold, adopt, signal } = options;
    const given: ResumeBody = { ...(cold === true && { cold }), ...(adopt === true && { adopt }) };
    const body = cold === true || adopt === true ? given : undefined;
    const resumed = await this.context.json<ResumeResult>({ ...this.#order("/resume", body), signal });
    const { pausedDurationMs } = resumed;
    this.context.record("sandbox.resumed", { pausedDurationMs });
    this.context.handlers.notify({ type: "resumed", pausedDurationMs });
    return resumed;
  }

  #order(path: string, body: PauseBody | ResumeBody | undefined): Call {
    const call: Call = { method: "POST", path: this.context.path(path), safety: "after_answer" };
    return body === undefined ? call : { ...call, payload: jsonPayload(body) };
  }

  /** The samples of CPU, memory and disk, oldest first. A running sandbox is sampled about every 5 s. */
  async metrics(options: MetricsOptions = {}): Promise<ResourceSample[]> {
    const { start, end, signal } = options;
    const path = this.context.path("/metrics", { start: timeOf(start), end: timeOf(end) });
    const { data } = await this.context.json<ResourceMetrics>({ method: "GET", path, safety: "repeatable", signal });
    return [...data];
  }

  /** Changes the timeout, which then counts from now, or from the resume of a paused sandbox. 0 ends it now. */
  async setTimeout(timeoutMs: number, options: CallOptions = {}): Promise<SandboxView> {
    const body: TimeoutBody = { timeoutMs };
    const call = { method: "PUT", path: this.context.path("/timeout"), safety: "repeatable" as const, ...options };
    this.#view = await this.context.json<SandboxView>({ ...call, payload: jsonPayload(body) });
    return this.#view;
  }

  /** Takes a snapshot of the disk, and on request of the processes. Its id can be the image of a create. */
  snapshot(options: SnapshotOptions = {}): Promise<Snapshot> {
    return takeSnapshot(this.context, options);
  }

  /**
   * Ends all processes, replaces the disk by that of a snapshot of this sandbox, and starts the sandbox again. If the snapshot has
   * processes, they continue.
   */
  async rollback(snapshot: Snapshot | string, options: CallOptions = {}): Promise<SandboxView> {
    this.#view = await rollBack(this.context, snapshot, options);
    return this.#view;
  }

  /**
   * Creates sandboxes with the configuration of this one and a copy of its disk: all, or none. They record their events in the
   * run of this object. Aborting the call throws at once and terminates the new sandboxes in the background, unless the caller
   * gave an `idempotencyKey`.
   */
  fork(options: ForkOptions): Promise<Sandbox[]> {
    const { transport, run } = this.context;
    return forkSandbox(this.context, options, (views) =>
      views.map((view) => createdSandbox(new SandboxContext(transport, view.id, run), view)),
    );
  }

  /**
   * Terminates the sandbox and deletes its files. If the response of the first attempt is lost and the retry finds the sandbox
   * terminated, the call succeeds; its running time is then unknown.
   */
  async terminate(options: CallOptions = {}): Promise<Terminated> {
    const end = await this.#terminated(options);
    this.context.ended(end);
    return end;
  }

  /** Calls `handler` on each such event that this object causes or observes. Returns a function that removes the handler. */
  on<E extends LifecycleEventName>(name: E, handler: (event: LifecycleEvents[E]) => void): () => void {
    return this.context.handlers.add(name, handler);
  }

  /** Records what this object does in `run`. */
  withRun(run: Run | undefined): this {
    this.context.run = run;
    return this;
  }

  /** Terminates the sandbox, unless it is terminated already. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.context.isTerminated) return;
    try {
      await this.terminate();
    } catch (error) {
      // Its lifetime may have ended meanwhile.
      if (!(error instanceof SandboxdError) || terminationReason(error) === undefined) throw error;
    }
  }

  async #terminated(options: CallOptions): Promise<Terminated> {
    const call = { method: "DELETE", path: this.context.path(), safety: "repeatable" as const, ...options };
    try {
      const { totalRuntimeMs, terminatedAt } = await this.context.inRun<TerminateResult>(call);
      return { type: "terminated", reason: DELETED, totalRuntimeMs, terminatedAt };
    } catch (error) {
      const isOwn = error instanceof SandboxdError && error.repeats > 0 && terminationReason(error) === DELETED;
      if (isOwn) return { type: "terminated", reason: DELETED };
      throw this.context.failed(error);
    }
  }
}

/** Creates a sandbox. If the call is aborted, or fails after the sandbox exists, the sandbox is terminated in the background. */
export async function createSandbox(transport: Transport, image: string, options: CreateOptions): Promise<Sandbox> {
  const { run, signal, idempotencyKey, wait = true } = options;
  const call: Call = {
    method: "POST",
    path: "/v1/sandboxes",
    safety: "repeatable",
    payload: jsonPayload(createBody(image, options)),
    headers: {
      ...idempotencyHeaders(idempotencyKey ?? randomId("key_")),
      ...(run === undefined ? {} : { "x-run-id": run.id }),
    },
    isImpatient: !wait,
    signal,
  };
  const handlers = new Handlers();
  handlers.addAll(options.on ?? {});
  // Before the first request there is nothing to clean up.
  signal?.throwIfAborted();
  let view: SandboxView | undefined;
  try {
    view = await transport.json<SandboxView>(call);
    return createdSandbox(new SandboxContext(transport, view.id, run, handlers), view);
  } catch (error) {
    // Without a key of the caller, only this call can find the sandbox.
    if (idempotencyKey === undefined && (view !== undefined || signal?.aborted === true)) {
      const id = view?.id;
      transport.cleanups.start("terminating the sandbox of a cancelled create", (limit) => undo(transport, call, id, limit));
    }
    throw error;
  }
}

/** An object for a new sandbox, after its creation is reported. */
function createdSandbox(context: SandboxContext, view: SandboxView): Sandbox {
  context.record("sandbox.created", { image: view.image, state: view.state });
  context.record("sandbox.started", {});
  context.handlers.notify({ type: "started" });
  return new Sandbox(context, view);
}

/** Terminates the sandbox of a create. If its id is unknown, a request with the same idempotency key returns it. */
async function undo(transport: Transport, create: Call, id: string | undefined, signal: AbortSignal): Promise<void> {
  const known = id ?? (await transport.json<SandboxView>({ ...create, isImpatient: true, signal })).id;
  await sandboxHandle(transport, known).terminate({ signal });
}

function createBody(image: string, options: CreateOptions): CreateBody {
  const { env, workdir, metadata, timeoutMs, idleTimeoutMs, onTimeout, autoResume, isolation, cold } = options;
  return defined<CreateBody>({
    image,
    env,
    workdir,
    timeoutMs,
    idleTimeoutMs,
    onTimeout,
    autoResume,
    metadata,
    isolation,
    cold,
    ...resourcesAndNetwork(options),
  });
}

/** The fields `resources` and `network` of a request body, `undefined` without an option of theirs. */
export function resourcesAndNetwork(
  options: Pick<CreateOptions, "cpu" | "memoryMb" | "diskMb" | "egress" | "ingress">,
): { [K in "resources" | "network"]: CreateBody[K] | undefined } {
  const { cpu, memoryMb, diskMb, egress, ingress } = options;
  const resources = defined<CreateResources>({ cpu, memoryMb, diskMb });
  const network = defined<CreateNetwork>({ egress, ingress });
  return {
    resources: Object.keys(resources).length === 0 ? undefined : resources,
    network: Object.keys(network).length === 0 ? undefined : network,
  };
}

/** An object for a sandbox. Sends no request, so the sandbox need not exist. */
export function sandboxHandle(transport: Transport, id: string): Sandbox {
  if (!/^sb_[0-9a-z]+$/.test(id)) throw argumentError("sandboxId", `'${id}' is not a sandbox id`);
  return new Sandbox(new SandboxContext(transport, id));
}
