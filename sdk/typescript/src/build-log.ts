/** The log of a build: which step runs, its output, and the template at the end. */

import type { StreamedResponse } from "./attempt.js";
import type { CallOptions } from "./context.js";
import { errorOf, errorOfEvent } from "./error-classes.js";
import { END, FollowedStream } from "./followed-stream.js";
import type { Template } from "./models.js";
import { parsed } from "./output.js";
import type { StderrLine, StdoutLine } from "./output.js";
import type { SseEvent } from "./sse.js";
import type { Transport } from "./transport.js";

/** A step of a build. */
export interface BuildStep {
  /** From 1 on. */
  readonly number: number;
  /** The number of steps of the build. */
  readonly total: number;
  /** The line in the Dockerfile. */
  readonly line: number;
  /** The instruction, shortened. */
  readonly text: string;
  /** Whether its result comes from an earlier build. */
  readonly cached: boolean;
}

/** A step begins, or its result comes from the cache. */
export interface BuildStepStart {
  /** Tells the parts of the log apart. */
  readonly type: "step";
  /** The step. */
  readonly step: BuildStep;
}

/** A remark of the service. */
export interface BuildNote {
  /** Tells the parts of the log apart. */
  readonly type: "note";
  /** The remark, for people. */
  readonly text: string;
}

/** The end of the build. */
export interface BuildDone {
  /** Tells the parts of the log apart. */
  readonly type: "done";
  /** The template, which is ready, failed or cancelled. */
  readonly template: Template;
}

/** A part of the log of a build, discriminated by `type`. `done` is the last one. */
export type BuildOutput = BuildStepStart | StdoutLine | StderrLine | BuildNote | BuildDone;

/** Options of `logs`. */
export interface BuildLogOptions extends CallOptions {
  /** The id of the event after which to start, such as `BuildLog.lastEventId`. Default: the beginning. */
  after?: string;
}

/**
 * The log of a build, from its beginning to the end of the build. The connection is established again when it is lost, and no event
 * is missed or repeated. Ending the iteration does not end the build.
 */
export class BuildLog extends FollowedStream<BuildOutput> {
  readonly #transport: Transport;
  readonly #path: string;
  readonly #signal: AbortSignal | undefined;

  /** For `Templates.logs`. */
  constructor(transport: Transport, path: string, { after, signal }: BuildLogOptions) {
    super("the log ended before the build did", after, signal);
    this.#transport = transport;
    this.#path = path;
    this.#signal = signal;
  }

  /** The id of the last event that was returned, with which another `logs` can continue. */
  get lastEventId(): string | undefined {
    return this.position;
  }

  protected async open(after: string | undefined): Promise<StreamedResponse | undefined> {
    // After its last event, the service would send the log again.
    if (after === END) return undefined;
    return this.#transport.stream({
      method: "GET",
      path: this.#path,
      safety: "repeatable",
      accept: "text/event-stream",
      signal: this.#signal,
      ...(after === undefined ? {} : { headers: { "last-event-id": after } }),
    });
  }

  protected parse(event: SseEvent): BuildOutput | undefined {
    switch (event.event) {
      case "step":
        return { type: "step", step: parsed<BuildStep>(event.data) ?? malformed("a step") };
      case "stdout":
      case "stderr":
        return { type: event.event, line: event.data };
      case "note":
        return { type: "note", text: event.data };
      case "done":
        return { type: "done", template: parsed<Template>(event.data) ?? malformed("the template") };
      case "error":
        throw errorOfEvent(event.data) ?? malformed("the error");
      default:
        return undefined;
    }
  }

  protected failed(error: unknown): unknown {
    return error;
  }
}

function malformed(what: string): never {
  throw errorOf("UNKNOWN", `${what} of the log cannot be parsed`, { status: 200 });
}
