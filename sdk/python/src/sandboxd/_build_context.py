"""The build context of a template: a local directory without what its `.dockerignore` omits."""

from __future__ import annotations

import errno
import os
import posixpath
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, Optional, Set

from ._errors import argument_error
from ._ignore import IgnoreRules
from ._pack import LocalDirectory, entries, pack

IGNORE_FILE = ".dockerignore"


@dataclass(frozen=True)
class LocalContext(LocalDirectory):
    """A local directory as a build context."""

    dockerfile: Optional[str] = None
    """The relative name of its Dockerfile, which is kept."""

    def chunks(self) -> Iterator[bytes]:
        """The chunks of its archive. A Dockerfile that does not exist is an OSError, before anything is packed."""
        if self.dockerfile is not None:
            path = os.path.join(self.path, self.dockerfile)
            if not os.path.isfile(path):
                raise FileNotFoundError(errno.ENOENT, "no Dockerfile", path)
        yield from pack(self.path, kept_names(self.path, _rules(self.path, self.dockerfile)))


def local_context(directory: "str | os.PathLike[str]", dockerfile_path: Optional[str]) -> LocalContext:
    """A context with its Dockerfile, whose path is checked."""
    if os.path.isfile(directory):
        how = "pass its directory, and dockerfile_path= if the Dockerfile has another name"
        raise argument_error("context", f"context is {os.fspath(directory)!r}, a file; {how}")
    if dockerfile_path is None:
        return LocalContext(Path(directory))
    name = posixpath.normpath(dockerfile_path)
    if name.startswith(("/", "../")) or name in (".", ".."):
        raise argument_error("dockerfile_path", f"{dockerfile_path!r} is not a path of a file in the context")
    return LocalContext(Path(directory), name)


def kept_names(directory: Path, rules: IgnoreRules) -> Iterator[str]:
    """
    The relative names of the directory, which is the empty name, and of everything below that is not omitted. A directory comes
    before its contents. One that is omitted is kept if something below it is kept.
    """
    yield ""
    waiting = [""]
    # The omitted directories that were read, until something below them is kept.
    omitted: Set[str] = set()
    while waiting:
        for name, is_directory in entries(directory, waiting.pop()):
            if not rules.omits(name):
                yield from _taken(omitted, name)
                yield name
            elif is_directory and rules.may_keep_below(name):
                omitted.add(name)
            else:
                continue
            if is_directory:
                waiting.append(name)


def _taken(omitted: Set[str], name: str) -> Iterator[str]:
    """Removes the directories above a name from the omitted ones. Returns those that were removed, the outermost first."""
    parts = name.split("/")
    for count in range(1, len(parts)):
        parent = "/".join(parts[:count])
        if parent in omitted:
            omitted.remove(parent)
            yield parent


def _rules(directory: Path, dockerfile: Optional[str]) -> IgnoreRules:
    """The rules of the file for this Dockerfile, such as `Dockerfile.dockerignore`, or of the file for all."""
    for name in ([dockerfile + IGNORE_FILE] if dockerfile is not None else []) + [IGNORE_FILE]:
        try:
            # Names that are not UTF-8 are compared as the file system returns them.
            with open(directory / name, encoding="utf-8-sig", errors="surrogateescape") as file:
                text = file.read()
        except (FileNotFoundError, NotADirectoryError):
            continue
        try:
            return IgnoreRules(text, dockerfile)
        except ValueError as cause:
            raise ValueError(f"{directory / name}: {cause}") from cause
    return IgnoreRules("", dockerfile)
