/** Running commands, with buffered or streamed output. */

import { ClosableIterator } from "./closable-iterator.js";
import { commandLine } from "./command-line.js";
import type { Command } from "./command-line.js";
import { CommandFailed } from "./command-failed.js";
import { checkedRunId, defined, idempotencyHeaders } from "./context.js";
import type { ResumingOptions, SandboxContext } from "./context.js";
import { networkError } from "./error-classes.js";
import { SandboxdError } from "./errors.js";
import { randomId } from "./ids.js";
import type { Done, ExecuteBody, ExecutionResult } from "./models.js";
import { checkNames } from "./option-names.js";
import type { OptionNames } from "./option-names.js";
import { EventSource, parseOutput } from "./output.js";
import type { CommandDone, Output } from "./output.js";
import { jsonPayload } from "./payload.js";
import type { Safety } from "./retry.js";
import type { Call } from "./transport.js";
import { millisecondsOf } from "./units.js";
import type { Duration } from "./units.js";

/** The default of the service. */
const TIMEOUT_MS = 60_000;
/** Limit for the command text in an event. */
const SHOWN_BYTES = 4096;

/** Options of a command. */
export interface CommandOptions extends ResumingOptions {
  /** The working directory, by default that of the sandbox. */
  cwd?: string;
  /** Environment variables, which override those of the sandbox. */
  env?: Readonly<Record<string, string>>;
  /** The user, a name in the sandbox's `/etc/passwd`. Default: root. */
  user?: string;
  /** Text for standard input. */
  stdin?: string;
  /**
   * Kills the command and all its processes after this time, at most 86,400,000; of a stream 300,000. Default: 60,000, also of
   * `undefined`; for a detached command unlimited. `execute` runs a command with more than 300,000 detached.
   */
  timeoutMs?: number;
  /** The same as a text with its unit, such as `90s` or `10m`. */
  timeout?: Duration;
  /** The run to which the command belongs. Default: the run of the sandbox. */
  runId?: string;
}

/** Options of `execute`. */
export interface ExecuteOptions extends CommandOptions {
  /** A request with the same key within 24 hours, from any process, returns the first result. */
  idempotencyKey?: string;
  /** Throws {@link CommandFailed} if the command does not exit with 0. */
  check?: boolean;
  /**
   * Whether aborting the call kills the command. Such a request carries no idempotency key, and a lost response is an error, unless
   * the command runs detached because of its long timeout. Default: `true` if a `signal` and no `idempotencyKey` is given. Otherwise
   * the request is retried with its key, and the service returns the result of the first attempt.
   */
  killedOnAbort?: boolean;
}

/** The names of the options that all commands have. */
export const COMMAND_OPTIONS: OptionNames<CommandOptions> = {
  ...{ cwd: true, env: true, user: true, stdin: true, timeoutMs: true, timeout: true, runId: true, autoResume: true, signal: true },
};
/** The names of the options of `execute`. */
export const EXECUTE_OPTIONS: OptionNames<ExecuteOptions> = {
  ...COMMAND_OPTIONS,
  ...{ idempotencyKey: true, check: true, killedOnAbort: true },
};
const STREAM_OPTIONS: OptionNames<StreamOptions> = { ...COMMAND_OPTIONS, lineEnds: true, onStdout: true, onStderr: true };

/** Options of `stream`. */
export interface StreamOptions extends CommandOptions {
  /** Keeps line ends, so that the concatenation of the lines is the output as written. */
  lineEnds?: boolean;
  /** Called for each line of standard output that is read. */
  onStdout?: (line: string) => void;
  /** Called for each line of standard error that is read. */
  onStderr?: (line: string) => void;
}

/** The time limit of a command in ms. */
export function timeoutOf({ timeout, timeoutMs }: CommandOptions): number | undefined {
  return millisecondsOf("timeout", timeout, timeoutMs);
}

/** The fields of a request body that all commands have. */
export function commandBody(command: Command, options: CommandOptions): ExecuteBody {
  const { cwd, env, user, stdin, autoResume } = options;
  const timeoutMs = timeoutOf(options);
  return defined<ExecuteBody>({ command: commandLine(command), cwd, env, user, stdin, timeoutMs, autoResume, detached: undefined });
}

/** Whether aborting a call of `execute` kills its command. */
export function isKilledOnAbort({ killedOnAbort, signal, idempotencyKey }: ExecuteOptions): boolean {
  return killedOnAbort ?? (signal !== undefined && idempotencyKey === undefined);
}

/** Runs a command with one request, which has the result. */
export async function execute(context: SandboxContext, command: Command, options: ExecuteOptions): Promise<ExecutionResult> {
  const key = options.idempotencyKey ?? (isKilledOnAbort(options) ? undefined : randomId("key_"));
  const call: Call = {
    ...commandCall(context, command, options, key === undefined ? "only_unstarted" : "command"),
    timeoutMs: (timeoutOf(options) ?? TIMEOUT_MS) + context.transport.settings.timeoutMs,
    ...(key === undefined ? {} : { headers: idempotencyHeaders(key) }),
  };
  return recorded(context, command, options, () => context.inRun<ExecutionResult>(call, options.runId));
}

/** Runs a command by `run`, records its begin and end, and checks its result. */
export async function recorded(
  context: SandboxContext,
  command: Command,
  { check }: ExecuteOptions,
  run: () => Promise<ExecutionResult>,
): Promise<ExecutionResult> {
  const shown = truncated(commandLine(command));
  context.record("exec.started", { command: shown });
  let result: ExecutionResult;
  try {
    result = await run();
  } catch (error) {
    throw failed(context, shown, error);
  }
  if (result.message === undefined) result = { ...result, ...notStarted(result, result.stderr) };
  completed(context, shown, result);
  if (check === true && result.exitCode !== 0) throw new CommandFailed(shown, result);
  return result;
}

/** The message of a command that could not start: the end of its standard error, where the service says why. */
function notStarted({ exitCode, signal, reason }: Done, stderr: string): { message?: string } {
  if (exitCode !== null || signal !== null || reason !== undefined) return {};
  const message = stderr.trimEnd().split("\n").pop();
  return message === undefined || message === "" ? {} : { message };
}

function commandCall(context: SandboxContext, command: Command, options: CommandOptions, safety: Safety): Call {
  const payload = jsonPayload(commandBody(command, options));
  if (options.runId !== undefined) checkedRunId(options.runId);
  return { method: "POST", path: context.path("/execute"), safety, payload, signal: options.signal };
}

/**
 * The output of a command that is being run. The command starts with the first read. Ending the iteration before `done`,
 * for example with `break`, kills the command.
 */
export class OutputStream extends ClosableIterator<Output> {
  readonly #context: SandboxContext;
  readonly #command: string;
  readonly #options: StreamOptions;
  readonly #abort = new AbortController();
  #source: EventSource | undefined;
  #bytes = 0;
  /** The last line of standard error: it says why a command could not start. */
  #lastError = "";
  #isStarted = false;
  #isOver = false;
  #requestId: string | undefined;

  /** For `Sandbox.stream`. */
  constructor(context: SandboxContext, command: Command, options: StreamOptions) {
    super();
    this.#context = context;
    this.#command = commandLine(command);
    this.#options = checkNames(options, STREAM_OPTIONS);
  }

  /** The id of the request, once the command runs. */
  get requestId(): string | undefined {
    return this.#requestId;
  }

  /** Starts the command and returns once it runs. */
  async start(): Promise<this> {
    if (this.#isStarted) return this;
    this.#isStarted = true;
    const { signal } = this.#options;
    const own = this.#abort.signal;
    const options = { ...this.#options, signal: signal === undefined ? own : AbortSignal.any([signal, own]) };
    const path = this.#context.path("/execute", this.#options.lineEnds === true ? { lineEnds: true } : {});
    const call = { ...commandCall(this.#context, this.#command, options, "only_unstarted"), path, accept: "text/event-stream" };
    this.#context.record("exec.started", { command: truncated(this.#command) });
    try {
      const response = await this.#context.streamInRun(call, this.#options.runId);
      this.#requestId = response.headers.get("x-request-id") ?? undefined;
      this.#source = new EventSource(response);
    } catch (error) {
      throw this.#fail(error);
    }
    return this;
  }

  /** Returns the next part of the output. The first call starts the command. */
  async next(): Promise<IteratorResult<Output, undefined>> {
    if (this.#isOver) return { done: true, value: undefined };
    await this.start();
    try {
      const output = await this.#read();
      if (output.type === "done") this.#finish(output);
      return { done: false, value: output };
    } catch (error) {
      throw this.#fail(error);
    }
  }

  /** Reads the rest and returns the end of the command. */
  async done(): Promise<Done> {
    for await (const output of this) {
      if (output.type === "done") return output;
    }
    throw brokenOff();
  }

  /** Closes the connection, which kills the command. */
  close(): void {
    this.#isOver = true;
    this.#abort.abort();
    this.#source?.close();
  }

  async #read(): Promise<Output> {
    const lineEnds = this.#options.lineEnds === true;
    for (;;) {
      const event = await this.#source?.next();
      if (event === undefined) throw brokenOff();
      const output = parseOutput(event, lineEnds);
      if (output === undefined) continue;
      if (output.type === "done" && output.message === undefined) return { ...output, ...notStarted(output, this.#lastError) };
      if (output.type === "stderr") this.#lastError = output.line;
      if (output.type === "stdout" || output.type === "stderr") {
        this.#bytes += new TextEncoder().encode(output.line).length + (lineEnds ? 0 : 1);
        if (output.type === "stdout") this.#options.onStdout?.(output.line);
        else this.#options.onStderr?.(output.line);
      }
      return output;
    }
  }

  #finish(done: CommandDone): void {
    this.close();
    const command = truncated(this.#command);
    this.#context.record("exec.streamed", { command, bytes: this.#bytes });
    completed(this.#context, command, done);
  }

  #fail(error: unknown): unknown {
    this.close();
    return failed(this.#context, truncated(this.#command), error);
  }
}

function brokenOff(): SandboxdError {
  return networkError("the stream ended before the command did; the command may have been killed");
}

function completed(context: SandboxContext, command: string, { durationMs, exitCode, signal, reason }: Done): void {
  const why = reason === undefined ? {} : { reason };
  context.record("exec.completed", { command, durationMs, exitCode, signal, ...why });
}

function failed(context: SandboxContext, command: string, error: unknown): unknown {
  if (!(error instanceof SandboxdError)) return error;
  context.record("exec.error", { command, code: error.codeName, message: error.message });
  return context.failed(error);
}

/** The command text, truncated for an event. */
export function truncated(command: string): string {
  const bytes = new TextEncoder().encode(command);
  if (bytes.length <= SHOWN_BYTES) return command;
  return new TextDecoder().decode(bytes.subarray(0, SHOWN_BYTES)).replace(/\ufffd+$/, "");
}
