/** Detached executions: starting, inspecting, following, writing to, and ending them. */

import type { StreamedResponse } from "./attempt.js";
import { defined, idempotencyHeaders } from "./context.js";
import type { CallOptions, ResumingOptions, SandboxContext } from "./context.js";
import { argumentError } from "./error-classes.js";
import { commandBody } from "./execute.js";
import type { CommandOptions } from "./execute.js";
import { END, FollowedStream } from "./followed-stream.js";
import { randomId } from "./ids.js";
import type { DetachedBody, ExecutionOutput, ExecutionView, SignalBody, StdinWritten } from "./models.js";
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

/** Starts a detached command. */
export async function start(context: SandboxContext, command: string, options: StartOptions): Promise<Execution> {
  const { openStdin } = options;
  const body = defined<DetachedBody>({ ...commandBody(command, options), detached: true, openStdin });
  const call: Call = {
    method: "POST",
    path: context.path("/execute"),
    safety: "command",
    payload: jsonPayload(body),
    headers: idempotencyHeaders(options.idempotencyKey ?? randomId("key_")),
    signal: options.signal,
  };
  try {
    const view = await context.inRun<ExecutionView>(call, options.runId);
    return new Execution(context, view.executionId, view);
  } catch (error) {
    throw context.failed(error);
  }
}

/** The executions of a sandbox: its detached commands and terminals. */
export class Executions {
  readonly #context: SandboxContext;

  constructor(context: SandboxContext) {
    this.#context = context;
  }

  /** Lists the executions, newest first: the running ones and those that ended recently. */
  list(options: CallOptions = {}): PagedList<ExecutionView> {
    return new PagedList(
      (offset) => {
        const path = this.#context.path("/executions", { limit: LARGEST_PAGE, offset });
        return this.#context.json({ method: "GET", path, safety: "repeatable", signal: options.signal });
      },
      (view) => view.executionId,
    );
  }

  /** Returns an execution with its current state. */
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
}

/** A detached command or a terminal. */
export class Execution {
  /** The context of the sandbox; for other modules of the SDK. */
  readonly context: SandboxContext;
  /** The identifier. */
  readonly id: string;
  #view: ExecutionView | undefined;

  constructor(context: SandboxContext, id: string, view?: ExecutionView) {
    this.context = context;
    this.id = id;
    this.#view = view;
  }

  /** The state as of the last response. Sends no request. */
  get view(): ExecutionView | undefined {
    return this.#view;
  }

  /** Fetches the current state. */
  async refresh(options: CallOptions = {}): Promise<ExecutionView> {
    return this.#viewed({ method: "GET", path: this.path(), safety: "repeatable", signal: options.signal });
  }

  /** Returns the output so far, or the output after an offset such as `next` of the last response. */
  output(options: CallOptions & { after?: string } = {}): Promise<ExecutionOutput> {
    const path = this.path("/output", { after: options.after });
    return this.context.json({ method: "GET", path, safety: "repeatable", signal: options.signal });
  }

  /** Waits until the command ends, and reconnects when a connection is lost. */
  async wait(options: CallOptions = {}): Promise<ExecutionView> {
    const view = await this.refresh(options);
    if (view.endedAt !== null) return view;
    for await (const output of this.follow({ ...options, after: view.outputEnd })) {
      if (output.type === "done") break;
    }
    return this.refresh(options);
  }

  /** The output as it appears. Lost connections are established again, and no line is missed or repeated. */
  follow(options: FollowOptions = {}): FollowedOutput {
    return new FollowedOutput(this, options);
  }

  /** Writes to standard input and returns when the command has taken the bytes. A write whose response is lost is not retried. */
  writeStdin(data: string | Uint8Array, options: StdinOptions = {}): Promise<StdinWritten> {
    const { close, autoResume, signal } = options;
    return this.context.json({
      method: "POST",
      path: this.path("/stdin", { close, autoResume }),
      safety: "only_unstarted",
      payload: contentPayload(data, "application/octet-stream"),
      signal,
    });
  }

  /** Sends a signal, such as `SIGINT`. */
  signal(name: SignalBody["signal"], options: ResumingOptions = {}): Promise<ExecutionView> {
    const body: SignalBody = { signal: name };
    const path = this.path("/signal", { autoResume: options.autoResume });
    const payload = jsonPayload(body);
    return this.#viewed({ method: "POST", path, safety: "after_answer", payload, signal: options.signal });
  }

  /** Kills the command and all its processes. Has no effect if it has ended. */
  cancel(options: ResumingOptions = {}): Promise<ExecutionView> {
    const path = this.path("", { autoResume: options.autoResume });
    return this.#viewed({ method: "DELETE", path, safety: "repeatable", signal: options.signal });
  }

  /** Attaches to a terminal. The output begins at the offset `after`, by default with the stored output. */
  attach(options: AttachOptions = {}): Promise<Terminal> {
    return attach(this, options);
  }

  /** The URL path of the execution with a suffix and a query. */
  path(rest = "", query: Parameters<SandboxContext["path"]>[1] = {}): string {
    return this.context.path(`/executions/${this.id}${rest}`, query);
  }

  async #viewed(call: Call): Promise<ExecutionView> {
    this.#view = await this.context.json<ExecutionView>(call);
    return this.#view;
  }
}

/** The output of a detached execution. The connection is established again when it is lost. */
export class FollowedOutput extends FollowedStream<Output> {
  readonly #execution: Execution;
  readonly #options: FollowOptions;

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
    const response = await this.#execution.context.transport.stream({
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
    return this.#execution.context.failed(error);
  }
}
