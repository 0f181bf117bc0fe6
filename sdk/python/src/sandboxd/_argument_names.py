"""Names the arguments of this library in messages of the service, which name the fields of requests."""

from __future__ import annotations

import re
from typing import Dict

_IN_MB = "in MB here"
_IN_MS = "in milliseconds here"
_ARGUMENTS: Dict[str, str] = {
    "resources.memoryMb": f"memory, {_IN_MB}",
    "resources.diskMb": f"disk, {_IN_MB}",
    "resources.cpu": "cpu",
    "timeoutMs": f"timeout, {_IN_MS}",
    "idleTimeoutMs": f"idle_timeout, {_IN_MS}",
    "readerTimeoutMs": f"reader_timeout, {_IN_MS}",
    "start.readyTimeoutMs": f"ready_timeout, {_IN_MS}",
    "expiresInMs": f"expires_in, {_IN_MS}",
    "startCommand": "start_command",
    "readyCommand": "ready_command",
    "readyTimeoutMs": f"ready_timeout, {_IN_MS}",
    "network.egress": "egress",
    "network.ingress": "ingress",
    "onTimeout": "on_timeout",
    "autoResume": "auto_resume",
    "openStdin": "open_stdin",
    "contextId": "context",
    "buildArgs": "build_args",
    "dockerfilePath": "dockerfile_path",
    "noCache": "no_cache",
    "snapshotId": "snapshot",
    "lineEnds": "line_ends",
    "parents=true": "parents=True",
    "recursive=true": "recursive=True",
}
"""The arguments by the fields that they set, if their names differ."""
# Not as a part of another name, such as `network.egress.allow`.
_FIELD = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, _ARGUMENTS))})(?!\w|\.\w)")


def with_argument(message: str) -> str:
    """The message, with the argument of the first field that it names."""
    found = _FIELD.search(message)
    if found is None:
        return message
    return f"{message} (argument {_ARGUMENTS[found[0]]})"
