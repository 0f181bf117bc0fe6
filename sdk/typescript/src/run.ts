/**
 * Runs: what a program and its sandboxes do, as one stream of events with a common run id, for handlers, files and the service.
 * Errors of files and uploads do not interrupt the program: `flush` throws the first one.
 */

import { platform } from "#platform";
import { contextOf } from "./context.js";
import { Described } from "./described.js";
import { errorOf } from "./error-classes.js";
import { messageOf } from "./errors.js";
import { randomId } from "./ids.js";
import type { EventKind, RuntimeEvent } from "./models.js";
import { callAll } from "./lifecycle.js";
import type { Sandbox } from "./sandbox.js";
import { EventUploader } from "./uploader.js";

/** The number of the last event of this process. */
let lastId = 0;

/** The cost of a model response. */
export interface LlmCost {
  /** The name of the model. */
  readonly model: string;
  /** The number of tokens of the request. */
  readonly inputTokens: number;
  /** The number of tokens of the response. */
  readonly outputTokens: number;
  /** The price of the request and the response. */
  readonly amount: number;
  /** The currency of the price, such as `USD`. */
  readonly currency: string;
}

/** A run of a program: an id and the receivers of its events. */
export class Run extends Described {
  /** The `runId` of the events. */
  readonly id: string;
  readonly #handlers = new Set<(event: RuntimeEvent) => void>();
  readonly #files: string[] = [];
  readonly #uploaders: EventUploader[] = [];
  #fileError: unknown;

  /** A run with the given id of 1 to 128 visible ASCII characters, or a new one. */
  constructor(id: string = randomId("run_")) {
    super();
    this.id = id;
  }

  /** Calls `handler` for every later event. Returns a function that removes it. */
  onEvent(handler: (event: RuntimeEvent) => void): () => void {
    this.#handlers.add(handler);
    return () => {
      this.#handlers.delete(handler);
    };
  }

  /** Appends every later event to a file, as one line of JSON. Creates the file if necessary. */
  toFile(path: string): this {
    this.#append(path, "");
    this.#throwFileError();
    this.#files.push(path);
    return this;
  }

  /**
   * Uploads `agent.*` and `cost.llm` events to the events of a sandbox. Does not wait: events of 2 s are sent in one batch,
   * and {@link flush} waits until all are stored.
   */
  toService(sandbox: Sandbox): this {
    const { transport, id } = contextOf(sandbox);
    this.#uploaders.push(new EventUploader(transport, `/v1/sandboxes/${id}/events`));
    return this;
  }

  /** Waits until all events so far are uploaded, and throws the first error of an upload or of a file. */
  async flush(): Promise<void> {
    const results = await Promise.allSettled(this.#uploaders.map((uploader) => uploader.flush()));
    const rejected = results.find((result) => result.status === "rejected");
    if (rejected !== undefined) throw rejected.reason;
    this.#throwFileError();
  }

  /** Records a thought of a model. */
  thinking(text: string): RuntimeEvent {
    return this.record("agent.thinking", { text });
  }

  /** Records a tool call with its arguments. */
  toolCall(tool: string, args: unknown): RuntimeEvent {
    return this.record("agent.tool_call", { tool, arguments: args });
  }

  /** Records the result of a tool call. */
  toolResult(tool: string, result: unknown): RuntimeEvent {
    return this.record("agent.tool_result", { tool, result });
  }

  /** Records an error of the agent. */
  error(message: string): RuntimeEvent {
    return this.record("agent.error", { message });
  }

  /** Records the cost of a model response. */
  llmCost(cost: LlmCost): RuntimeEvent {
    return this.record("cost.llm", { ...cost });
  }

  /** Records any event. */
  record(kind: EventKind, data: Readonly<Record<string, unknown>>, sandboxId?: string): RuntimeEvent {
    const now = Date.now();
    lastId = Math.max(now * 1000, lastId + 1);
    const event: RuntimeEvent = {
      id: `ev_${String(lastId).padStart(16, "0")}`,
      timestamp: new Date(now).toISOString(),
      type: kind,
      sandboxId: sandboxId ?? "",
      runId: this.id,
      data,
    };
    callAll(this.#handlers, event);
    for (const path of this.#files) this.#append(path, `${JSON.stringify(event)}\n`);
    for (const uploader of this.#uploaders) uploader.push(event);
    return event;
  }

  protected describe(): object {
    return { id: this.id };
  }

  #append(path: string, line: string): void {
    try {
      platform.appendToFile(path, line);
    } catch (error) {
      this.#fileError ??= errorOf("LOCAL_FILE", `${path}: ${messageOf(error)}`, { cause: error });
    }
  }

  #throwFileError(): void {
    const error = this.#fileError;
    this.#fileError = undefined;
    if (error !== undefined) throw error as Error;
  }
}
