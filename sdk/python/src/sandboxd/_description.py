"""The base of the objects in responses. They describe a state; the objects with methods are others, some with the same name."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Dict

_METHODS = {
    "CodeContext": "sandbox.contexts has the methods",
    "Execution": "the object of start() or executions.get() has the methods, and its output() returns what the command printed",
    "FileEntry": "sandbox.files has the methods",
    "Sandbox": "the object of create(), connect() or sandboxes.get() has the methods",
    "SandboxItem": "sandboxes.connect(item.id) returns the object with the methods",
    "Snapshot": "client.snapshots and the sandbox have the methods",
    "Template": "client.templates has the methods",
}
"""Where the methods are, by the name of the class."""

_OTHER_NAMES = {
    "ExecutionResult": {
        **dict.fromkeys(("returncode", "exitcode", "code", "status"), "exit_code"),
        **dict.fromkeys(("output", "out", "text", "logs"), "stdout"),
        **dict.fromkeys(("error", "err"), "stderr"),
        **dict.fromkeys(("ok", "success"), "exit_code == 0"),
        **dict.fromkeys(("check", "check_returncode", "raise_for_status"), "execute(..., check=True)"),
    },
    "CodeExecution": {
        **dict.fromkeys(("output", "logs"), "stdout and stderr"),
        "error": "exception",
        **dict.fromkeys(("check", "raise_for_status"), "exception, which is None if the code raised nothing"),
    },
}
"""Names that users of other libraries look for, and what there is instead, by the name of the class."""


@dataclasses.dataclass(frozen=True)
class Description:
    """The fields of an object in a response."""

    def to_dict(self) -> Dict[str, Any]:
        """The fields as a dictionary with the names of the attributes, for `json.dumps` for example. Inner objects are dictionaries, too."""
        return dataclasses.asdict(self)

    if not TYPE_CHECKING:
        # Type checkers refuse unknown attributes by themselves, unless there is such a method.

        def __getattr__(self, name: str) -> Any:
            kind = type(self).__name__
            text = f"{kind!r} object of sandboxd.models has no attribute {name!r}"
            instead = _OTHER_NAMES.get(kind, {}).get(name)
            if instead is not None:
                text += f"; use {instead}"
            elif kind in _METHODS and not name.startswith("_"):
                text += f": it only describes a state; {_METHODS[kind]}"
            raise AttributeError(text)
