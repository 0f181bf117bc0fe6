"""Errors. Each error code of the service has a class of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Tuple, Type, cast

from ._argument_names import with_argument
from ._how_it_ended import how_it_ended, tail

if TYPE_CHECKING:
    from ._models import ExecutionResult, Template


class SandboxdError(Exception):
    """A failed call."""

    code = "UNKNOWN"
    """The code, as in error responses."""

    def __init__(
        self,
        message: str,
        *,
        status: Optional[int] = None,
        details: Optional[Mapping[str, Any]] = None,
        code_name: Optional[str] = None,
        request_id: Optional[str] = None,
        retry_after: Optional[float] = None,
        repeats: int = 0,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        """The status of the response, if there was one."""
        self.details: Dict[str, Any] = dict(details or {})
        self.code_name = code_name or self.code
        """The code as the service sent it, also if this version does not know it."""
        self.request_id = request_id
        """The id under which the service logged the request."""
        self.retry_after = retry_after
        """The seconds after which the service allows the next attempt."""
        self.repeats = repeats
        """The number of retries before this failure."""

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later."""
        return self.status is not None and self.status >= 500

    def __str__(self) -> str:
        request = f", request {self.request_id}" if self.request_id else ""
        return f"{self.message} ({self.code_name}{request})"


class _Final(SandboxdError):
    """An error that does not end by itself."""

    @property
    def retryable(self) -> bool:
        return False


class _Momentary(SandboxdError):
    """An error that ends by itself."""

    @property
    def retryable(self) -> bool:
        return True


class InvalidRequest(SandboxdError):
    """The request is malformed."""

    code = "INVALID_REQUEST"


class InvalidConfig(SandboxdError):
    """A value is outside its allowed range or set."""

    code = "INVALID_CONFIG"


class CommandTooLong(SandboxdError):
    """The command is longer than 65,536 bytes."""

    code = "COMMAND_TOO_LONG"


class Unauthorized(SandboxdError):
    """The API key is missing or invalid."""

    code = "UNAUTHORIZED"


class Forbidden(SandboxdError):
    """The key is valid but lacks the required scope."""

    code = "FORBIDDEN"


class PermissionDenied(SandboxdError):
    """The sandbox does not permit the operation, even to its root user."""

    code = "PERMISSION_DENIED"


class PortNotAllowed(SandboxdError):
    """The network policy of the sandbox does not allow exposing this port."""

    code = "PORT_NOT_ALLOWED"


class SandboxNotFound(SandboxdError):
    """The sandbox does not exist or was terminated."""

    code = "SANDBOX_NOT_FOUND"


class FileNotFound(SandboxdError):
    """The path does not exist in the sandbox."""

    code = "FILE_NOT_FOUND"


class PortNotFound(SandboxdError):
    """The port is not exposed."""

    code = "PORT_NOT_FOUND"


class ExecutionNotFound(SandboxdError):
    """The sandbox has no execution with this id, or the execution log has expired."""

    code = "EXECUTION_NOT_FOUND"


class SnapshotNotFound(SandboxdError):
    """The snapshot does not exist or was deleted."""

    code = "SNAPSHOT_NOT_FOUND"


class TemplateNotFound(SandboxdError):
    """The template does not exist or was deleted."""

    code = "TEMPLATE_NOT_FOUND"


class ContextNotFound(SandboxdError):
    """The code interpreter has no such context, or it was started anew since."""

    code = "CONTEXT_NOT_FOUND"


class NotFound(SandboxdError):
    """The URL path does not exist: the service is older than this library, or the URL is that of another server."""

    code = "NOT_FOUND"


class MethodNotAllowed(SandboxdError):
    """The URL path does not support this method."""

    code = "METHOD_NOT_ALLOWED"


class ExecutionTimeout(SandboxdError):
    """The time limit expired before the command could start, or that of `wait` while the command continues."""

    code = "EXECUTION_TIMEOUT"


class InvalidState(SandboxdError):
    """The state of the sandbox does not allow the operation."""

    code = "INVALID_STATE"


class IsolationMismatch(SandboxdError):
    """The isolation of the sandbox cannot do this, or its processes were stored by another release of it."""

    code = "ISOLATION_MISMATCH"


class FileExists(SandboxdError):
    """The path exists already."""

    code = "FILE_EXISTS"


class NotAFile(SandboxdError):
    """The path is a directory, device, FIFO or socket."""

    code = "NOT_A_FILE"


class NotADirectory(SandboxdError):
    """The path, or a part of it, is not a directory."""

    code = "NOT_A_DIRECTORY"


class NoInterpreter(SandboxdError):
    """The sandbox's image has no code interpreter."""

    code = "NO_INTERPRETER"


class DirectoryNotEmpty(SandboxdError):
    """The directory is not empty."""

    code = "DIRECTORY_NOT_EMPTY"


class ExecutionEnded(SandboxdError):
    """The execution has ended."""

    code = "EXECUTION_ENDED"


class StdinClosed(SandboxdError):
    """The standard input of the execution is closed or was never open."""

    code = "STDIN_CLOSED"


class NotATerminal(SandboxdError):
    """The execution has no terminal."""

    code = "NOT_A_TERMINAL"


class RateLimited(_Momentary):
    """Too many requests, creates or concurrent commands."""

    code = "RATE_LIMITED"


class QuotaExceeded(_Final):
    """The request exceeds a quota of the account."""

    code = "QUOTA_EXCEEDED"


class InternalError(SandboxdError):
    """The service failed unexpectedly."""

    code = "INTERNAL_ERROR"


class ExecutionError(SandboxdError):
    """The sandbox failed during a command or a file operation."""

    code = "EXECUTION_ERROR"


class PortUnreachable(SandboxdError):
    """Nothing in the sandbox listens on the port, or the program's response is invalid or late."""

    code = "PORT_UNREACHABLE"


class ResourceExhausted(SandboxdError):
    """No capacity at the moment, or the image is still being pulled."""

    code = "RESOURCE_EXHAUSTED"


class DiskFull(_Final):
    """The sandbox's disk is full."""

    code = "DISK_FULL"


class NetworkError(_Momentary):
    """The service was not reached, or its response did not arrive completely and in time."""

    code = "NETWORK_ERROR"


class ConfigurationError(_Final):
    """The settings of this client do not work: its URL, its key or its certificates."""

    code = "CLIENT_CONFIGURATION"


class InvalidArgument(_Final):
    """An argument of the call is malformed, such as an id; `details` has its name as `argument`."""

    code = "INVALID_ARGUMENT"


class LocalFileError(_Final):
    """A file or directory of this machine could not be read or written."""

    code = "LOCAL_FILE"


class UnknownError(SandboxdError):
    """A response that this version of the library does not understand; see `code_name`."""

    code = "UNKNOWN"


class CommandFailed(_Final):
    """A command that was run with `check=True` did not exit with 0. Its text has the end of the command's standard error."""

    code = "COMMAND_FAILED"

    def __init__(self, command: str, result: ExecutionResult) -> None:
        details = {"exitCode": result.exit_code, "signal": result.signal, "reason": result.reason}
        super().__init__(f"{how_it_ended(result)}: {command}", details=details)
        self.command = command
        """The command, truncated to 4,096 bytes."""
        self.result = result
        """The result with the output."""
        self.stderr = tail(result.stderr)
        """The end of the command's standard error."""

    def __str__(self) -> str:
        # Many programs report errors on standard output.
        name, text = ("stderr", self.stderr) if self.stderr else ("stdout", tail(self.result.stdout))
        return f"{super().__str__()}; {name} ends with:\n{text}" if text else super().__str__()

    def __reduce__(self) -> Tuple[Any, ...]:
        return CommandFailed, (self.command, self.result)


class BuildFailed(_Final):
    """The build of a template failed or was cancelled. Its text has the end of the output of the last step."""

    code = "BUILD_FAILED"

    def __init__(self, template: Template, output: str = "") -> None:
        error = template.error
        how = "was cancelled" if template.state == "cancelled" else "failed"
        why = "" if error is None else f": {error.message}"
        line = None if error is None else error.line
        details = {"templateId": template.id, "state": template.state, "line": line}
        super().__init__(f"the build of {template.name}:{template.version} {how}{why}", details=details)
        self.template = template
        """The template with its state, which is `failed` or `cancelled`, and its `error`."""
        self.output = tail(output)
        """The end of the output of the last step."""

    def __str__(self) -> str:
        return f"{super().__str__()}; the output ends with:\n{self.output}" if self.output else super().__str__()

    def __reduce__(self) -> Tuple[Any, ...]:
        return BuildFailed, (self.template, self.output)


BY_CODE: Dict[str, Type[SandboxdError]] = {
    error.code: error
    for error in (
        InvalidRequest,
        InvalidConfig,
        CommandTooLong,
        Unauthorized,
        Forbidden,
        PermissionDenied,
        PortNotAllowed,
        SandboxNotFound,
        FileNotFound,
        PortNotFound,
        ExecutionNotFound,
        SnapshotNotFound,
        TemplateNotFound,
        ContextNotFound,
        NotFound,
        MethodNotAllowed,
        ExecutionTimeout,
        InvalidState,
        IsolationMismatch,
        FileExists,
        NotAFile,
        NotADirectory,
        NoInterpreter,
        DirectoryNotEmpty,
        ExecutionEnded,
        StdinClosed,
        NotATerminal,
        RateLimited,
        QuotaExceeded,
        InternalError,
        ExecutionError,
        PortUnreachable,
        ResourceExhausted,
        DiskFull,
    )
}
"""The classes of the service's codes."""

STATUS_OF: Dict[str, int] = {
    "INVALID_REQUEST": 400,
    "INVALID_CONFIG": 400,
    "COMMAND_TOO_LONG": 400,
    "UNAUTHORIZED": 401,
    "FORBIDDEN": 403,
    "PERMISSION_DENIED": 403,
    "PORT_NOT_ALLOWED": 403,
    "SANDBOX_NOT_FOUND": 404,
    "FILE_NOT_FOUND": 404,
    "PORT_NOT_FOUND": 404,
    "EXECUTION_NOT_FOUND": 404,
    "SNAPSHOT_NOT_FOUND": 404,
    "TEMPLATE_NOT_FOUND": 404,
    "CONTEXT_NOT_FOUND": 404,
    "NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "EXECUTION_TIMEOUT": 408,
    "INVALID_STATE": 409,
    "ISOLATION_MISMATCH": 409,
    "FILE_EXISTS": 409,
    "NOT_A_FILE": 409,
    "NOT_A_DIRECTORY": 409,
    "NO_INTERPRETER": 409,
    "EXECUTION_ENDED": 409,
    "STDIN_CLOSED": 409,
    "NOT_A_TERMINAL": 409,
    "DIRECTORY_NOT_EMPTY": 409,
    "RATE_LIMITED": 429,
    "QUOTA_EXCEEDED": 429,
    "INTERNAL_ERROR": 500,
    "EXECUTION_ERROR": 502,
    "PORT_UNREACHABLE": 502,
    "RESOURCE_EXHAUSTED": 503,
    "DISK_FULL": 507,
}
"""The status that belongs to each code of the service."""


def of_response(status: int, body: bytes, headers: Mapping[str, str]) -> SandboxdError:
    """The error of a response with status 400 or above. `headers` have lower-case names."""
    request_id = headers.get("x-request-id")
    retry_after = _seconds(headers.get("retry-after"))
    fields = _error_object(body)
    if fields is None:
        message = f"status {status} without an error body of the service"
        if "location" in headers:
            message += f"; it redirects to {headers['location']}, and the library follows no redirects: change the URL of the service"
        return UnknownError(message, status=status, request_id=request_id, retry_after=retry_after)
    return _of_object(fields, status, request_id, retry_after)


def of_event(data: str) -> Optional[SandboxdError]:
    """The error in the data of an `error` event, or None if the data is not an error."""
    fields = _error_fields(data)
    return None if fields is None else of_fields(fields)


def of_fields(fields: Mapping[str, Any]) -> SandboxdError:
    """The error of an error object outside a response, with the status that belongs to its code."""
    return _of_object(fields, STATUS_OF.get(str(fields.get("code"))), None, None)


def argument_error(argument: str, message: str) -> SandboxdError:
    """The error of an argument of a call."""
    return InvalidArgument(message, details={"argument": argument})


def termination_reason(error: BaseException) -> Optional[str]:
    """Why the sandbox was terminated, if the error says that it was."""
    if not isinstance(error, SandboxNotFound) or error.details.get("state") != "terminated":
        return None
    reason = error.details.get("reason")
    return reason if isinstance(reason, str) else None


def _of_object(
    fields: Mapping[str, Any], status: Optional[int], request_id: Optional[str], retry_after: Optional[float]
) -> SandboxdError:
    code = str(fields.get("code"))
    details: object = fields.get("details")
    return BY_CODE.get(code, UnknownError)(
        with_argument(str(fields.get("message"))),
        status=status,
        details=cast("Dict[str, Any]", details) if isinstance(details, dict) else {},
        code_name=code,
        request_id=fields.get("requestId") or request_id,
        retry_after=retry_after,
    )


def _error_fields(data: str) -> Optional[Mapping[str, Any]]:
    try:
        return _checked(json.loads(data))
    except ValueError:
        return None


def _error_object(body: bytes) -> Optional[Mapping[str, Any]]:
    try:
        return _checked(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return None


def _checked(value: object) -> Optional[Mapping[str, Any]]:
    """The value, if it is an error object."""
    if not isinstance(value, dict):
        return None
    fields = cast("Dict[str, Any]", value)
    return fields if "code" in fields and "message" in fields else None


def _seconds(value: Optional[str]) -> Optional[float]:
    return float(value) if value is not None and value.isascii() and value.isdigit() else None
