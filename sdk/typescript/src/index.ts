/** The SDK of sandboxd: isolated Linux sandboxes over REST. */

import { Sandboxd } from "./client.js";
import type { CallOptions } from "./context.js";
import { Sandbox as SandboxObject } from "./sandbox.js";
import type { CreateOptions } from "./sandbox.js";

let defaultClient: Sandboxd | undefined;

/** The client that `Sandbox.create` uses, with the settings of the environment. */
export function getDefaultClient(): Sandboxd {
  defaultClient ??= new Sandboxd();
  return defaultClient;
}

/** One sandbox, and the functions that create one with the default client. */
export const Sandbox = {
  /** Creates a sandbox with the default client. */
  create: (image: string, options?: CreateOptions): Promise<SandboxObject> =>
    getDefaultClient().sandboxes.create(image, options),
  /** Returns a sandbox of the default client, with its current state. */
  get: (id: string, options?: CallOptions): Promise<SandboxObject> => getDefaultClient().sandboxes.get(id, options),
  /** An object for a sandbox of the default client. Sends no request. */
  connect: (id: string): SandboxObject => getDefaultClient().sandboxes.connect(id),
  [Symbol.hasInstance]: (value: unknown): boolean => value instanceof SandboxObject,
};
/** One sandbox. */
export type Sandbox = SandboxObject;

export { Images, Sandboxd, Sandboxes } from "./client.js";
export type { ListSandboxesOptions } from "./client.js";
export type { CallOptions, ResumingOptions } from "./context.js";
export * from "./error-classes.js";
export { SandboxdError, SERVICE_ERROR_CODES } from "./errors.js";
export type { ClientErrorCode, ErrorCode, ErrorProperties, JsonObject, ServiceErrorCode } from "./errors.js";
export { EventStream } from "./event-stream.js";
export { Events, ListedEvents } from "./events.js";
export type { EventFilters, FollowEventsOptions, ListEventsOptions } from "./events.js";
export { OutputStream } from "./execute.js";
export type { CommandOptions, ExecuteOptions, StreamOptions } from "./execute.js";
export { Execution, Executions, FollowedOutput } from "./execution.js";
export type { FollowOptions, StartOptions, StdinOptions } from "./execution.js";
export { FileStream } from "./file-stream.js";
export { Files } from "./files.js";
export type { FileOptions, FilePath, MakeDirectoryOptions, ReadOptions, WriteOptions } from "./files.js";
export type { LifecycleEvent, LifecycleEventName, LifecycleEvents, LifecycleHandlers } from "./lifecycle.js";
export type * from "./models.js";
export { Network as SandboxNetwork } from "./network.js";
export type { NetworkChange } from "./network.js";
export type { CommandDone, DroppedOutput, Output, StderrLine, StdoutLine } from "./output.js";
export { PagedList } from "./paging.js";
export type { Page } from "./paging.js";
export type { Content } from "./payload.js";
export { Ports } from "./ports.js";
export type { ExposeOptions } from "./ports.js";
export { Run } from "./run.js";
export type { LlmCost } from "./run.js";
export type { CreateOptions, Terminated } from "./sandbox.js";
export type { ClientOptions } from "./settings.js";
export { Terminal } from "./terminal.js";
export type { AttachOptions, TerminalEvent, TerminalOptions } from "./terminal.js";
export { VERSION } from "./version.js";
