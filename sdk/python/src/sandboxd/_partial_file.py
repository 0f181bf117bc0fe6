"""A local file that is being downloaded. It gets its name when it is complete, so that nobody takes a part for the whole."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from types import TracebackType
from typing import Optional, Type


class PartialFile:
    """A file beside its target. Leaving the block with an error removes it, and otherwise replaces the target by it."""

    def __init__(self, target: Path) -> None:
        # Not a device such as `/dev/null`, which would be replaced.
        if target.exists() and not target.is_file():
            raise FileExistsError("it exists and is not a file")
        self._target = target
        # The longest name of a file has no room for more.
        self._part = target.with_name(f".{target.name[:40]}.{secrets.token_hex(4)}.part")
        self._file = open(self._part, "xb")

    def write(self, chunk: bytes) -> None:
        """Appends to the file."""
        self._file.write(chunk)

    def __enter__(self) -> PartialFile:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        try:
            self._file.close()
            if error is None:
                os.replace(self._part, self._target)
        finally:
            self._part.unlink(missing_ok=True)
