/** Running code in the code interpreter of a sandbox, and its contexts. */

import { checkedRunId, defined, signalOf } from "./context.js";
import type { CallOptions, ResumingOptions, SandboxContext } from "./context.js";
import { Described } from "./described.js";
import { argumentError, errorOfEvent, networkError } from "./error-classes.js";
import { SandboxdError } from "./errors.js";
import { truncated } from "./execute.js";
import type {
  CodeBody,
  CodeContext,
  CodeContextBody,
  CodeContextList,
  CodeContextRemoved,
  CodeException,
  CodeExecution,
  CodeResult,
} from "./models.js";
import { checkNames } from "./option-names.js";
import type { OptionNames } from "./option-names.js";
import { EventSource, parsed } from "./output.js";
import { jsonPayload } from "./payload.js";
import type { SseEvent } from "./sse.js";
import type { Call } from "./transport.js";
import { millisecondsOf } from "./units.js";
import type { Duration } from "./units.js";

/** The default of the service. */
const TIMEOUT_MS = 60_000;

/** Options of `runCode`. With a callback the output is streamed. */
export interface RunCodeOptions extends ResumingOptions {
  /** `python` (the default), `javascript`, `bash`, or another kernel of the image. */
  language?: string;
  /** The context, or its id, in which the code runs instead of the default context of its language. */
  context?: CodeContext | string;
  /** Environment variables for this execution. */
  env?: Readonly<Record<string, string>>;
  /** Interrupts the code after this time, at most 300,000. Default: 60,000, also of `undefined`. */
  timeoutMs?: number;
  /** The same as a text with its unit, such as `2m`. */
  timeout?: Duration;
  /** The run to which the code belongs. Default: the run of the sandbox. */
  runId?: string;
  /** Called with text on standard output. */
  onStdout?: (text: string) => void;
  /** Called with text on standard error. */
  onStderr?: (text: string) => void;
  /** Called with each value that the code showed. */
  onResult?: (result: CodeResult) => void;
  /** Called with what the code raised. */
  onException?: (exception: CodeException) => void;
}

/** Options of a new context. */
export interface CreateContextOptions extends CallOptions {
  /** `python` (the default), `javascript`, `bash`, or another kernel of the image. */
  language?: string;
  /** The working directory, by default that of the sandbox. */
  cwd?: string;
}

const RUN: OptionNames<RunCodeOptions> = {
  ...{ language: true, context: true, env: true, timeoutMs: true, timeout: true, runId: true, autoResume: true, signal: true },
  ...{ onStdout: true, onStderr: true, onResult: true, onException: true },
};
const CREATE: OptionNames<CreateContextOptions> = { language: true, cwd: true, signal: true };

/** The contexts of the code interpreter. Each has a kernel, which keeps its state from one execution to the next. */
export class CodeContexts extends Described {
  readonly #context: SandboxContext;

  /** For `Sandbox.contexts`. */
  constructor(context: SandboxContext) {
    super();
    this.#context = context;
  }

  /** Lists the contexts. */
  async list(options: CallOptions = {}): Promise<readonly CodeContext[]> {
    return (await this.#call<CodeContextList>("GET", "", "repeatable", signalOf(options))).data;
  }

  /** Starts a kernel. */
  async create(options: CreateContextOptions = {}): Promise<CodeContext> {
    const { language, cwd, signal } = checkNames(options, CREATE);
    return this.#call("POST", "", "only_unstarted", signal, defined<CodeContextBody>({ language, cwd }));
  }

  /** Replaces the kernel of a context by a new one, without the state of the old one. */
  async restart(context: CodeContext | string, options: CallOptions = {}): Promise<CodeContext> {
    return this.#call("POST", `/${idOf(context)}/restart`, "repeatable", signalOf(options));
  }

  /** Removes a context and kills its kernel. */
  async remove(context: CodeContext | string, options: CallOptions = {}): Promise<CodeContextRemoved> {
    return this.#call("DELETE", `/${idOf(context)}`, "after_answer", signalOf(options));
  }

  protected describe(): object {
    return { sandbox: this.#context.id };
  }

  #call<T>(
    method: string,
    rest: string,
    safety: Call["safety"],
    signal: AbortSignal | undefined,
    body?: CodeContextBody,
  ): Promise<T> {
    return this.#context.json<T>({
      method,
      path: this.#context.path(`/code/contexts${rest}`),
      safety,
      signal,
      ...(body === undefined ? {} : { payload: jsonPayload(body) }),
    });
  }
}

/** The id becomes part of a path. */
function idOf(context: CodeContext | string): string {
  const id = typeof context === "string" ? context : context.contextId;
  if (!/^[A-Za-z0-9-]+$/.test(id)) throw argumentError("context", "a context id has letters, digits and hyphens");
  return id;
}

/** Runs code and returns its outcome. Aborting the call interrupts the code. */
export async function runCode(context: SandboxContext, code: string, options: RunCodeOptions): Promise<CodeExecution> {
  const { language, env, autoResume, runId } = checkNames(options, RUN);
  const timeoutMs = millisecondsOf("timeout", options.timeout, options.timeoutMs);
  const contextId = options.context === undefined ? undefined : idOf(options.context);
  if (runId !== undefined) checkedRunId(runId);
  const call: Call = {
    method: "POST",
    path: context.path("/code"),
    safety: "only_unstarted",
    payload: jsonPayload(defined<CodeBody>({ code, language, contextId, env, timeoutMs, autoResume })),
    signal: options.signal,
  };
  const command = truncated(code);
  context.record("exec.started", { command });
  try {
    const { onStdout, onStderr, onResult, onException } = options;
    const isStreamed = [onStdout, onStderr, onResult, onException].some((callback) => callback !== undefined);
    const limit = (timeoutMs ?? TIMEOUT_MS) + context.transport.settings.timeoutMs;
    const execution = isStreamed
      ? await streamed(context, { ...call, accept: "text/event-stream" }, options)
      : await context.inRun<CodeExecution>({ ...call, timeoutMs: limit }, runId);
    const { durationMs } = execution;
    context.record("exec.completed", { command, durationMs, exitCode: execution.exception === null ? 0 : 1, signal: null });
    return execution;
  } catch (error) {
    if (!(error instanceof SandboxdError)) throw error;
    context.record("exec.error", { command, code: error.codeName, message: error.message });
    throw context.failed(error);
  }
}

async function streamed(context: SandboxContext, call: Call, options: RunCodeOptions): Promise<CodeExecution> {
  const source = new EventSource(await context.streamInRun(call, options.runId));
  const output = new Collected(options);
  try {
    for (;;) {
      const event = await source.next();
      if (event === undefined) throw networkError("the stream ended before the code did; the code may have been interrupted");
      const execution = output.take(event);
      if (execution !== undefined) return execution;
    }
  } finally {
    source.close();
  }
}

/** The output so far. */
class Collected {
  readonly #options: RunCodeOptions;
  readonly #results: CodeResult[] = [];
  #stdout = "";
  #stderr = "";
  #exception: CodeException | null = null;

  constructor(options: RunCodeOptions) {
    this.#options = options;
  }

  /** Adds an event; returns the outcome after the last one. */
  take({ event, data }: SseEvent): CodeExecution | undefined {
    switch (event) {
      case "stdout": {
        const { text } = document(data) as { text: string };
        this.#stdout += text;
        this.#options.onStdout?.(text);
        return undefined;
      }
      case "stderr": {
        const { text } = document(data) as { text: string };
        this.#stderr += text;
        this.#options.onStderr?.(text);
        return undefined;
      }
      case "result": {
        const result = document(data) as CodeResult;
        this.#results.push(result);
        this.#options.onResult?.(result);
        return undefined;
      }
      case "exception":
        this.#exception = document(data) as CodeException;
        this.#options.onException?.(this.#exception);
        return undefined;
      case "done": {
        const done = document(data) as Pick<CodeExecution, "executionCount" | "contextId" | "durationMs" | "outputTruncated">;
        return { stdout: this.#stdout, stderr: this.#stderr, results: this.#results, exception: this.#exception, ...done };
      }
      case "error":
        throw errorOfEvent(data) ?? networkError("the stream ended with an error that cannot be parsed");
      default:
        return undefined;
    }
  }
}

function document(data: string): unknown {
  const value = parsed<object>(data);
  if (value === undefined) throw networkError("an event of the stream cannot be parsed");
  return value;
}
