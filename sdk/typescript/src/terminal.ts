/** Interactive terminals: opening, attaching, and attaching again after a lost connection. */

import { sleep } from "./attempt.js";
import { ClosableIterator } from "./closable-iterator.js";
import { commandLine } from "./command-line.js";
import type { Command } from "./command-line.js";
import { contextOf, defined, idempotencyHeaders } from "./context.js";
import type { CallOptions, ResumingOptions, SandboxContext } from "./context.js";
import { errorOf, errorOfEvent, networkError } from "./error-classes.js";
import type { SandboxdError } from "./errors.js";
import { Execution } from "./execution.js";
import { passes } from "./followed-stream.js";
import { randomId } from "./ids.js";
import type { ExecutionView, SignalBody, TerminalBody, TerminalSize } from "./models.js";
import { checkNames } from "./option-names.js";
import type { OptionNames } from "./option-names.js";
import { jsonPayload } from "./payload.js";
import type { Socket } from "./platform/types.js";
import { millisecondsOf } from "./units.js";
import type { Duration } from "./units.js";

/** Limit for reconnecting without success. */
const LONGEST_AWAY_MS = 120_000;
const FIRST_WAIT_MS = 100;
const LONGEST_WAIT_MS = 2000;
/** The service sends pings every few seconds. */
const LONGEST_SILENCE_MS = 30_000;
/** Output that the program has not received yet. Beyond it the connection is closed, and the service stores the output. */
const QUEUE_BYTES_MAX = 4 << 20;

/** Options of `terminal`. */
export interface TerminalOptions extends ResumingOptions {
  /** The width in columns. Default: 80. */
  cols?: number;
  /** The height in rows. Default: 24. */
  rows?: number;
  /** A bash command line, or a list of a program and its arguments. Default: an interactive bash. */
  command?: Command;
  /** The working directory, by default that of the sandbox. */
  cwd?: string;
  /** Environment variables, which override those of the sandbox. */
  env?: Readonly<Record<string, string>>;
  /** The user, a name in the sandbox's `/etc/passwd`. Default: root. */
  user?: string;
  /** A time limit. Default: none. */
  timeoutMs?: number;
  /** The same as a text with its unit, such as `2h`. */
  timeout?: Duration;
  /** The run to which the terminal belongs. Default: the run of the sandbox. */
  runId?: string;
  /** A request with the same key within 24 hours returns the same terminal. */
  idempotencyKey?: string;
}

/** Options of `attach`. */
export interface AttachOptions extends ResumingOptions {
  /** The number of bytes of output to skip, or `end` for new output only. Default: 0. */
  after?: number | "end";
}

const OPEN: OptionNames<TerminalOptions> = {
  ...{ cols: true, rows: true, command: true, cwd: true, env: true, user: true, timeoutMs: true, timeout: true, runId: true },
  ...{ idempotencyKey: true, autoResume: true, signal: true },
};
const ATTACH: OptionNames<AttachOptions> = { after: true, autoResume: true, signal: true };

/** What a terminal delivers, discriminated by `type`. `ended` is the last one. */
export type TerminalEvent =
  | { readonly type: "bytes"; readonly bytes: Uint8Array }
  /** Output that is no longer stored was skipped. */
  | { readonly type: "dropped" }
  | { readonly type: "disconnected" }
  | { readonly type: "reconnected" }
  | { readonly type: "ended"; readonly execution: ExecutionView };

/** Opens a terminal without attaching to it. */
export async function openTerminal(context: SandboxContext, options: TerminalOptions): Promise<Execution> {
  const { cols, rows, cwd, env, user, autoResume } = checkNames(options, OPEN);
  const command = options.command === undefined ? undefined : commandLine(options.command);
  const timeoutMs = millisecondsOf("timeout", options.timeout, options.timeoutMs);
  const body = defined<TerminalBody>({ cols, rows, command, cwd, env, user, timeoutMs, autoResume });
  try {
    const view = await context.inRun<ExecutionView>(
      {
        method: "POST",
        path: context.path("/terminals"),
        safety: "command",
        payload: jsonPayload(body),
        headers: idempotencyHeaders(options.idempotencyKey ?? randomId("key_")),
        signal: options.signal,
      },
      options.runId,
    );
    return new Execution(context, view.executionId, view);
  } catch (error) {
    throw context.failed(error);
  }
}

/** Attaches to the terminal of an execution. */
export async function attach(execution: Execution, options: AttachOptions): Promise<Terminal> {
  const terminal = new Terminal(execution, checkNames(options, ATTACH));
  try {
    await terminal.connect();
  } catch (error) {
    throw contextOf(execution).failed(error);
  }
  return terminal;
}

/** A message of the service. */
interface ControlMessage {
  readonly position?: number;
  readonly ended?: ExecutionView;
  readonly error?: unknown;
}

/** An attached terminal. Iterating it delivers its output. Closing it detaches: the terminal continues. */
export class Terminal extends ClosableIterator<TerminalEvent> {
  /** The execution that the terminal belongs to. */
  readonly execution: Execution;
  readonly #options: AttachOptions;
  /** Offset: bytes received since the beginning. */
  #position: number | "end";
  /** The last size, to send again on the next connection. */
  #size: TerminalSize | undefined;
  #socket: Socket | undefined;
  #queue: TerminalEvent[] = [];
  #queuedBytes = 0;
  #lost: SandboxdError | undefined;
  #isOver = false;
  #wake: () => void = () => undefined;
  #silence: ReturnType<typeof setTimeout> | undefined;

  /** For `Sandbox.terminal` and `Execution.attach`. */
  constructor(execution: Execution, options: AttachOptions) {
    super();
    this.execution = execution;
    this.#options = options;
    this.#position = options.after ?? 0;
    options.signal?.addEventListener("abort", this.#abort, { once: true });
  }

  /** Sends input. Input in transit when a connection is lost may be lost; it never arrives twice. */
  send(data: string | Uint8Array): void {
    this.#connected().send(typeof data === "string" ? new TextEncoder().encode(data) : data);
  }

  /** Sets the window size; the foreground process receives `SIGWINCH`. */
  resize(cols: number, rows: number): void {
    this.#size = { cols, rows };
    this.#socket?.send(JSON.stringify({ resize: this.#size }));
  }

  /** Sends a signal, such as `SIGINT`. */
  signal(name: SignalBody["signal"]): void {
    this.#connected().send(JSON.stringify({ signal: name }));
  }

  /** Returns the next event; `undefined` after the end. */
  async receive(): Promise<TerminalEvent | undefined> {
    for (;;) {
      this.#options.signal?.throwIfAborted();
      const event = this.#queue.shift();
      if (event !== undefined) {
        if (event.type === "bytes") this.#queuedBytes -= event.bytes.length;
        if (event.type === "ended") this.close();
        return event;
      }
      if (this.#isOver) return undefined;
      if (this.#lost !== undefined) await this.#reconnect(this.#lost);
      else await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  /** Detaches. The terminal continues. */
  close(): void {
    this.#isOver = true;
    this.#options.signal?.removeEventListener("abort", this.#abort);
    this.#disconnect();
    this.#wake();
  }

  /** Establishes a connection; for other modules of the SDK. */
  async connect(): Promise<void> {
    const after = this.#position;
    const path = this.execution.path("/attach", { after, autoResume: this.#options.autoResume });
    const socket = await contextOf(this.execution).transport.openSocket(path, this.#options.signal);
    const isReconnected = this.#lost !== undefined;
    this.#lost = undefined;
    this.#socket = socket;
    if (isReconnected) this.#push({ type: "reconnected" });
    if (socket.reportsPings) this.#restartSilence();
    if (this.#size !== undefined) socket.send(JSON.stringify({ resize: this.#size }));
    // A late event of a connection that was given up is ignored.
    const isCurrent = (): boolean => this.#socket === socket;
    socket.listen({
      message: (data) => {
        if (isCurrent()) this.#receive(data);
      },
      alive: () => {
        if (isCurrent()) this.#restartSilence();
      },
      close: (reason) => {
        if (isCurrent()) this.#lose(networkError(`the connection of the terminal was lost: ${reason}`));
      },
    });
  }

  /** The same as `receive`, for `for await`. */
  async next(): Promise<IteratorResult<TerminalEvent, undefined>> {
    const value = await this.receive();
    return value === undefined ? { done: true, value } : { done: false, value };
  }

  protected override describe(): object {
    return { execution: this.execution.id };
  }

  #connected(): Socket {
    if (this.#socket !== undefined) return this.#socket;
    throw networkError(this.#isOver ? "the terminal has ended" : "the terminal is not connected");
  }

  #receive(data: string | Uint8Array): void {
    if (typeof data !== "string") {
      if (typeof this.#position === "number") this.#position += data.length;
      this.#queuedBytes += data.length;
      this.#push({ type: "bytes", bytes: data });
      if (this.#queuedBytes > QUEUE_BYTES_MAX) this.#lose(networkError("the output was not read in time"));
      return;
    }
    try {
      this.#control(JSON.parse(data) as ControlMessage);
    } catch (cause) {
      this.#lose(errorOf("UNKNOWN", "a message cannot be parsed", { status: 101, cause }));
    }
  }

  #control({ error, ended, position }: ControlMessage): void {
    if (error !== undefined) {
      this.#lose(errorOfEvent(JSON.stringify(error)) ?? networkError("the terminal failed"));
    } else if (ended !== undefined) {
      this.#push({ type: "ended", execution: ended });
      this.#disconnect();
    } else if (position !== undefined) {
      const isFurther = typeof this.#position === "number" && position > this.#position;
      this.#position = position;
      if (isFurther) this.#push({ type: "dropped" });
    }
  }

  #push(event: TerminalEvent): void {
    this.#queue.push(event);
    this.#wake();
  }

  #lose(error: SandboxdError): void {
    if (this.#isOver || this.#lost !== undefined || this.#socket === undefined) return;
    this.#disconnect();
    this.#lost = error;
    this.#push({ type: "disconnected" });
  }

  async #reconnect(lost: SandboxdError): Promise<void> {
    let error: unknown = lost;
    const since = Date.now();
    for (let wait = FIRST_WAIT_MS; passes(error) && Date.now() - since < LONGEST_AWAY_MS; wait *= 2) {
      await sleep(Math.min(wait, LONGEST_WAIT_MS), this.#options.signal);
      try {
        await this.connect();
        return;
      } catch (failure) {
        error = failure;
      }
    }
    this.close();
    throw contextOf(this.execution).failed(error);
  }

  #restartSilence(): void {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => {
      this.#lose(networkError("the service sent neither output nor a ping for too long"));
    }, LONGEST_SILENCE_MS);
  }

  #disconnect(): void {
    clearTimeout(this.#silence);
    this.#socket?.close();
    this.#socket = undefined;
  }

  readonly #abort = (): void => {
    this.close();
  };
}

/** Options that attaching takes from those of opening. */
export function attachOptions({ signal, autoResume }: TerminalOptions): AttachOptions & CallOptions {
  return { ...(signal === undefined ? {} : { signal }), ...(autoResume === undefined ? {} : { autoResume }) };
}
