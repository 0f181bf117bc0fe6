"""Files of a sandbox, accessed as its root user. Contents are streamed, and directories are listed in pages."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, Callable, Dict, Optional, Type, TypeVar, Union
from urllib.parse import quote

from .. import models
from .._bodies import check_content
from .._errors import LocalFileError, SandboxdError
from .._names import OtherNames, other_keywords
from .._pack import LocalDirectory
from .._request import LARGEST_PAGE, QueryValue, query_string
from .._retry import Safety
from .._watch_events import FileChange
from . import _background, _platform
from ._context import AsyncSandboxContext
from ._paging import AsyncPagedList
from ._payload import AsyncPayload
from ._transport import AsyncResponse, Call
from ._watch import AsyncFileWatch

T = TypeVar("T")
LONGEST_SILENCE = 90.0
"""Longer than the service waits for a slow disk."""
FilePath = Union[str, models.FileEntry, FileChange]
"""
A path in the sandbox: absolute or relative to its working directory. An entry of a list or a change of a watch also names paths
that are not UTF-8.
"""


class AsyncFileStream(OtherNames):
    """The content of a file or an archive that is being received: an iterator of bytes, read once."""

    def __init__(self, response: AsyncResponse, report: Callable[[SandboxdError], None]) -> None:
        length = response.headers.get("content-length")
        self.length = int(length) if length is not None and length.isdecimal() else None
        """The number of bytes, if the service knows it."""
        self.etag: Optional[str] = response.headers.get("etag")
        """The version of the file, for `if_range`."""
        self.request_id = response.request_id
        """The id of the request."""
        self._response = response
        self._report = report

    def __repr__(self) -> str:
        size = "unknown length" if self.length is None else f"{self.length} bytes"
        return f"<{type(self).__name__} of {size}{', closed' if self._response.is_closed else ''}>"

    async def read_all(self) -> bytes:
        """The whole content."""
        return b"".join([chunk async for chunk in self])

    async def close(self) -> None:
        """Ends the transfer."""
        await self._response.interrupt()

    def __aiter__(self) -> AsyncFileStream:
        return self

    async def __anext__(self) -> bytes:
        if self._response.is_closed:
            raise StopAsyncIteration
        try:
            chunk = await self._response.read(LONGEST_SILENCE)
        except BaseException as error:
            is_closed = self._response.is_closed
            await self.close()
            if isinstance(error, SandboxdError):
                if is_closed:
                    raise StopAsyncIteration from None
                self._report(error)
            raise
        if chunk is None:
            await self._response.close()
            raise StopAsyncIteration
        return chunk

    async def __aenter__(self) -> AsyncFileStream:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        await self.close()


class AsyncFiles(OtherNames):
    """
    The files of a sandbox. Paths are absolute, or relative to the working directory of the sandbox. Methods with `auto_resume` resume a
    paused sandbox, unless it is False: then they fail with `InvalidState`. `run_id` is the run to which the operation belongs, by
    default that of the sandbox object.
    """

    def __init__(self, context: AsyncSandboxContext) -> None:
        self._context = context

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._context.id}>"

    async def read(
        self,
        path: FilePath,
        *,
        start: Optional[int] = None,
        end: Optional[int] = None,
        last: Optional[int] = None,
        if_range: Optional[str] = None,
        run_id: Optional[str] = None,
        auto_resume: Optional[bool] = None,
    ) -> bytes:
        """
        Returns the content of a file, or of its bytes from `start` until before `end`, or of its `last` bytes. `if_range`: that of
        `open`.
        """
        stream = await self.open(
            path, start=start, end=end, last=last, if_range=if_range, run_id=run_id, auto_resume=auto_resume
        )
        return await stream.read_all()

    async def read_text(
        self,
        path: FilePath,
        *,
        start: Optional[int] = None,
        end: Optional[int] = None,
        last: Optional[int] = None,
        if_range: Optional[str] = None,
        run_id: Optional[str] = None,
        auto_resume: Optional[bool] = None,
    ) -> str:
        """
        Returns the content of a file as text, with U+FFFD for bytes that are not UTF-8. `start`, `end`, `last`, `if_range`: those of
        `open`.
        """
        content = await self.read(
            path, start=start, end=end, last=last, if_range=if_range, run_id=run_id, auto_resume=auto_resume
        )
        return content.decode(errors="replace")

    def open(
        self,
        path: FilePath,
        *,
        start: Optional[int] = None,
        end: Optional[int] = None,
        last: Optional[int] = None,
        if_range: Optional[str] = None,
        run_id: Optional[str] = None,
        auto_resume: Optional[bool] = None,
    ) -> _platform.Opening[AsyncFileStream]:
        """
        Opens the content of a file as a stream: all of it, its bytes from `start` until before `end`, or its `last` bytes. With
        `if_range`, an `ETag` or time, the range is read only if the file is unchanged; otherwise the whole file.
        """
        headers: Dict[str, str] = {}
        content_range = _range(start, end, last)
        if content_range is not None:
            headers["range"] = content_range
        if if_range is not None:
            headers["if-range"] = if_range
        url = self._url("", {"path": path}, autoResume=auto_resume)
        return _platform.opening(self._opened("read", url, path, run_id, headers))

    @other_keywords
    async def write(
        self,
        path: FilePath,
        content: _platform.Content,
        *,
        parents: bool = False,
        mode: Optional[int] = None,
        run_id: Optional[str] = None,
        auto_resume: Optional[bool] = None,
    ) -> models.FileEntry:
        """
        Writes a file, atomically. `content` is text, bytes, the path of a local file (a `pathlib.Path`), an open binary file, or
        an iterator of bytes. `parents` creates missing directories. `mode`: the permissions, such as `0o755`.
        """
        check_content(content)
        url = self._url("", {"path": path}, mode=_mode(mode), parents=parents or None, autoResume=auto_resume)
        # Writing twice has the same result.
        call = Call("PUT", url, Safety.REPEATABLE, AsyncPayload(content, "application/octet-stream"))
        entry = await self._ask("write", path, run_id, call, models.FileEntry.from_json)
        self._record_entry(entry)
        return entry

    def list(
        self, path: FilePath = ".", *, run_id: Optional[str] = None, auto_resume: Optional[bool] = None
    ) -> AsyncPagedList[models.FileEntry]:
        """Lists a directory, by default the working directory."""

        async def fetch(offset: int) -> models.FileList:
            url = self._url("/list", {"path": path}, limit=LARGEST_PAGE, offset=offset, autoResume=auto_resume)
            call = Call("GET", url, Safety.REPEATABLE)
            return await self._ask("list", path, run_id, call, models.FileList.from_json)

        # A file system may return the same name on two pages; both are passed on, as the service sent them.
        return AsyncPagedList(fetch, lambda entry: object())

    async def stat(
        self, path: FilePath, *, follow: bool = False, auto_resume: Optional[bool] = None
    ) -> models.FileEntry:
        """Returns the metadata of a path. With `follow` the metadata of the target of a symbolic link."""
        url = self._url("/stat", {"path": path}, follow=follow or None, autoResume=auto_resume)
        return await self._context.json(Call("GET", url, Safety.REPEATABLE), models.FileEntry.from_json)

    async def exists(self, path: FilePath, *, auto_resume: Optional[bool] = None) -> bool:
        """Whether a path exists. A dangling symbolic link counts as existing."""
        url = self._url("/exists", {"path": path}, autoResume=auto_resume)
        found = await self._context.json(Call("GET", url, Safety.REPEATABLE), models.FileExists.from_json)
        return found.exists

    def watch(
        self, path: FilePath, *, recursive: bool = False, auto_resume: Optional[bool] = None
    ) -> AsyncFileWatch:
        """
        Watches the changes in a directory; with `recursive` in all directories below it, too. The watch begins with the first
        read, with `start`, or with the block of a `with` statement.
        """
        url = self._url("/watch", {"path": path}, recursive=recursive or None, autoResume=auto_resume)
        return AsyncFileWatch(self._context, Call("GET", url, Safety.REPEATABLE, accept="text/event-stream"))

    @other_keywords
    async def mkdir(
        self,
        path: FilePath,
        *,
        recursive: bool = False,
        mode: Optional[int] = None,
        run_id: Optional[str] = None,
        auto_resume: Optional[bool] = None,
    ) -> models.FileEntry:
        """
        Creates a directory; with `recursive` also missing parents, and without an error if it exists. `mode`: the permissions, such
        as `0o700`.
        """
        url = self._url("/mkdir", {"path": path}, recursive=recursive or None, mode=_mode(mode), autoResume=auto_resume)
        call = Call("POST", url, Safety.REPEATABLE if recursive else Safety.AFTER_ANSWER)
        entry = await self._ask("mkdir", path, run_id, call, models.FileEntry.from_json)
        self._record_entry(entry)
        return entry

    @other_keywords
    async def move(
        self,
        source: FilePath,
        target: FilePath,
        *,
        overwrite: bool = False,
        run_id: Optional[str] = None,
        auto_resume: Optional[bool] = None,
    ) -> models.FileEntry:
        """
        Moves a file or directory. `target` is the new path of the entry, not a directory to move it into. `overwrite` replaces what
        exists there.
        """
        paths = {"from": source, "to": target}
        url = self._url("/move", paths, overwrite=overwrite or None, autoResume=auto_resume)
        call = Call("POST", url, Safety.AFTER_ANSWER)
        entry = await self._ask("move", source, run_id, call, models.FileEntry.from_json)
        self._context.record("file.deleted", path=_text(source))
        self._record_entry(entry)
        return entry

    @other_keywords
    async def remove(
        self,
        path: FilePath,
        *,
        recursive: bool = False,
        run_id: Optional[str] = None,
        auto_resume: Optional[bool] = None,
    ) -> int:
        """
        Deletes a path, without following a symbolic link; with `recursive` also a directory that is not empty. Returns the number of
        files, directories and links deleted.
        """
        url = self._url("", {"path": path}, recursive=recursive or None, autoResume=auto_resume)
        call = Call("DELETE", url, Safety.AFTER_ANSWER)
        removed = await self._ask("delete", path, run_id, call, models.FileDeleted.from_json)
        self._context.record("file.deleted", path=removed.path)
        return removed.deleted

    def pack(
        self, path: FilePath, *, run_id: Optional[str] = None, auto_resume: Optional[bool] = None
    ) -> _platform.Opening[AsyncFileStream]:
        """Opens a directory as a tar archive."""
        url = self._url("/tar", {"path": path}, autoResume=auto_resume)
        return _platform.opening(self._opened("pack", url, path, run_id, {}))

    async def unpack(
        self,
        path: FilePath,
        archive: Union[_platform.Content, LocalDirectory],
        *,
        run_id: Optional[str] = None,
        auto_resume: Optional[bool] = None,
    ) -> models.Unpacked:
        """Unpacks a tar archive into a directory, which is created if it does not exist."""
        url = self._url("/tar", {"path": path}, autoResume=auto_resume)
        # Unpacking twice has the same result.
        call = Call("PUT", url, Safety.REPEATABLE, AsyncPayload(archive, "application/x-tar"))
        unpacked = await self._ask("unpack", path, run_id, call, models.Unpacked.from_json)
        self._context.record("file.created", path=unpacked.path, isDirectory=True)
        return unpacked

    async def upload_directory(
        self,
        local: Union[str, "os.PathLike[str]"],
        path: FilePath,
        *,
        run_id: Optional[str] = None,
        auto_resume: Optional[bool] = None,
    ) -> models.Unpacked:
        """
        Uploads the contents of a local directory into a directory, which is created if it does not exist. Symbolic links are kept;
        sockets, FIFOs and devices are omitted. Files may change meanwhile: those that vanish are omitted.
        """
        return await self.unpack(path, LocalDirectory(Path(local)), run_id=run_id, auto_resume=auto_resume)

    async def download(
        self,
        path: FilePath,
        local: Union[str, "os.PathLike[str]"],
        *,
        run_id: Optional[str] = None,
        auto_resume: Optional[bool] = None,
    ) -> Path:
        """
        Downloads a file of any size into a local file, or into a local directory under its name, and returns the local path. The local
        file gets its name when it is complete; an existing one is replaced. For directories see `download_directory`.
        """
        target = Path(local)
        if target.is_dir():
            target = target / PurePosixPath(_text(path)).name
        async with self.open(path, run_id=run_id, auto_resume=auto_resume) as content:
            try:
                await _platform.store(content, target)
            except OSError as cause:
                raise LocalFileError(f"{target} cannot be written: {cause}") from cause
        return target

    async def download_directory(
        self,
        path: FilePath,
        local: Union[str, "os.PathLike[str]"],
        *,
        run_id: Optional[str] = None,
        auto_resume: Optional[bool] = None,
    ) -> models.Unpacked:
        """
        Downloads the contents of a directory into a local one, which is created if necessary. The archive is not trusted: nothing is
        written outside the local directory, also not through symbolic links; devices, FIFOs and sockets are omitted; owners and
        set-user-id bits are ignored. Entries that cannot be created are skipped and reported as an error at the end.
        """
        async with self.pack(path, run_id=run_id, auto_resume=auto_resume) as archive:
            return await _background.unpack(archive, Path(local))

    def _url(self, verb: str, paths: Dict[str, FilePath], **query: QueryValue) -> str:
        pairs = "&".join(f"{name}={_encoded(path)}" for name, path in paths.items())
        return f"{self._context.path('/files' + verb)}?{pairs}{query_string(query).replace('?', '&', 1)}"

    async def _ask(
        self, operation: str, path: FilePath, run_id: Optional[str], call: Call, parse: Callable[[Any], T]
    ) -> T:
        try:
            return await self._context.in_run(call, run_id, parse)
        except SandboxdError as error:
            self._report(operation, path, error)
            raise

    async def _opened(
        self, operation: str, url: str, path: FilePath, run_id: Optional[str], headers: Dict[str, str]
    ) -> AsyncFileStream:
        call = Call("GET", url, Safety.REPEATABLE, headers=headers, accept="*/*")
        try:
            response = await self._context.stream_in_run(call, run_id)
        except SandboxdError as error:
            self._report(operation, path, error)
            raise
        stream = AsyncFileStream(response, lambda error: self._report(operation, path, error))
        if operation == "pack":
            self._context.record("file.read", path=_text(path), isDirectory=True)
        elif stream.length is None:
            self._context.record("file.read", path=_text(path))
        else:
            self._context.record("file.read", path=_text(path), sizeBytes=stream.length)
        return stream

    def _record_entry(self, entry: models.FileEntry) -> None:
        path, size, is_directory = entry.path, entry.size_bytes, entry.is_directory
        self._context.record("file.created", path=path, sizeBytes=size, isDirectory=is_directory)

    def _report(self, operation: str, path: FilePath, error: SandboxdError) -> None:
        code, message = error.code_name, error.message
        self._context.record("file.error", path=_text(path), operation=operation, code=code, message=message)
        self._context.report(error)


def _text(path: FilePath) -> str:
    return path if isinstance(path, str) else path.path


def _encoded(path: FilePath) -> str:
    """The path as a query value. `raw_path` is percent-encoded already."""
    if isinstance(path, str):
        return quote(path, safe="")
    return path.raw_path or quote(path.path, safe="")


def _mode(mode: Optional[int]) -> Optional[str]:
    return None if mode is None else f"{mode:03o}"


def _range(start: Optional[int], end: Optional[int], last: Optional[int]) -> Optional[str]:
    """The header `Range`. HTTP has no empty range; the service reports the error."""
    if last is not None:
        return f"bytes=-{last}"
    if start is None and end is None:
        return None
    return f"bytes={start or 0}-{'' if end is None else end - 1}"
