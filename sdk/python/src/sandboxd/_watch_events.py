"""What the watch of a directory delivers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Union

from . import _fields
from ._fields import Fields


@dataclass(frozen=True)
class FileChange:
    """A change in a watched directory."""

    kind: str
    """
    `create`: created, or moved to this path. `write`: its content changed. `remove`: deleted. `rename`: moved away from this path.
    `chmod`: its owner, permissions, times or extended attributes changed.
    """
    path: str
    """The absolute path. Bytes that are not UTF-8 are shown as U+FFFD."""
    raw_path: Optional[str] = None
    """The path, percent-encoded for the query parameter `path`. Present only if the path is not UTF-8."""

    @classmethod
    def from_json(cls, value: object) -> FileChange:
        """Parses a JSON object. Raises ValueError if a field is missing or has another type."""
        fields = Fields(value)
        return cls(
            kind=fields.required("kind", _fields.text),
            path=fields.required("path", _fields.text),
            raw_path=fields.optional("rawPath", _fields.text),
        )


@dataclass(frozen=True)
class WatchOverflow:
    """Changes were lost because they were not read in time."""


WatchEvent = Union[FileChange, WatchOverflow]
