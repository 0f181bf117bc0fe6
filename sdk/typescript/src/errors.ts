/** The errors of the SDK. Every failed call throws a {@link SandboxdError}, except one that the caller aborted. */

/** A JSON object, such as the details of an error. */
export type JsonObject = Readonly<Record<string, unknown>>;

/** Error codes of the service with the HTTP status of each. */
const STATUS_OF = {
  INVALID_REQUEST: 400,
  INVALID_CONFIG: 400,
  COMMAND_TOO_LONG: 400,
  UNAUTHORIZED: 401,
  FORBIDDEN: 403,
  PERMISSION_DENIED: 403,
  PORT_NOT_ALLOWED: 403,
  SANDBOX_NOT_FOUND: 404,
  FILE_NOT_FOUND: 404,
  PORT_NOT_FOUND: 404,
  EXECUTION_NOT_FOUND: 404,
  SNAPSHOT_NOT_FOUND: 404,
  TEMPLATE_NOT_FOUND: 404,
  CONTEXT_NOT_FOUND: 404,
  NOT_FOUND: 404,
  METHOD_NOT_ALLOWED: 405,
  EXECUTION_TIMEOUT: 408,
  INVALID_STATE: 409,
  ISOLATION_MISMATCH: 409,
  FILE_EXISTS: 409,
  NOT_A_FILE: 409,
  NOT_A_DIRECTORY: 409,
  NO_INTERPRETER: 409,
  EXECUTION_ENDED: 409,
  STDIN_CLOSED: 409,
  NOT_A_TERMINAL: 409,
  DIRECTORY_NOT_EMPTY: 409,
  RATE_LIMITED: 429,
  QUOTA_EXCEEDED: 429,
  INTERNAL_ERROR: 500,
  EXECUTION_ERROR: 502,
  PORT_UNREACHABLE: 502,
  RESOURCE_EXHAUSTED: 503,
  DISK_FULL: 507,
} as const;

/** An error code of the service; docs/errors.md describes each. */
export type ServiceErrorCode = keyof typeof STATUS_OF;

/**
 * An error code of the SDK:
 * - `NETWORK_ERROR`: the service was not reached, or its response did not arrive completely and in time
 * - `CLIENT_CONFIGURATION`: the URL, the key or the certificates of this client do not work
 * - `INVALID_ARGUMENT`: an argument is malformed; `details.argument` names it
 * - `LOCAL_FILE`: a file or directory of this machine cannot be read or written
 * - `COMMAND_FAILED`: a command that was run with `check` did not exit with 0
 * - `BUILD_FAILED`: the build of a template failed or was cancelled
 * - `UNKNOWN`: a response that this version of the SDK does not understand
 */
export type ClientErrorCode =
  | "NETWORK_ERROR"
  | "CLIENT_CONFIGURATION"
  | "INVALID_ARGUMENT"
  | "LOCAL_FILE"
  | "COMMAND_FAILED"
  | "BUILD_FAILED"
  | "UNKNOWN";

/** An error code. */
export type ErrorCode = ServiceErrorCode | ClientErrorCode;

/** The codes of the service. */
export const SERVICE_ERROR_CODES = Object.keys(STATUS_OF) as ServiceErrorCode[];

/** The properties of an error besides its code and message. */
export interface ErrorProperties {
  /** The code as the service sent it, if this version does not know it. */
  codeName?: string;
  /** The HTTP status. */
  status?: number;
  /** Further data for programs. */
  details?: JsonObject;
  /** The id of the request. */
  requestId?: string;
  /** The delay that the service requests before the next attempt. */
  retryAfterMs?: number;
  /** The number of retries and waits before the failure. */
  repeats?: number;
  /** The error that caused this one. */
  cause?: unknown;
}

/** The base class of all errors of the SDK. Discriminate by `code` or by class. */
export class SandboxdError extends Error {
  /** What went wrong. */
  readonly code: ErrorCode;
  /** The code as the service sent it; differs from `code` only if that is `UNKNOWN`. */
  readonly codeName: string;
  /** The HTTP status; absent without a response. */
  readonly status: number | undefined;
  /** Further data for programs, such as `field` or `sandboxId`; often empty. */
  readonly details: JsonObject;
  /** The id of the request, as it appears in the log of the service. */
  readonly requestId: string | undefined;
  /** The delay that the service requests before the next attempt. */
  readonly retryAfterMs: number | undefined;
  /** The number of retries and waits before this failure. */
  readonly repeats: number;

  /** For the SDK, whose calls throw the errors. */
  constructor(code: ErrorCode, message: string, properties: ErrorProperties = {}) {
    super(message, properties.cause === undefined ? undefined : { cause: properties.cause });
    this.name = new.target.name;
    this.code = code;
    this.codeName = properties.codeName ?? code;
    this.status = properties.status;
    this.details = properties.details ?? {};
    this.requestId = properties.requestId;
    this.retryAfterMs = properties.retryAfterMs;
    this.repeats = properties.repeats ?? 0;
  }

  /** Whether the same call may succeed later. */
  get retryable(): boolean {
    switch (this.code) {
      case "RATE_LIMITED":
      case "NETWORK_ERROR":
        return true;
      case "CLIENT_CONFIGURATION":
      case "INVALID_ARGUMENT":
      case "LOCAL_FILE":
      case "COMMAND_FAILED":
      case "BUILD_FAILED":
      case "DISK_FULL":
        return false;
      default:
        return this.status !== undefined && this.status >= 500;
    }
  }

  /** The message with the code and the request id, for logs. */
  override toString(): string {
    const request = this.requestId === undefined ? "" : `, request ${this.requestId}`;
    return `${this.message} (${this.codeName}${request})`;
  }

  /** The properties with the name and the message, for `JSON.stringify`. */
  toJSON(): object {
    const { name, message, code, status, details, requestId, retryAfterMs, retryable } = this;
    return { name, code, message, status, details, requestId, retryAfterMs, retryable };
  }

  /** The properties, so that the error can be created again with other ones. */
  properties(): ErrorProperties {
    return {
      codeName: this.codeName,
      details: this.details,
      repeats: this.repeats,
      cause: this.cause,
      ...(this.status === undefined ? {} : { status: this.status }),
      ...(this.requestId === undefined ? {} : { requestId: this.requestId }),
      ...(this.retryAfterMs === undefined ? {} : { retryAfterMs: this.retryAfterMs }),
    };
  }
}

/** The HTTP status that belongs to a code of the service. */
export function statusOf(code: string): number | undefined {
  return isServiceErrorCode(code) ? STATUS_OF[code] : undefined;
}

/** Whether this version knows the code. */
export function isServiceErrorCode(code: string): code is ServiceErrorCode {
  return Object.hasOwn(STATUS_OF, code);
}

/** The text of any thrown value, with the messages of its causes. */
export function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const own = error.message || ("code" in error ? String(error.code) : error.name);
  if (error.cause === undefined) return own;
  const cause = messageOf(error.cause);
  return own.includes(cause) ? own : `${own}: ${cause}`;
}
