"""Names that users of other libraries look for, in the error of an attribute that does not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict

_NAMES: Dict[str, Dict[str, str]] = {
    "Sandbox": {
        **dict.fromkeys(("run", "exec", "exec_run", "run_command", "commands", "process"), "execute(), or start() for a detached command"),
        **dict.fromkeys(("kill", "close", "delete", "destroy", "remove", "stop"), "terminate(), or pause() to go on later"),
        **dict.fromkeys(("restore", "revert"), "rollback()"),
        "checkpoint": "snapshot()",
        **dict.fromkeys(("fs", "filesystem"), "files"),
        **dict.fromkeys(("get_host", "expose_port", "tunnels"), "ports.expose()"),
        "pty": "terminal()",
    },
    "Files": {
        "download": "read(), or download_directory()",
        "upload": "write(), or upload_directory()",
        **dict.fromkeys(("delete", "rm", "unlink"), "remove()"),
        **dict.fromkeys(("rename", "mv"), "move()"),
        **dict.fromkeys(("make_dir", "makedirs"), "mkdir()"),
        "get_info": "stat()",
    },
}
"""What there is instead, by the name of the class."""


class OtherNames:
    """An object whose errors of missing attributes name what there is instead."""

    if not TYPE_CHECKING:
        # Type checkers refuse unknown attributes by themselves, unless there is such a method.

        def __getattr__(self, name: str) -> Any:
            kind = type(self).__name__
            instead = _NAMES.get(kind.replace("Async", ""), {}).get(name)
            if instead is None:
                return object.__getattribute__(self, name)
            raise AttributeError(f"{kind!r} object has no attribute {name!r}; use {instead}")
