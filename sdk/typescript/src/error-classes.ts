/** One class for each error code, and the construction of errors from responses. */

import type { Template } from "./models.js";
import { isServiceErrorCode, SandboxdError, statusOf } from "./errors.js";
import type { ErrorCode, ErrorProperties, JsonObject } from "./errors.js";

/** The request is malformed. */
export class InvalidRequest extends SandboxdError {
  declare readonly code: "INVALID_REQUEST";
}

/** A value is outside its allowed range or set. */
export class InvalidConfig extends SandboxdError {
  declare readonly code: "INVALID_CONFIG";
}

/** The command is longer than 65,536 bytes. */
export class CommandTooLong extends SandboxdError {
  declare readonly code: "COMMAND_TOO_LONG";
}

/** The API key is missing or invalid. */
export class Unauthorized extends SandboxdError {
  declare readonly code: "UNAUTHORIZED";
}

/** The key is valid but lacks the required scope. */
export class Forbidden extends SandboxdError {
  declare readonly code: "FORBIDDEN";
}

/** The sandbox does not permit the operation, even to its root user. */
export class PermissionDenied extends SandboxdError {
  declare readonly code: "PERMISSION_DENIED";
}

/** The network policy of the sandbox does not allow exposing this port. */
export class PortNotAllowed extends SandboxdError {
  declare readonly code: "PORT_NOT_ALLOWED";
}

/** The sandbox does not exist or was terminated. */
export class SandboxNotFound extends SandboxdError {
  declare readonly code: "SANDBOX_NOT_FOUND";
}

/** The path does not exist in the sandbox. */
export class FileNotFound extends SandboxdError {
  declare readonly code: "FILE_NOT_FOUND";
}

/** The port is not exposed. */
export class PortNotFound extends SandboxdError {
  declare readonly code: "PORT_NOT_FOUND";
}

/** The sandbox has no execution with this id, or the execution log has expired. */
export class ExecutionNotFound extends SandboxdError {
  declare readonly code: "EXECUTION_NOT_FOUND";
}

/** The snapshot does not exist or was deleted. */
export class SnapshotNotFound extends SandboxdError {
  declare readonly code: "SNAPSHOT_NOT_FOUND";
}

/** The template does not exist or was deleted. */
export class TemplateNotFound extends SandboxdError {
  declare readonly code: "TEMPLATE_NOT_FOUND";
}

/** The code interpreter has no such context. */
export class ContextNotFound extends SandboxdError {
  declare readonly code: "CONTEXT_NOT_FOUND";
}

/** The URL path does not exist. */
export class NotFound extends SandboxdError {
  declare readonly code: "NOT_FOUND";
}

/** The URL path does not support this method. */
export class MethodNotAllowed extends SandboxdError {
  declare readonly code: "METHOD_NOT_ALLOWED";
}

/** The time limit expired before the command could start. */
export class ExecutionTimeout extends SandboxdError {
  declare readonly code: "EXECUTION_TIMEOUT";
}

/** The state of the sandbox does not allow the operation. */
export class InvalidState extends SandboxdError {
  declare readonly code: "INVALID_STATE";
}

/** The isolation of the sandbox cannot do this, or its processes were stored by another release of it. */
export class IsolationMismatch extends SandboxdError {
  declare readonly code: "ISOLATION_MISMATCH";
}

/** The path exists already. */
export class FileExists extends SandboxdError {
  declare readonly code: "FILE_EXISTS";
}

/** The path is a directory, device, FIFO or socket. */
export class NotAFile extends SandboxdError {
  declare readonly code: "NOT_A_FILE";
}

/** The path, or a part of it, is not a directory. */
export class NotADirectory extends SandboxdError {
  declare readonly code: "NOT_A_DIRECTORY";
}

/** The image of the sandbox has no code interpreter. */
export class NoInterpreter extends SandboxdError {
  declare readonly code: "NO_INTERPRETER";
}

/** The execution has ended. */
export class ExecutionEnded extends SandboxdError {
  declare readonly code: "EXECUTION_ENDED";
}

/** The standard input of the execution is closed or was never open. */
export class StdinClosed extends SandboxdError {
  declare readonly code: "STDIN_CLOSED";
}

/** The execution has no terminal. */
export class NotATerminal extends SandboxdError {
  declare readonly code: "NOT_A_TERMINAL";
}

/** The directory is not empty. */
export class DirectoryNotEmpty extends SandboxdError {
  declare readonly code: "DIRECTORY_NOT_EMPTY";
}

/** Too many requests, creates or concurrent commands. */
export class RateLimited extends SandboxdError {
  declare readonly code: "RATE_LIMITED";
}

/** The request exceeds a quota of the account. */
export class QuotaExceeded extends SandboxdError {
  declare readonly code: "QUOTA_EXCEEDED";
}

/** The service failed unexpectedly. */
export class InternalError extends SandboxdError {
  declare readonly code: "INTERNAL_ERROR";
}

/** The sandbox failed during a command or a file operation. */
export class ExecutionError extends SandboxdError {
  declare readonly code: "EXECUTION_ERROR";
}

/** Nothing in the sandbox listens on the port, or the program's response is invalid or late. */
export class PortUnreachable extends SandboxdError {
  declare readonly code: "PORT_UNREACHABLE";
}

/** No capacity at the moment, or the image is still being pulled. */
export class ResourceExhausted extends SandboxdError {
  declare readonly code: "RESOURCE_EXHAUSTED";
}

/** The sandbox's disk is full. */
export class DiskFull extends SandboxdError {
  declare readonly code: "DISK_FULL";
}

/** The service was not reached, or its response did not arrive completely and in time. */
export class NetworkError extends SandboxdError {
  declare readonly code: "NETWORK_ERROR";
}

/** The settings of this client do not work: its URL, its key or its certificates. */
export class ConfigurationError extends SandboxdError {
  declare readonly code: "CLIENT_CONFIGURATION";
}

/** An argument of the call is malformed, such as an id. */
export class InvalidArgument extends SandboxdError {
  declare readonly code: "INVALID_ARGUMENT";
}

/** A file or directory of this machine cannot be read or written. */
export class LocalFileError extends SandboxdError {
  declare readonly code: "LOCAL_FILE";
}

/** A response that this version of the SDK does not understand. */
export class UnknownError extends SandboxdError {
  declare readonly code: "UNKNOWN";
}

/** The build of a template failed or was cancelled. */
export class BuildFailed extends SandboxdError {
  declare readonly code: "BUILD_FAILED";
  /** The template; its `state` is `failed` or `cancelled`, and its `error` says why. */
  readonly template: Template;

  /** Makes the error for a template whose build has ended. */
  constructor(template: Template) {
    const { id: templateId, name, version, state, error } = template;
    const message = error?.message ?? `the build is ${state}`;
    super("BUILD_FAILED", `template ${name}:${version}: ${message}`, { details: { templateId, state, line: error?.line ?? null } });
    this.template = template;
  }
}

const CLASSES = {
  INVALID_REQUEST: InvalidRequest,
  INVALID_CONFIG: InvalidConfig,
  COMMAND_TOO_LONG: CommandTooLong,
  UNAUTHORIZED: Unauthorized,
  FORBIDDEN: Forbidden,
  PERMISSION_DENIED: PermissionDenied,
  PORT_NOT_ALLOWED: PortNotAllowed,
  SANDBOX_NOT_FOUND: SandboxNotFound,
  FILE_NOT_FOUND: FileNotFound,
  PORT_NOT_FOUND: PortNotFound,
  EXECUTION_NOT_FOUND: ExecutionNotFound,
  SNAPSHOT_NOT_FOUND: SnapshotNotFound,
  TEMPLATE_NOT_FOUND: TemplateNotFound,
  CONTEXT_NOT_FOUND: ContextNotFound,
  NOT_FOUND: NotFound,
  METHOD_NOT_ALLOWED: MethodNotAllowed,
  EXECUTION_TIMEOUT: ExecutionTimeout,
  INVALID_STATE: InvalidState,
  ISOLATION_MISMATCH: IsolationMismatch,
  FILE_EXISTS: FileExists,
  NOT_A_FILE: NotAFile,
  NOT_A_DIRECTORY: NotADirectory,
  NO_INTERPRETER: NoInterpreter,
  EXECUTION_ENDED: ExecutionEnded,
  STDIN_CLOSED: StdinClosed,
  NOT_A_TERMINAL: NotATerminal,
  DIRECTORY_NOT_EMPTY: DirectoryNotEmpty,
  RATE_LIMITED: RateLimited,
  QUOTA_EXCEEDED: QuotaExceeded,
  INTERNAL_ERROR: InternalError,
  EXECUTION_ERROR: ExecutionError,
  PORT_UNREACHABLE: PortUnreachable,
  RESOURCE_EXHAUSTED: ResourceExhausted,
  DISK_FULL: DiskFull,
  NETWORK_ERROR: NetworkError,
  CLIENT_CONFIGURATION: ConfigurationError,
  INVALID_ARGUMENT: InvalidArgument,
  LOCAL_FILE: LocalFileError,
  UNKNOWN: UnknownError,
} as const;

/** An error of a class that belongs to a code, discriminated by `code`. */
export type CodeError = InstanceType<(typeof CLASSES)[keyof typeof CLASSES]>;

/** An error of the class that belongs to its code. */
export function errorOf(code: keyof typeof CLASSES, message: string, properties?: ErrorProperties): SandboxdError {
  const ErrorClass = CLASSES[code] as new (code: ErrorCode, message: string, properties?: ErrorProperties) => SandboxdError;
  return new ErrorClass(code, message, properties);
}

/** The same error with the number of retries before it. */
export function afterRepeats(error: SandboxdError, repeats: number): SandboxdError {
  if (repeats === 0 || error.code === "COMMAND_FAILED" || error.code === "BUILD_FAILED") return error;
  return errorOf(error.code, error.message, { ...error.properties(), repeats });
}

/** A network error with the error that caused it. */
export function networkError(message: string, cause?: unknown): SandboxdError {
  return errorOf("NETWORK_ERROR", message, { cause });
}

/** An error of the settings of this client. */
export function configurationError(message: string, cause?: unknown): SandboxdError {
  return errorOf("CLIENT_CONFIGURATION", message, { cause });
}

/** An error of an argument of a call. */
export function argumentError(argument: string, message: string): SandboxdError {
  return errorOf("INVALID_ARGUMENT", message, { details: { argument } });
}

/** What a response besides its body says about an error. */
export interface ResponseInfo {
  readonly status: number;
  readonly requestId?: string;
  readonly retryAfterMs?: number;
}

/** The status and the headers of a response. */
export interface ResponseHead {
  readonly status: number;
  readonly headers: { get(name: string): string | null };
}

/** What the head of a response says about an error. */
export function responseInfo({ status, headers }: ResponseHead): ResponseInfo {
  const requestId = headers.get("x-request-id");
  const retryAfter = headers.get("retry-after");
  return {
    status,
    ...(requestId === null ? {} : { requestId }),
    ...(retryAfter !== null && /^\d+$/.test(retryAfter) ? { retryAfterMs: Number(retryAfter) * 1000 } : {}),
  };
}

/** The error in the body of an error response. */
export function errorOfResponse(body: string, info: ResponseInfo): SandboxdError {
  const object = errorObject(parsed(body)?.error);
  if (object === undefined) {
    return errorOf("UNKNOWN", `status ${info.status} without an error body of the service`, info);
  }
  return fromObject(object, info);
}

/** The error in the data of an event `error`; `undefined` if the data is not an error. */
export function errorOfEvent(data: string): SandboxdError | undefined {
  const object = errorObject(parsed(data));
  if (object === undefined) return undefined;
  const status = statusOf(object.code);
  return fromObject(object, status === undefined ? {} : { status });
}

/** Why the sandbox was terminated, if the error says that it was. */
export function terminationReason(error: SandboxdError): string | undefined {
  const { state, reason } = error.details;
  const isTerminated = error.code === "SANDBOX_NOT_FOUND" && state === "terminated";
  return isTerminated && typeof reason === "string" ? reason : undefined;
}

interface ErrorFields {
  readonly code: string;
  readonly message: string;
  readonly details: JsonObject;
  readonly requestId?: string;
}

function fromObject(object: ErrorFields, info: ErrorProperties): SandboxdError {
  const code = isServiceErrorCode(object.code) ? object.code : "UNKNOWN";
  return errorOf(code, object.message, {
    ...info,
    codeName: object.code,
    details: object.details,
    ...(object.requestId === undefined ? {} : { requestId: object.requestId }),
  });
}

function parsed(text: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function errorObject(value: unknown): ErrorFields | undefined {
  if (!isObject(value)) return undefined;
  const { code, message, details, requestId } = value;
  if (typeof code !== "string" || typeof message !== "string") return undefined;
  const fields = { code, message, details: isObject(details) ? details : {} };
  return typeof requestId === "string" ? { ...fields, requestId } : fields;
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
