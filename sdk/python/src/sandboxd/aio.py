"""The classes of the asyncio flavour."""

from ._async._client import AsyncSandboxd
from ._async._code import AsyncCodeContexts
from ._async._events import AsyncEvents, AsyncEventStream
from ._async._executions import AsyncExecution, AsyncExecutions, AsyncFollowedOutput
from ._async._files import AsyncFiles, AsyncFileStream
from ._async._network import AsyncNetwork
from ._async._paging import AsyncPagedList
from ._async._platform import Opening
from ._async._ports import AsyncPorts
from ._async._run import AsyncRun
from ._async._sandbox import AsyncSandbox
from ._async._sandboxes import AsyncImages, AsyncSandboxes
from ._async._snapshots import AsyncSnapshots
from ._async._stream import AsyncOutputStream
from ._async._templates import AsyncBuildLog, AsyncTemplates
from ._async._terminal import AsyncTerminal
from ._async._watch import AsyncFileWatch

__all__ = [
    "AsyncBuildLog",
    "AsyncCodeContexts",
    "AsyncEventStream",
    "AsyncEvents",
    "AsyncExecution",
    "AsyncExecutions",
    "AsyncFileStream",
    "AsyncFileWatch",
    "AsyncFiles",
    "AsyncFollowedOutput",
    "AsyncImages",
    "AsyncNetwork",
    "AsyncOutputStream",
    "AsyncPagedList",
    "AsyncPorts",
    "AsyncRun",
    "AsyncSandbox",
    "AsyncSandboxd",
    "AsyncSandboxes",
    "AsyncSnapshots",
    "AsyncTemplates",
    "AsyncTerminal",
    "Opening",
]
