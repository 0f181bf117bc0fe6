"""
Unpacks archives into local directories. `unpack` treats the archive as hostile, because it comes from a sandbox: it writes nothing
outside the directory, follows no link, creates no devices, and ignores owners and set-user-id bits.
"""

from __future__ import annotations

import os
import stat
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterable, Iterator, List, Optional, Tuple

from . import models
from ._errors import LocalFileError
from ._pack import BINARY, BLOCK, CHUNK, NO_FOLLOW

LONGEST_NAME = 64 << 10
"""The limit of a name, a link target or the pax records of an entry. These are held in memory."""
MOST_CLOSED = 10_000
"""The limit of directories that are not accessible to their owner. These are held in memory until the end."""
MOST_CLOSED_BYTES = 32 << 20
MOST_FAULTS = 5
"""Failures that are reported individually."""
LATEST = 1 << 33
"""File systems differ in the latest time that they store. Later times are ignored."""
OWN_ALL = 0o700
FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
LINKS = (tarfile.SYMTYPE, tarfile.LNKTYPE)


class BrokenArchive(Exception):
    """The archive is damaged, or exceeds a limit."""


class _SourceFailed(Exception):
    """The source of the archive failed, with an error that must not count as one of the local directory."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


@dataclass
class Entry:
    """The header of an entry."""

    name: str
    target: str
    kind: bytes
    mode: int
    mtime: float
    size: int


@dataclass
class _Extension:
    """What extension headers say about the next entry."""

    name: Optional[str] = None
    target: Optional[str] = None
    size: Optional[int] = None
    mtime: Optional[float] = None
    is_sparse: bool = False

    def read(self, kind: bytes, content: bytes) -> None:
        """Takes over a GNU or pax header."""
        if kind == tarfile.GNUTYPE_LONGNAME:
            self.name = _text(content.split(b"\0", 1)[0])
        elif kind == tarfile.GNUTYPE_LONGLINK:
            self.target = _text(content.split(b"\0", 1)[0])
        else:
            for key, value in _records(content):
                self._record(key, value)

    def _record(self, key: bytes, value: bytes) -> None:
        if key == b"path":
            self.name = _text(value)
        elif key == b"linkpath":
            self.target = _text(value)
        elif key == b"size":
            self.size = _number(value)
        elif key == b"mtime":
            try:
                self.mtime = float(value[:40])
            except ValueError as cause:
                raise BrokenArchive("a time is not a number") from cause
        elif key.startswith(b"GNU.sparse."):
            self.is_sparse = True


class _Source:
    """Reads exact amounts from chunks."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._buffer = b""

    def some(self, limit: int) -> bytes:
        """At least one and at most `limit` bytes, or none at the end."""
        while not self._buffer:
            try:
                chunk = next(self._chunks, None)
            except Exception as cause:
                raise _SourceFailed(cause) from cause
            if chunk is None:
                return b""
            self._buffer = chunk
        got, self._buffer = self._buffer[:limit], self._buffer[limit:]
        return got

    def exactly(self, size: int) -> Iterator[bytes]:
        """The next bytes, in pieces."""
        while size > 0:
            got = self.some(min(size, CHUNK))
            if not got:
                raise BrokenArchive("the archive is incomplete")
            size -= len(got)
            yield got

    def whole(self, size: int) -> bytes:
        """The next bytes."""
        return b"".join(self.exactly(size))

    def skip(self, size: int) -> None:
        """Reads over the next bytes."""
        for _ in self.exactly(size):
            pass

    def drain(self) -> None:
        """Reads up to the end of the stream, so that an error at its end is noticed."""
        while self.some(CHUNK):
            pass


@dataclass
class _Unpacking:
    """The directory, what was created in it, and the failures."""

    root: str
    files: int = 0
    directories: int = 0
    links: int = 0
    skipped: int = 0
    size: int = 0
    faults: List[str] = field(default_factory=lambda: [])
    more_faults: int = 0

    def unpack(self, entry: Entry, content: Iterator[bytes]) -> None:
        """Creates an entry. A failure does not affect the next ones."""
        try:
            parts = _parts(entry.name)
            if parts is None:
                self.skipped += 1
            elif entry.kind == tarfile.DIRTYPE:
                self._directory(parts, entry)
                self.directories += 1
            elif entry.kind in LINKS:
                self._link(parts, entry)
                self.links += 1
            else:
                self._file(parts, entry, content)
                self.files += 1
                self.size += entry.size
        # A name with a zero byte is a ValueError.
        except (OSError, ValueError, OverflowError) as error:
            self._fault(entry.name, error)

    def _directory(self, parts: List[str], entry: Entry) -> None:
        if not parts:
            return
        path = self._below(parts)
        try:
            os.mkdir(path)
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                raise
        os.chmod(path, entry.mode & 0o777)

    def _link(self, parts: List[str], entry: Entry) -> None:
        if not parts:
            raise IsADirectoryError(21, "Is a directory")
        path = self._below(parts)
        if entry.kind == tarfile.SYMTYPE:
            _remove(path)
            os.symlink(entry.target, path)
            return
        target_parts = _parts(entry.target)
        if not target_parts:
            raise PermissionError(1, "the link leads outside the directory")
        target = self._below(target_parts)
        found = os.lstat(target)
        if os.path.lexists(path) and os.path.samestat(found, os.lstat(path)):
            return
        _remove(path)
        if stat.S_ISLNK(found.st_mode):
            # Not every system can link to a symbolic link itself.
            os.symlink(os.readlink(target), path)
        else:
            os.link(target, path)

    def _file(self, parts: List[str], entry: Entry, content: Iterator[bytes]) -> None:
        if not parts:
            raise IsADirectoryError(21, "Is a directory")
        path = self._below(parts)
        _remove(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY | NO_FOLLOW
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            for chunk in content:
                file.write(chunk)
        # The path names the file that was just created.
        os.chmod(path, entry.mode & 0o777)
        if 0 <= entry.mtime < LATEST:
            os.utime(path, (entry.mtime, entry.mtime))

    def _below(self, parts: List[str]) -> str:
        """The path of an entry, whose parents are directories and not links. Missing ones are created."""
        path = self.root
        for part in parts[:-1]:
            path = os.path.join(path, part)
            try:
                if not stat.S_ISDIR(os.lstat(path).st_mode):
                    raise NotADirectoryError(20, f"{part} is not a directory")
            except FileNotFoundError:
                os.mkdir(path)
        return os.path.join(path, parts[-1])

    def _fault(self, name: str, error: Exception) -> None:
        if len(self.faults) == MOST_FAULTS:
            self.more_faults += 1
            return
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        self.faults.append(f"{_shown(name)}: {why}")

    def result(self) -> models.Unpacked:
        """What was unpacked, or an error that lists the failures."""
        if self.faults:
            more = [f"and {self.more_faults} more"] if self.more_faults else []
            raise LocalFileError(f"{self.root}: {'; '.join(self.faults + more)}")
        return models.Unpacked(
            path=self.root,
            files=self.files,
            directories=self.directories,
            links=self.links,
            skipped=self.skipped,
            bytes=self.size,
        )


def unpack(chunks: Iterable[bytes], directory: Path) -> models.Unpacked:
    """
    Unpacks an archive below a directory, which is created if necessary. Entries that cannot be created are skipped and reported as
    an error at the end; what was written before a failure stays.
    """
    root = os.fspath(directory)
    try:
        os.makedirs(root, exist_ok=True)
    except OSError as error:
        raise LocalFileError(f"{root}: {error}") from error
    unpacking = _Unpacking(root)
    source = _Source(chunks)
    try:
        _unpack_all(source, unpacking)
        source.drain()
    except _SourceFailed as failure:
        raise failure.cause from None
    except BrokenArchive as error:
        raise LocalFileError(f"{root}: {error}") from error
    return unpacking.result()


def _unpack_all(source: _Source, unpacking: _Unpacking) -> None:
    closed: List[Entry] = []
    closed_bytes = 0
    for entry in _entries(source):
        padding = -entry.size % BLOCK
        content = source.exactly(entry.size)
        if entry.kind == tarfile.DIRTYPE and entry.mode & OWN_ALL != OWN_ALL:
            closed_bytes += len(entry.name)
            if len(closed) == MOST_CLOSED or closed_bytes > MOST_CLOSED_BYTES:
                raise BrokenArchive(f"more than {len(closed)} directories are not accessible to their owner")
            closed.append(entry)
        elif entry.kind in FILES or entry.kind in LINKS or entry.kind == tarfile.DIRTYPE:
            unpacking.unpack(entry, content)
        else:
            unpacking.skipped += 1
        for _ in content:
            pass
        source.skip(padding)
    # Deepest first: a read-only parent would prevent changes below it.
    for entry in sorted(closed, key=lambda entry: entry.name, reverse=True):
        unpacking.unpack(entry, iter(()))


def _entries(source: _Source) -> Iterator[Entry]:
    """The headers. The caller reads the content of an entry before it requests the next one."""
    extension = _Extension()
    while True:
        block = source.whole(BLOCK)
        if not any(block):
            return
        info = _parsed(block)
        if info.type in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE):
            if info.size > LONGEST_NAME:
                raise BrokenArchive(f"an entry of the archive has names longer than {LONGEST_NAME} bytes")
            extension.read(info.type, source.whole(info.size))
            source.skip(-info.size % BLOCK)
        elif info.type == tarfile.XGLTYPE:
            source.skip(info.size + -info.size % BLOCK)
        else:
            if info.type == tarfile.GNUTYPE_SPARSE:
                _skip_sparse_map(source, block)
            yield _entry(info, extension)
            extension = _Extension()


def _entry(info: tarfile.TarInfo, extension: _Extension) -> Entry:
    return Entry(
        name=info.name if extension.name is None else extension.name,
        target=info.linkname if extension.target is None else extension.target,
        kind=tarfile.GNUTYPE_SPARSE if extension.is_sparse else info.type,
        mode=info.mode,
        mtime=float(info.mtime) if extension.mtime is None else extension.mtime,
        size=info.size if extension.size is None else extension.size,
    )


def _parsed(block: bytes) -> tarfile.TarInfo:
    try:
        info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError, OverflowError) as cause:
        raise BrokenArchive(f"a header of the archive is damaged: {cause}") from cause
    if info.size < 0:
        raise BrokenArchive("a header of the archive is damaged: negative size")
    return info


def _skip_sparse_map(source: _Source, header: bytes) -> None:
    is_extended = header[482] != 0
    while is_extended:
        is_extended = source.whole(BLOCK)[504] != 0


def _records(content: bytes) -> Iterator[Tuple[bytes, bytes]]:
    """The pax records `LENGTH KEY=VALUE`, each with a line feed."""
    while content and content[0]:
        length_text, _, _ = content.partition(b" ")
        length = _number(length_text)
        record = content[len(length_text) + 1 : length - 1]
        key, equals, value = record.partition(b"=")
        if not equals or content[length - 1 : length] != b"\n":
            raise BrokenArchive("the pax records of an entry are damaged")
        yield key, value
        content = content[length:]


def _number(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > 18:
        raise BrokenArchive("the pax records of an entry are damaged")
    return int(digits)


def _parts(name: str) -> Optional[List[str]]:
    """The components of a name, or None if it leads outside the directory. An absolute name counts as relative."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or any(_is_foreign(part) for part in parts):
        return None
    return parts


def _is_foreign(part: str) -> bool:
    """Whether the system takes the component for a path of its own, such as `C:` or `..\\` on Windows."""
    return os.sep != "/" and (os.sep in part or ":" in part)


def _remove(path: str) -> None:
    """Removes a file or a link, so that it is not written through. A directory is an error."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _shown(name: str) -> str:
    return name.encode("utf-8", "replace").decode()[:200]
