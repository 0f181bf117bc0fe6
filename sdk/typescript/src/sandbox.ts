/** One sandbox. */

import { CodeContexts, runCode } from "./code.js";
import type { RunCodeOptions } from "./code.js";
import type { Command } from "./command-line.js";
import { contextOf, defined, keepContext, SandboxContext, signalOf } from "./context.js";
import type { CallOptions } from "./context.js";
import { create, created } from "./create.js";
import type { CreateOptions } from "./create.js";
import { Described } from "./described.js";
import { argumentError } from "./error-classes.js";
import { Events, timeOf } from "./events.js";
import { OutputStream } from "./execute.js";
import type { ExecuteOptions, StreamOptions } from "./execute.js";
import { Executions, start } from "./execution.js";
import type { Execution, StartOptions } from "./execution.js";
import { Files } from "./files.js";
import { forkSandbox } from "./fork.js";
import type { ForkOptions } from "./fork.js";
import type { LifecycleEventName, LifecycleEvents } from "./lifecycle.js";
import { executeForAnyTime } from "./long-execute.js";
import type {
  CodeExecution,
  ExecutionResult,
  PauseBody,
  PauseResult,
  ResourceMetrics,
  ResourceSample,
  ResumeBody,
  ResumeResult,
  SandboxView,
  Snapshot,
  TimeoutBody,
} from "./models.js";
import { Network } from "./network.js";
import { checkNames } from "./option-names.js";
import type { OptionNames } from "./option-names.js";
import { jsonPayload } from "./payload.js";
import { Ports } from "./ports.js";
import type { Run } from "./run.js";
import { rollBack, takeSnapshot } from "./snapshots.js";
import type { SnapshotOptions } from "./snapshots.js";
import { attachOptions, openTerminal } from "./terminal.js";
import type { Terminal, TerminalOptions } from "./terminal.js";
import { dispose, terminate } from "./termination.js";
import type { Terminated } from "./termination.js";
import { Transport } from "./transport.js";
import type { Call } from "./transport.js";
import { milliseconds } from "./units.js";
import type { Duration } from "./units.js";

/** What the static methods of {@link Sandbox} use, with the settings of the environment. */
let defaultTransport: Transport | undefined;

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

const PAUSE: OptionNames<PauseOptions> = { hibernate: true, signal: true };
const RESUME: OptionNames<ResumeOptions> = { cold: true, adopt: true, signal: true };
const METRICS: OptionNames<MetricsOptions> = { start: true, end: true, signal: true };

/**
 * A sandbox: an isolated Linux machine with its own disk, processes and network. {@link Sandbox.create} creates one. With
 * `await using` it is terminated at the end of the block; without it, call {@link Sandbox.terminate}.
 *
 * @example
 * ```ts
 * await using sandbox = await Sandbox.create("ubuntu:24.04");
 * const { stdout } = await sandbox.execute("echo hello");
 * ```
 */
export class Sandbox extends Described implements AsyncDisposable {
  /** The files of the sandbox: reading, writing, listing and copying them. */
  readonly files: Files;
  /** The exposed ports of the sandbox. */
  readonly ports: Ports;
  /** The contexts of the code interpreter. */
  readonly contexts: CodeContexts;
  /** The events of the sandbox. */
  readonly events: Events;
  /** The network policy of the sandbox, and its traffic. */
  readonly network: Network;
  /** The detached commands and the terminals of the sandbox. */
  readonly executions: Executions;
  #view: SandboxView | undefined;

  /** For {@link Sandbox.create} and {@link Sandbox.connect}. */
  constructor(context: SandboxContext, view?: SandboxView) {
    super();
    keepContext(this, context);
    this.files = new Files(context);
    this.ports = new Ports(context);
    this.contexts = new CodeContexts(context);
    this.events = new Events(context.transport, context);
    this.network = new Network(context);
    this.executions = new Executions(context);
    this.#view = view;
  }

  /**
   * Creates a sandbox and returns it when it runs. The client has the settings of the environment (`SANDBOXD_URL`,
   * `SANDBOXD_API_KEY`, `SANDBOXD_CERTIFICATE`), or those of the daemon on this machine.
   *
   * If the service refuses the create because of a rate limit or for lack of capacity, the call waits as long as the service asks it
   * to, up to ten minutes in all, and logs once which limit it is. Creates that wait are sent in the order in which they were made.
   *
   * @param image the name of an image such as `ubuntu:24.04` or of a template, or the id of a snapshot or template. From a snapshot the
   * sandbox has the files, and not the `env`, `workdir`, `metadata` or `egress` of the other sandbox
   * @param options its resources, environment, timeouts, network policy and so on; misspelled names are refused
   * @returns the running sandbox, which is terminated when its `timeout` ends, by default after five minutes
   * @throws an {@link InvalidConfig} if the image or a value is not allowed, a {@link QuotaExceeded} if the account has too
   * many sandboxes, and the reason of `signal` if the call is aborted: then the sandbox is terminated in the background, unless the
   * caller gave an `idempotencyKey`
   * @example
   * ```ts
   * await using sandbox = await Sandbox.create("python:3.12", {
   *   memory: "4g",
   *   timeout: "30m",
   *   egress: { default: "deny", allow: ["api.example.com"] },
   * });
   * ```
   */
  static create(image: string, options: CreateOptions = {}): Promise<Sandbox> {
    return createSandbox((defaultTransport ??= new Transport({})), image, options);
  }

  /**
   * An object for a sandbox, by its id or its name, with the same client. Sends no request, so the sandbox need not exist. With a
   * name each call is for the sandbox that has it at that time, until {@link Sandbox.refresh} fetches the id.
   */
  static connect(id: string): Sandbox {
    return sandboxHandle((defaultTransport ??= new Transport({})), id);
  }

  /**
   * The identifier, `sb_` and 20 letters and digits. {@link Sandbox.connect} accepts it, also in another program. It is the name if
   * the object was made with it and has not fetched the identifier yet.
   */
  get id(): string {
    return contextOf(this).id;
  }

  /** The state as of the last create or refresh. Sends no request. */
  get view(): SandboxView | undefined {
    return this.#view;
  }

  /** Fetches the current state. Throws {@link SandboxNotFound} if the sandbox was terminated. */
  async refresh(options: CallOptions = {}): Promise<SandboxView> {
    const context = contextOf(this);
    const call: Call = { method: "GET", path: context.path(), safety: "repeatable", signal: signalOf(options) };
    this.#view = await context.json<SandboxView>(call);
    context.id = this.#view.id;
    return this.#view;
  }

  /**
   * Runs a command and returns its result when it ends. A failed command is a result, too: with `check` it is the error
   * {@link CommandFailed}. A command whose `timeout` is longer than five minutes runs detached, with the same
   * result.
   *
   * @param command a bash command line, or a list of a program and its arguments, which need no quotes
   * @param options its working directory, environment, input and timeout (default: 60 seconds) and so on
   * @returns the output, the exit code, and the `reason` if the command did not end by itself. The exit code is `null` if the command
   * was killed or could not start, as without its `cwd` or `user`; `message` says why. Of more than 16 MiB of a stream, the
   * first and the last half
   * @throws a {@link CommandFailed} with `check`, a {@link SandboxNotFound} if the sandbox was terminated, and the reason of
   * `signal` if the call is aborted, which kills the command
   * @example
   * ```ts
   * const { stdout, exitCode } = await sandbox.execute("ls -l | wc -l");
   * await sandbox.execute(["python3", "-c", "print('it is quoted')"], { check: true, timeout: "10m" });
   * ```
   */
  async execute(command: Command, options: ExecuteOptions = {}): Promise<ExecutionResult> {
    return executeForAnyTime(contextOf(this), command, options);
  }

  /**
   * Runs code in the code interpreter; the sandbox needs an image that has one, such as `code-interpreter`. Aborting the call
   * interrupts the code. With a callback the output is streamed.
   */
  runCode(code: string, options: RunCodeOptions = {}): Promise<CodeExecution> {
    return runCode(contextOf(this), code, options);
  }

  /**
   * Runs a command and delivers its output line by line; the last item is `done`. Ending the iteration early kills the command. A
   * list of a program and its arguments needs no quotes. A line arrives when it ends, or with the end of the output: for prompts use
   * `start`, whose `output` has them, or `terminal`.
   */
  stream(command: Command, options: StreamOptions = {}): OutputStream {
    return new OutputStream(contextOf(this), command, options);
  }

  /**
   * Starts a detached command, which continues without its client, as long as its sandbox if it has no `timeout`. The result is an
   * object to wait for it, to follow its output and to end it. With `openStdin`, `writeStdin` answers the prompts in its `output`.
   */
  async start(command: Command, options: StartOptions = {}): Promise<Execution> {
    return start(contextOf(this), command, options);
  }

  /** Opens a terminal and attaches to it. */
  async terminal(options: TerminalOptions = {}): Promise<Terminal> {
    const execution = await openTerminal(contextOf(this), options);
    return execution.attach(attachOptions(options));
  }

  /** Pauses the sandbox: freezes all its processes. Commands, files and ports resume it. */
  async pause(options: PauseOptions = {}): Promise<PauseResult> {
    const { hibernate, signal } = checkNames(options, PAUSE);
    const context = contextOf(this);
    const body: PauseBody | undefined = hibernate === true ? { hibernate } : undefined;
    const paused = await context.json<PauseResult>({ ...order(context, "/pause", body), signal });
    const { runtimeDurationMs } = paused;
    context.record("sandbox.paused", { runtimeDurationMs });
    context.handlers.notify({ type: "paused", runtimeDurationMs });
    return paused;
  }

  /** Resumes the sandbox. Commands resume it automatically. */
  async resume(options: ResumeOptions = {}): Promise<ResumeResult> {
    const { cold, adopt, signal } = checkNames(options, RESUME);
    const context = contextOf(this);
    const given: ResumeBody = { ...(cold === true && { cold }), ...(adopt === true && { adopt }) };
    const body = cold === true || adopt === true ? given : undefined;
    const resumed = await context.json<ResumeResult>({ ...order(context, "/resume", body), signal });
    const { pausedDurationMs } = resumed;
    context.record("sandbox.resumed", { pausedDurationMs });
    context.handlers.notify({ type: "resumed", pausedDurationMs });
    return resumed;
  }

  /** The samples of CPU, memory and disk, oldest first. A running sandbox is sampled about every 5 s. */
  async metrics(options: MetricsOptions = {}): Promise<ResourceSample[]> {
    const { start, end, signal } = checkNames(options, METRICS);
    const context = contextOf(this);
    const path = context.path("/metrics", { start: timeOf(start), end: timeOf(end) });
    const { data } = await context.json<ResourceMetrics>({ method: "GET", path, safety: "repeatable", signal });
    return [...data];
  }

  /**
   * Changes the timeout, which then counts from now, or from the resume of a paused sandbox. It is a number of milliseconds or a
   * text with its unit, such as `90m`; 0 ends it now.
   */
  async setTimeout(timeout: Duration, options: CallOptions = {}): Promise<SandboxView> {
    const context = contextOf(this);
    const body: TimeoutBody = { timeoutMs: milliseconds("timeout", timeout) };
    const call: Call = { method: "PUT", path: context.path("/timeout"), safety: "repeatable", signal: signalOf(options) };
    this.#view = await context.json<SandboxView>({ ...call, payload: jsonPayload(body) });
    return this.#view;
  }

  /**
   * Takes a snapshot of the disk, and on request of the processes. Its id can be the image of a create. The snapshot has no
   * configuration: give the create `env`, `workdir`, `metadata` and `egress` again. Without `egress` its network is open.
   */
  async snapshot(options: SnapshotOptions = {}): Promise<Snapshot> {
    return takeSnapshot(contextOf(this), options);
  }

  /**
   * Ends all processes, replaces the disk by that of a snapshot of this sandbox, and starts the sandbox again. If the snapshot has
   * processes, they continue.
   */
  async rollback(snapshot: Snapshot | string, options: CallOptions = {}): Promise<SandboxView> {
    this.#view = await rollBack(contextOf(this), snapshot, options);
    return this.#view;
  }

  /**
   * Creates sandboxes with the configuration of this one and a copy of its disk: all, or none. They record their events in the
   * run of this object. Aborting the call throws at once and terminates the new sandboxes in the background, unless the caller
   * gave an `idempotencyKey`. Waits for limits like {@link Sandbox.create}.
   */
  fork(options: ForkOptions): Promise<Sandbox[]> {
    const context = contextOf(this);
    const { transport, run } = context;
    return forkSandbox(context, options, (views) =>
      views.map((view) => created(new SandboxContext(transport, view.id, run), view, wrap)),
    );
  }

  /**
   * Terminates the sandbox and deletes its files. If the response of the first attempt is lost and the retry finds the sandbox
   * terminated, the call succeeds; its running time is then unknown.
   */
  async terminate(options: CallOptions = {}): Promise<Terminated> {
    return terminate(contextOf(this), { signal: signalOf(options) });
  }

  /** Calls `handler` on each such event that this object causes or observes. Returns a function that removes the handler. */
  on<E extends LifecycleEventName>(name: E, handler: (event: LifecycleEvents[E]) => void): () => void {
    return contextOf(this).handlers.add(name, handler);
  }

  /** Records what this object does in `run`. */
  withRun(run: Run | undefined): this {
    contextOf(this).run = run;
    return this;
  }

  /** Terminates the sandbox at the end of its `await using` block, unless it is terminated already. Waits for rate limits. */
  async [Symbol.asyncDispose](): Promise<void> {
    await dispose(contextOf(this));
  }

  protected describe(): object {
    const { state, image } = this.#view ?? {};
    return defined({ id: this.id, state: contextOf(this).isTerminated ? "terminated" : state, image });
  }
}

function wrap(context: SandboxContext, view: SandboxView): Sandbox {
  return new Sandbox(context, view);
}

function order(context: SandboxContext, path: string, body: PauseBody | ResumeBody | undefined): Call {
  const call: Call = { method: "POST", path: context.path(path), safety: "after_answer" };
  return body === undefined ? call : { ...call, payload: jsonPayload(body) };
}

/** Creates a sandbox; see {@link Sandbox.create}. */
export function createSandbox(transport: Transport, image: string, options: CreateOptions): Promise<Sandbox> {
  return create(transport, image, options, wrap);
}

/** An object for a sandbox, by its id or its name. Sends no request, so the sandbox need not exist. */
export function sandboxHandle(transport: Transport, id: string): Sandbox {
  const pattern = id.startsWith("sb_") ? /^sb_[0-9a-z]+$/ : /^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/;
  if (!pattern.test(id)) throw argumentError("sandboxId", `'${id}' is neither a sandbox id nor a name`);
  return new Sandbox(new SandboxContext(transport, id));
}
