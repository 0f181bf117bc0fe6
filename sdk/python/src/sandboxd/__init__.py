"""
A client for sandboxd, a service that provides isolated Linux sandboxes.

`Sandbox` and `Sandboxd` block; `AsyncSandbox` and `AsyncSandboxd` have the same methods for asyncio. The other classes of the
asyncio flavour are in `sandboxd.aio`, and the data of responses in `sandboxd.models`.
"""

from . import aio, models
from ._async._client import AsyncSandboxd
from ._async._run import AsyncRun
from ._async._sandbox import AsyncSandbox
from ._build_events import BuildDone, BuildEvent, BuildNote, BuildStep
from ._errors import (
    BuildFailed,
    CommandFailed,
    CommandTooLong,
    ConfigurationError,
    ContextNotFound,
    DirectoryNotEmpty,
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
    SandboxdError,
    SandboxNotFound,
    SnapshotNotFound,
    StdinClosed,
    TemplateNotFound,
    Unauthorized,
    UnknownError,
)
from ._lifecycle import CallFailed, LifecycleEvent, LifecycleHandlers, Paused, Resumed, Started, Terminated
from ._models import (
    CodeContext,
    CodeException,
    CodeExecution,
    CodeResult,
    Done,
    ExecutionResult,
    FileEntry,
    RuntimeEvent,
    Snapshot,
    Template,
)
from ._output import Dropped, Output, Stderr, Stdout
from ._policies import CreateEgress, CreateIngress
from ._sync._client import Sandboxd
from ._sync._code import CodeContexts
from ._sync._events import Events, EventStream
from ._sync._executions import Execution, Executions, FollowedOutput
from ._sync._files import Files, FileStream
from ._sync._network import Network
from ._sync._paging import PagedList
from ._sync._ports import Ports
from ._sync._run import Run
from ._sync._sandbox import Sandbox
from ._sync._sandboxes import Images, Sandboxes
from ._sync._snapshots import Snapshots
from ._sync._stream import OutputStream
from ._sync._templates import BuildLog, Templates
from ._sync._terminal import Terminal
from ._sync._watch import FileWatch
from ._terminal_events import (
    TerminalDisconnected,
    TerminalDropped,
    TerminalEnded,
    TerminalEvent,
    TerminalOutput,
    TerminalReconnected,
)
from ._version import VERSION as __version__
from ._watch_events import FileChange, WatchEvent, WatchOverflow

__all__ = [
    "AsyncRun",
    "AsyncSandbox",
    "AsyncSandboxd",
    "BuildDone",
    "BuildEvent",
    "BuildFailed",
    "BuildLog",
    "BuildNote",
    "BuildStep",
    "CallFailed",
    "CodeContext",
    "CodeContexts",
    "CodeException",
    "CodeExecution",
    "CodeResult",
    "CommandFailed",
    "CommandTooLong",
    "ConfigurationError",
    "ContextNotFound",
    "CreateEgress",
    "CreateIngress",
    "DirectoryNotEmpty",
    "DiskFull",
    "Done",
    "Dropped",
    "EventStream",
    "Events",
    "Execution",
    "ExecutionEnded",
    "ExecutionError",
    "ExecutionNotFound",
    "ExecutionResult",
    "ExecutionTimeout",
    "Executions",
    "FileChange",
    "FileEntry",
    "FileExists",
    "FileNotFound",
    "FileStream",
    "FileWatch",
    "Files",
    "FollowedOutput",
    "Forbidden",
    "Images",
    "InternalError",
    "InvalidArgument",
    "InvalidConfig",
    "InvalidRequest",
    "InvalidState",
    "IsolationMismatch",
    "LifecycleEvent",
    "LifecycleHandlers",
    "LocalFileError",
    "MethodNotAllowed",
    "Network",
    "NetworkError",
    "NoInterpreter",
    "NotADirectory",
    "NotAFile",
    "NotATerminal",
    "NotFound",
    "Output",
    "OutputStream",
    "PagedList",
    "Paused",
    "PermissionDenied",
    "PortNotAllowed",
    "PortNotFound",
    "PortUnreachable",
    "Ports",
    "QuotaExceeded",
    "RateLimited",
    "ResourceExhausted",
    "Resumed",
    "Run",
    "RuntimeEvent",
    "Sandbox",
    "SandboxNotFound",
    "Sandboxd",
    "SandboxdError",
    "Sandboxes",
    "Snapshot",
    "SnapshotNotFound",
    "Snapshots",
    "Started",
    "Stderr",
    "StdinClosed",
    "Stdout",
    "Template",
    "TemplateNotFound",
    "Templates",
    "Terminal",
    "TerminalDisconnected",
    "TerminalDropped",
    "TerminalEnded",
    "TerminalEvent",
    "TerminalOutput",
    "TerminalReconnected",
    "Terminated",
    "Unauthorized",
    "UnknownError",
    "WatchEvent",
    "WatchOverflow",
    "__version__",
    "aio",
    "models",
]
