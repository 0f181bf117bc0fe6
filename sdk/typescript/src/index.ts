/** The SDK of sandboxd: isolated Linux sandboxes over REST. */

export { Images, Sandboxd, Sandboxes } from "./client.js";
export type { ListSandboxesOptions } from "./client.js";
export type { CallOptions, ResumingOptions } from "./context.js";
export {
  BuildFailed,
  CommandFailed,
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
export type { AnySandboxdError } from "./error-classes.js";
export { SandboxdError, SERVICE_ERROR_CODES } from "./errors.js";
export type { ClientErrorCode, ErrorCode, ErrorProperties, JsonObject, ServiceErrorCode } from "./errors.js";
export { BuildLog } from "./build-log.js";
export type { BuildDone, BuildLogOptions, BuildNote, BuildOutput, BuildStep, BuildStepStart } from "./build-log.js";
export { CodeContexts } from "./code.js";
export type { CreateContextOptions, RunCodeOptions } from "./code.js";
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
export type { ExposeOptions } from "./ports.js";
export { Run } from "./run.js";
export type { LlmCost } from "./run.js";
export { Sandbox } from "./sandbox.js";
export type { CreateOptions, MetricsOptions, PauseOptions, ResumeOptions, Terminated } from "./sandbox.js";
export type { ClientOptions } from "./settings.js";
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
export { VERSION } from "./version.js";
