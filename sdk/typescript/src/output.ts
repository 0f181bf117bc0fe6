/** The output of commands as a sequence of lines, from Server-Sent Events. */

import { errorOf, errorOfEvent, networkError } from "./error-classes.js";
import { messageOf } from "./errors.js";
import type { StreamedResponse } from "./attempt.js";
import type { Done } from "./models.js";
import { SseParser } from "./sse.js";
import type { SseEvent } from "./sse.js";

/** Longer than the pause between two comments of the service. */
export const LONGEST_SILENCE_MS = 60_000;

/** A line of standard output, without its line end unless the stream has line ends. */
export interface StdoutLine {
  /** Tells the parts of the output apart. */
  readonly type: "stdout";
  /** The text of the line. */
  readonly line: string;
}

/** A line of standard error. */
export interface StderrLine {
  /** Tells the parts of the output apart. */
  readonly type: "stderr";
  /** The text of the line. */
  readonly line: string;
}

/** Output that is no longer stored. Only detached executions have it. */
export interface DroppedOutput {
  /** Tells the parts of the output apart. */
  readonly type: "dropped";
  /** The number of bytes of both streams. */
  readonly bytes: number;
  /** The number of bytes of standard output. */
  readonly stdoutBytes: number;
  /** The number of bytes of standard error. */
  readonly stderrBytes: number;
}

/** The end of the command. */
export interface CommandDone extends Done {
  /** Tells the parts of the output apart. */
  readonly type: "done";
}

/** A part of the output, discriminated by `type`. `done` is the last one. */
export type Output = StdoutLine | StderrLine | DroppedOutput | CommandDone;

/** The events of a response body. */
export class EventSource {
  readonly #response: StreamedResponse;
  readonly #parser = new SseParser();
  #events: SseEvent[] = [];

  constructor(response: StreamedResponse) {
    this.#response = response;
  }

  /** Whether a parsed event waits to be returned. */
  hasEvents(): boolean {
    return this.#events.length > 0;
  }

  /** The last complete id, also of an event without data. */
  get lastId(): string | undefined {
    return this.#parser.lastId;
  }

  /** The next event; `undefined` at the end of the body. */
  async next(): Promise<SseEvent | undefined> {
    while (this.#events.length === 0) {
      if (!(await this.fill())) return undefined;
    }
    return this.#events.shift();
  }

  /** Reads once from the connection; `false` at the end of the body. */
  async fill(): Promise<boolean> {
    const bytes = await this.#response.read(LONGEST_SILENCE_MS);
    if (bytes === undefined) return false;
    try {
      this.#events.push(...this.#parser.push(bytes));
    } catch (error) {
      throw networkError(messageOf(error), error);
    }
    return true;
  }

  /** Closes the connection. */
  close(): void {
    this.#response.close();
  }
}

/** The output in an event; `undefined` for an event that this version does not know. Throws the error in an event `error`. */
export function parseOutput(event: SseEvent, lineEnds: boolean): Output | undefined {
  switch (event.event) {
    case "stdout":
    case "stderr":
      return { type: event.event, line: lineOf(event, lineEnds) };
    case "dropped": {
      const { stdout = 0, stderr = 0 } = parsed<{ stdout: number; stderr: number }>(event.data) ?? {};
      return { type: "dropped", bytes: stdout + stderr, stdoutBytes: stdout, stderrBytes: stderr };
    }
    case "done": {
      const done = parsed<Done>(event.data);
      if (done !== undefined) return { type: "done", ...done };
      throw errorOf("UNKNOWN", "the result in the stream cannot be parsed", { status: 200 });
    }
    case "error": {
      const message = "the stream ended with an error that cannot be parsed";
      throw errorOfEvent(event.data) ?? errorOf("UNKNOWN", message, { status: 200 });
    }
    default:
      return undefined;
  }
}

/** The line: a line feed within an event stands for a carriage return of the command. */
function lineOf({ data, end }: SseEvent, withEnd: boolean): string {
  const text = data.replaceAll("\n", "\r");
  if (!withEnd || end === "none") return text;
  return end === "crlf" ? `${text}\r\n` : `${text}\n`;
}

/** The JSON value of an event; `undefined` if it is malformed. */
export function parsed<T>(text: string): Partial<T> & T | undefined {
  try {
    return JSON.parse(text) as Partial<T> & T;
  } catch {
    return undefined;
  }
}
