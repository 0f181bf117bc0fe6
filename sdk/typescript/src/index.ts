/// <reference lib="esnext.disposable" preserve="true" />
/** The SDK of sandboxd: isolated Linux sandboxes over REST. */

export { Images, Sandboxd, Sandboxes } from "./client.js";
export type { Command } from "./command-line.js";
export { CommandFailed } from "./command-failed.js";
export type { AnySandboxdError } from "./command-failed.js";
export type { CallOptions, ResumingOptions } from "./context.js";
export type { CreateOptions, SandboxLimits } from "./create.js";
export { Described } from "./described.js";
export {
  BuildFailed,
  CommandTooLong,
  ConfigurationError,
  DirectoryNotEmpty,
  ContextNotFound,
  DiskFull,
  ExecutionEnded,
  ExecutionError,
  ExecutionNotFound,
  ExecutionTimeout,
  FileExists,
  FileNotFound,
  Forbidden,
  InternalError,
  InvalidArgument,
  InvalidConfig,
  InvalidRequest,
  InvalidState,
  IsolationMismatch,
  LocalFileError,
  MethodNotAllowed,
  NetworkError,
  NoInterpreter,
  NotADirectory,
  NotAFile,
  NotATerminal,
  NotFound,
  PermissionDenied,
  PortNotAllowed,
  PortNotFound,
  PortUnreachable,
  QuotaExceeded,
  RateLimited,
  ResourceExhausted,
  SandboxNotFound,
  SnapshotNotFound,
  StdinClosed,
  TemplateNotFound,
  Unauthorized,
  UnknownError,
} from "./error-classes.js";
export type { CodeError } from "./error-classes.js";
export { SandboxdError, SERVICE_ERROR_CODES } from "./errors.js";
export type { ClientErrorCode, ErrorCode, ErrorProperties, JsonObject, ServiceErrorCode } from "./errors.js";
export { BuildLog } from "./build-log.js";
export type { BuildDone, BuildLogOptions, BuildNote, BuildOutput, BuildStep, BuildStepStart } from "./build-log.js";
export { CodeContexts } from "./code.js";
export type { CreateContextOptions, RunCodeOptions } from "./code.js";
export { EventStream } from "./event-stream.js";
export { Events, ListedEvents } from "./events.js";
export type { EventFilters, FollowEventsOptions, ListEventsOptions, PostEventsOptions } from "./events.js";
export { OutputStream } from "./execute.js";
export type { CommandOptions, ExecuteOptions, StreamOptions } from "./execute.js";
export { Execution, Executions, FollowedOutput } from "./execution.js";
export type { FollowOptions, StartOptions, StdinOptions, WaitOptions } from "./execution.js";
export { FileStream } from "./file-stream.js";
export { Files } from "./files.js";
export type {
  FileOptions,
  FilePath,
  MakeDirectoryOptions,
  MoveOptions,
  ReadOptions,
  RemoveOptions,
  StatOptions,
  WatchOptions,
  WriteOptions,
} from "./files.js";
export type { ForkOptions } from "./fork.js";
export type { LifecycleEvent, LifecycleEventName, LifecycleEvents, LifecycleHandlers } from "./lifecycle.js";
export type * from "./models.js";
export { FileWatch } from "./watch.js";
export type { FileChange, WatchEvent } from "./watch.js";
export { Network } from "./network.js";
export type { NetworkChange } from "./network.js";
export type { CommandDone, DroppedOutput, Output, StderrLine, StdoutLine } from "./output.js";
export { PagedList } from "./paging.js";
export type { Page } from "./paging.js";
export type { Content } from "./payload.js";
export { Ports } from "./ports.js";
export type { ExposeOptions, TokenOptions } from "./ports.js";
export { Run } from "./run.js";
export type { LlmCost } from "./run.js";
export { Sandbox } from "./sandbox.js";
export type { MetricsOptions, PauseOptions, ResumeOptions } from "./sandbox.js";
export type { ListSandboxesOptions } from "./sandbox-list.js";
export type { ClientOptions, Log } from "./settings.js";
export { Snapshots } from "./snapshots.js";
export type { ListSnapshotsOptions, SnapshotOptions } from "./snapshots.js";
export { Templates } from "./templates.js";
export type {
  BuildOptions,
  ContextArchive,
  ListTemplatesOptions,
  StartBuildOptions,
  UploadContextOptions,
  WaitForBuildOptions,
} from "./templates.js";
export { Terminal } from "./terminal.js";
export type { AttachOptions, TerminalEvent, TerminalOptions } from "./terminal.js";
export type { Terminated } from "./termination.js";
export type { Duration, Size } from "./units.js";
export { VERSION } from "./version.js";
