/** Detached executions: starting, inspecting, following, writing to, and ending them. */

import type { StreamedResponse } from "./attempt.js";
import type { Command } from "./command-line.js";
import { CommandFailed } from "./command-failed.js";
import { contextOf, defined, idempotencyHeaders, keepContext, signalOf } from "./context.js";
import type { CallOptions, Query, ResumingOptions, SandboxContext } from "./context.js";
import { Described } from "./described.js";
import { argumentError } from "./error-classes.js";
import { COMMAND_OPTIONS, commandBody } from "./execute.js";
import type { CommandOptions } from "./execute.js";
import { END, FollowedStream } from "./followed-stream.js";
import { randomId } from "./ids.js";
import type { DetachedBody, ExecutionOutput, ExecutionResult, ExecutionView, SignalBody, StdinWritten } from "./models.js";
import { checkNames } from "./option-names.js";
import type { OptionNames } from "./option-names.js";
import { parseOutput } from "./output.js";
import type { Output } from "./output.js";
import { LARGEST_PAGE, PagedList } from "./paging.js";
import { contentPayload, jsonPayload } from "./payload.js";
import type { SseEvent } from "./sse.js";
import { attach } from "./terminal.js";
import type { AttachOptions, Terminal } from "./terminal.js";
import type { Call } from "./transport.js";

/** Options of `start`. */
export interface StartOptions extends CommandOptions {
  /** Keeps standard input open for `writeStdin`. */
  openStdin?: boolean;
  /**
   * How long the command waits for a reader while its stored output is full and nobody reads it. Then the oldest output is dropped.
   * Default: 120,000, two minutes.
   */
  readerTimeoutMs?: number;
  /** A request with the same key within 24 hours returns the same execution. */
  idempotencyKey?: string;
}

/** Options of `writeStdin`. */
export interface StdinOptions extends ResumingOptions {
  /** Closes standard input after the data. */
  close?: boolean;
}

/** Options of `follow`. */
export interface FollowOptions extends CallOptions {
  /** The offset after which to start, such as `ExecutionOutput.next`. Default: the beginning. */
  after?: string;
  /** Keeps line ends, so that the concatenation of the lines is the output as written. */
  lineEnds?: boolean;
}

/** Options of `wait`. */
export interface WaitOptions extends CallOptions {
  /** Throws {@link CommandFailed} if the command does not exit with 0. */
  check?: boolean;
}

const START: OptionNames<StartOptions> = { ...COMMAND_OPTIONS, openStdin: true, readerTimeoutMs: true, idempotencyKey: true };
const STDIN: OptionNames<StdinOptions> = { close: true, autoResume: true, signal: true };
const FOLLOW: OptionNames<FollowOptions> = { after: true, lineEnds: true, signal: true };
const OUTPUT: OptionNames<CallOptions & { after?: string }> = { after: true, signal: true };
const WAIT: OptionNames<WaitOptions> = { check: true, signal: true };
const RESUMING: OptionNames<ResumingOptions> = { autoResume: true, signal: true };
/** How much of each stream a failed detached command reports. */
const TAIL_BYTES = 4096;

/** Starts a detached command. */
export function start(context: SandboxContext, command: Command, options: StartOptions): Promise<Execution> {
  return startedBy(context, startCall(context, command, checkNames(options, START)), options.runId);
}

/** The request that starts a detached command. */
export function startCall(context: SandboxContext, command: Command, options: StartOptions): Call {
  const { openStdin, readerTimeoutMs } = options;
  const body = defined<DetachedBody>({ ...commandBody(command, options), detached: true, openStdin, readerTimeoutMs });
  return {
    method: "POST",
    path: context.path("/execute"),
    safety: "command",
    payload: jsonPayload(body),
    headers: idempotencyHeaders(options.idempotencyKey ?? randomId("key_")),
    signal: options.signal,
  };
}

/** Sends the request that starts a detached command. */
export async function startedBy(context: SandboxContext, call: Call, runId: string | undefined): Promise<Execution> {
  try {
    const view = await context.inRun<ExecutionView>(call, runId);
    return new Execution(context, view.executionId, view);
  } catch (error) {
    throw context.failed(error);
  }
}

/** The executions of a sandbox: its detached commands and terminals. */
export class Executions extends Described {
  readonly #context: SandboxContext;

  /** For `Sandbox.executions`. */
  constructor(context: SandboxContext) {
    super();
    this.#context = context;
  }

  /** Lists the executions, newest first: the running ones and those that ended recently. */
  list(options: CallOptions = {}): PagedList<ExecutionView> {
    const signal = signalOf(options);
    return new PagedList(
      (offset) => {
        const path = this.#context.path("/executions", { limit: LARGEST_PAGE, offset });
        return this.#context.json({ method: "GET", path, safety: "repeatable", signal });
      },
      (view) => view.executionId,
    );
  }

  /** Returns an execution with its current state. Throws {@link ExecutionNotFound} if its log is no longer stored. */
  async get(id: string, options: CallOptions = {}): Promise<Execution> {
    const execution = this.handle(id);
    await execution.refresh(options);
    return execution;
  }

  /** An object for an execution. Sends no request, so the execution need not exist. */
  handle(id: string): Execution {
    if (!/^ex_[0-9a-z]+$/.test(id)) throw argumentError("executionId", `'${id}' is not an execution id`);
    return new Execution(this.#context, id);
  }

  protected describe(): object {
    return { sandbox: this.#context.id };
  }
}

/** A detached command or a terminal. It continues without its client. */
export class Execution extends Described {
  /** The identifier. `Executions.get` returns the execution with this id, also in another program. */
  readonly id: string;
  #view: ExecutionView | undefined;

  /** For `Sandbox.start` and `Executions`. */
  constructor(context: SandboxContext, id: string, view?: ExecutionView) {
    super();
    keepContext(this, context);
    this.id = id;
    this.#view = view;
  }

  /** The state as of the last response. Sends no request. */
  get view(): ExecutionView | undefined {
    return this.#view;
  }

  /** Fetches the current state. */
  async refresh(options: CallOptions = {}): Promise<ExecutionView> {
    return this.#viewed({ method: "GET", path: this.path(), safety: "repeatable", signal: signalOf(options) });
  }

  /** Returns the output so far, or the output after an offset such as `next` of the last response. */
  async output(options: CallOptions & { after?: string } = {}): Promise<ExecutionOutput> {
    const { after, signal } = checkNames(options, OUTPUT);
    return contextOf(this).json({ method: "GET", path: this.path("/output", { after }), safety: "repeatable", signal });
  }

  /**
   * Waits until the command ends, and returns its state with the exit code. Lost connections are established again. With `check`, a
   * command that does not exit with 0 is the error {@link CommandFailed}, which has the end of its output.
   */
  async wait(options: WaitOptions = {}): Promise<ExecutionView> {
    const { check, signal } = checkNames(options, WAIT);
    const limits = signal === undefined ? {} : { signal };
    let view = await this.refresh(limits);
    if (view.endedAt === null) {
      for await (const output of this.follow({ ...limits, after: view.outputEnd })) {
        if (output.type === "done") break;
      }
      view = await this.refresh(limits);
    }
    if (check === true && view.exitCode !== 0) throw new CommandFailed(view.command, await this.#failedResult(view, limits));
    return view;
  }

  /**
   * The output as it appears. Lost connections are established again, and no line is missed or repeated. A line arrives when it ends,
   * or with the end of the output: a prompt such as `Name: ` is not delivered while the command waits for input. `output` has it, and
   * so has a terminal.
   */
  follow(options: FollowOptions = {}): FollowedOutput {
    return new FollowedOutput(this, checkNames(options, FOLLOW));
  }

  /**
   * Writes to standard input, which `start` keeps open with `openStdin: true`, and returns when the command has taken the bytes. A
   * write whose response is lost is not retried. What the command asks for without a line end is in `output`, not in `follow`.
   */
  async writeStdin(data: string | Uint8Array, options: StdinOptions = {}): Promise<StdinWritten> {
    const { close, autoResume, signal } = checkNames(options, STDIN);
    return contextOf(this).json({
      method: "POST",
      path: this.path("/stdin", { close, autoResume }),
      safety: "only_unstarted",
      payload: contentPayload(data, "application/octet-stream"),
      signal,
    });
  }

  /** Sends a signal, such as `SIGINT`. */
  async signal(name: SignalBody["signal"], options: ResumingOptions = {}): Promise<ExecutionView> {
    const { autoResume, signal } = checkNames(options, RESUMING);
    const body: SignalBody = { signal: name };
    const path = this.path("/signal", { autoResume });
    return this.#viewed({ method: "POST", path, safety: "after_answer", payload: jsonPayload(body), signal });
  }

  /** Kills the command and all its processes. Has no effect if it has ended. */
  async cancel(options: ResumingOptions = {}): Promise<ExecutionView> {
    const { autoResume, signal } = checkNames(options, RESUMING);
    return this.#viewed({ method: "DELETE", path: this.path("", { autoResume }), safety: "repeatable", signal });
  }

  /** The same as {@link cancel}. */
  kill(options: ResumingOptions = {}): Promise<ExecutionView> {
    return this.cancel(options);
  }

  /** Attaches to a terminal. The output begins at the offset `after`, by default with the stored output. */
  attach(options: AttachOptions = {}): Promise<Terminal> {
    return attach(this, options);
  }

  /** The URL path of the execution with a suffix and a query. */
  path(rest = "", query: Query = {}): string {
    return contextOf(this).path(`/executions/${this.id}${rest}`, query);
  }

  protected describe(): object {
    const { command, state, exitCode } = this.#view ?? {};
    return defined({ id: this.id, sandbox: contextOf(this).id, command, state, exitCode });
  }

  async #viewed(call: Call): Promise<ExecutionView> {
    this.#view = await contextOf(this).json<ExecutionView>(call);
    return this.#view;
  }

  /** The result of an ended command with the end of its output. */
  async #failedResult(view: ExecutionView, limits: CallOptions): Promise<ExecutionResult> {
    const { exitCode, signal, reason, durationMs, outputStart, outputEnd, message = "" } = view;
    const tails = tailOffset(outputStart, outputEnd);
    const output = await this.output({ ...limits, after: tails.offset });
    // The offset may be in the middle of a character.
    const [stdout = "", stderr = ""] = [output.stdout, output.stderr].map((text) => text.replace(/^\ufffd+/, ""));
    return {
      ...{ stdout, exitCode, signal, durationMs: durationMs ?? 0 },
      // Without a reason, the message says why the command could not start.
      ...(reason === undefined ? { stderr: stderr === "" ? message : stderr } : { stderr, reason, message }),
      ...(tails.isCut[0] ? { stdoutTruncated: true } : {}),
      ...(tails.isCut[1] ? { stderrTruncated: true } : {}),
    };
  }
}

/** The offset of the last part of each stream, and whether anything is before it. */
function tailOffset(outputStart: string, outputEnd: string): { offset: string; isCut: readonly [boolean, boolean] } {
  const begins = outputStart.split(".").map(Number);
  const [stdout = 0, stderr = 0] = outputEnd.split(".").map((end, stream) => Math.max(begins[stream] ?? 0, Number(end) - TAIL_BYTES));
  return { offset: `${stdout}.${stderr}`, isCut: [stdout > 0, stderr > 0] };
}

/** The output of a detached execution. The connection is established again when it is lost. */
export class FollowedOutput extends FollowedStream<Output> {
  readonly #execution: Execution;
  readonly #options: FollowOptions;

  /** For `Execution.follow`. */
  constructor(execution: Execution, options: FollowOptions) {
    super("the stream ended before the execution did", options.after, options.signal);
    this.#execution = execution;
    this.#options = options;
  }

  /** The offset after the last output that was returned, with which another `follow` can continue. */
  get offset(): string | undefined {
    return this.position;
  }

  protected async open(offset: string | undefined): Promise<StreamedResponse | undefined> {
    const response = await contextOf(this.#execution).transport.stream({
      method: "GET",
      path: this.#execution.path("/output", this.#options.lineEnds === true ? { lineEnds: true } : {}),
      safety: "repeatable",
      accept: "text/event-stream",
      signal: this.#options.signal,
      ...(offset === undefined ? {} : { headers: { "last-event-id": offset } }),
    });
    if (offset !== END || response.status !== 204) return response;
    response.close();
    return undefined;
  }

  protected parse(event: SseEvent): Output | undefined {
    return parseOutput(event, this.#options.lineEnds === true);
  }

  protected failed(error: unknown): unknown {
    return contextOf(this.#execution).failed(error);
  }

  protected override describe(): object {
    return { execution: this.#execution.id };
  }
}
