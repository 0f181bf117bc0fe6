"""Packs local directories into archives, while others may change them."""

from __future__ import annotations

import os
import stat
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Iterable, Iterator, Tuple

BLOCK = 512
CHUNK = 256 << 10
BINARY = getattr(os, "OBINARY", 0)
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)


@dataclass(frozen=True)
class LocalDirectory:
    """A local directory as the content of a request. It is packed again for each attempt."""

    path: Path

    def chunks(self) -> Iterator[bytes]:
        """The chunks of its archive. A file that cannot be read is an OSError."""
        return pack(self.path, walk(self.path))


def walk(directory: Path) -> Iterator[str]:
    """The relative names of the directory, which is the empty name, and of everything below. Files that vanish are omitted."""
    waiting = [""]
    while waiting:
        parent = waiting.pop()
        yield parent
        for name, is_directory in entries(directory, parent):
            if is_directory:
                waiting.append(name)
            else:
                yield name


def entries(directory: Path, parent: str) -> Iterator[Tuple[str, bool]]:
    """The relative names in a directory below another one, and whether they are directories. Empty if the directory vanished."""
    try:
        with os.scandir(os.path.join(directory, parent)) as found:
            for entry in found:
                name = f"{parent}/{entry.name}" if parent else entry.name
                yield name, entry.is_dir(follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        if not parent:
            raise


def pack(directory: Path, names: Iterable[str]) -> Iterator[bytes]:
    """
    The chunks of an archive with relative names. Symbolic links are kept; sockets, FIFOs and devices are omitted. Files that vanish
    are omitted, and a file that grows or shrinks keeps the length of its header. A file that cannot be read is an OSError.
    """
    buffer = bytearray()
    for name in names:
        for chunk in _packed(directory, name):
            buffer += chunk
            if len(buffer) >= CHUNK:
                yield bytes(buffer)
                buffer.clear()
    buffer += bytes(2 * BLOCK)
    yield bytes(buffer)


def _packed(directory: Path, name: str) -> Iterator[bytes]:
    """An entry."""
    path = os.path.join(directory, name)
    try:
        # The directory itself may be named by a symbolic link.
        found = os.lstat(path) if name else os.stat(path)
        if stat.S_ISDIR(found.st_mode):
            yield _header(name or ".", found, tarfile.DIRTYPE)
        elif stat.S_ISLNK(found.st_mode):
            yield _header(name, found, tarfile.SYMTYPE, os.readlink(path))
        elif stat.S_ISREG(found.st_mode):
            # Another program may replace the file by a FIFO or a link meanwhile.
            file = os.fdopen(os.open(path, os.O_RDONLY | BINARY | NO_FOLLOW | _NO_WAIT), "rb")
            with file:
                found = os.fstat(file.fileno())
                if stat.S_ISREG(found.st_mode):
                    yield _header(name, found, tarfile.REGTYPE)
                    yield from _content(file, found.st_size)
        elif not name:
            raise NotADirectoryError(20, "Not a directory", str(directory))
    except (FileNotFoundError, NotADirectoryError):
        if not name:
            raise


def _content(file: BinaryIO, size: int) -> Iterator[bytes]:
    left = size
    while left > 0:
        # A file that shrank is filled with zeroes.
        chunk = file.read(min(CHUNK, left)) or bytes(min(CHUNK, left))
        left -= len(chunk)
        yield chunk
    yield bytes(-size % BLOCK)


def _header(name: str, found: os.stat_result, kind: bytes, target: str = "") -> bytes:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.mode = stat.S_IMODE(found.st_mode)
    info.uid, info.gid, info.mtime = found.st_uid, found.st_gid, int(found.st_mtime)
    info.size = found.st_size if kind == tarfile.REGTYPE else 0
    info.linkname = target
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
