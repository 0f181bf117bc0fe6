"""The watch of a directory."""

from __future__ import annotations

import threading
from typing import Any, List

import pytest

from sandboxd import (
    AsyncSandbox,
    AsyncSandboxd,
    FileChange,
    FileNotFound,
    NetworkError,
    SandboxdError,
    UnknownError,
    WatchOverflow,
)
from scripted import SANDBOX, Handler, Received, Service, answer, events, failure

READY = "event: ready\ndata: {}\n\n"
CREATED = 'event: change\ndata: {"kind":"create","path":"/d/f"}\n\n'
DONE = "event: done\ndata: {}\n\n"


def sandbox_of(service: Service) -> AsyncSandbox:
    return AsyncSandboxd(**service.settings).sandboxes.connect(SANDBOX)


async def test_a_watch_delivers_changes_until_the_directory_is_deleted() -> None:
    raw = 'event: change\ndata: {"kind":"write","path":"/d/\ufffd","rawPath":"/d/%FF"}\n\n'
    unknown = "event: novelty\ndata: {}\n\n"
    text = f"{READY}{CREATED}: nothing new\n\n{unknown}{raw}event: overflow\ndata: {{}}\n\n{DONE}"
    with Service([events(text), answer(200, {"exists": True, "path": "/d/f"})]) as service:
        sandbox = sandbox_of(service)
        seen = [event async for event in sandbox.files.watch("d e", recursive=True, auto_resume=False)]
        change = FileChange("write", "/d/\ufffd", "/d/%FF")
        assert seen == [FileChange("create", "/d/f"), change, WatchOverflow()]
        assert service.received[0].path.endswith("/files/watch?path=d%20e&recursive=true&autoResume=false")
        assert service.received[0].headers["accept"] == "text/event-stream"
        assert await sandbox.files.exists(change)
        assert service.received[1].path.endswith("?path=/d/%FF")


async def test_a_watch_that_is_dropped_or_closed_closes_its_connection() -> None:
    for how in ("drop", "close", "block"):
        closed = threading.Event()

        def respond(_: Received, handler: Handler) -> None:
            handler.send_response(200)
            handler.end_headers()
            handler.wfile.write((READY + CREATED).encode())
            handler.wfile.flush()
            handler.connection.settimeout(10)
            if handler.rfile.read(1) == b"":
                closed.set()
            handler.close_connection = True

        with Service(respond) as service:
            watch = sandbox_of(service).files.watch("d")
            if how == "block":
                async with watch:
                    assert await watch.__anext__() == FileChange("create", "/d/f")
            else:
                async for event in watch:
                    assert event == FileChange("create", "/d/f")
                    break
            if how == "close":
                await watch.close()
            if how != "drop":
                assert [event async for event in watch] == []
            del watch
            for _ in range(200):
                if closed.is_set():
                    break
                await pause()
            assert closed.is_set(), how


async def pause() -> None:
    from sandboxd._async._platform import sleep

    await sleep(0.02)


ERROR = 'event: error\ndata: {"code":"INTERNAL_ERROR","message":"m","details":{}}\n\n'


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (READY + CREATED, "NETWORK_ERROR"),
        (READY + CREATED + ERROR, "INTERNAL_ERROR"),
        (READY + CREATED + "event: error\ndata: ?\n\n", "UNKNOWN"),
        (READY + CREATED + "event: change\ndata: {}\n\n", "UNKNOWN"),
        (READY + CREATED + "event: change\ndata: [\n\n", "UNKNOWN"),
    ],
)
async def test_a_watch_that_fails_is_an_error_and_does_not_begin_again(text: str, code: str) -> None:
    failures: List[Any] = []
    with Service([events(text, ends=code != "NETWORK_ERROR")]) as service:
        sandbox = sandbox_of(service)
        sandbox.on("failed", failures.append)
        watch = sandbox.files.watch("d")
        assert await watch.__anext__() == FileChange("create", "/d/f")
        with pytest.raises(SandboxdError) as caught:
            await watch.__anext__()
        assert caught.value.code == code and len(failures) == 1
        assert [event async for event in watch] == []
        assert len(service.received) == 1


async def test_a_watch_that_does_not_begin_is_an_error() -> None:
    missing = failure(404, "FILE_NOT_FOUND")
    for responder, kind in ((missing, FileNotFound), (events(""), NetworkError), (events(DONE), UnknownError)):
        with Service([responder]) as service:
            watch = sandbox_of(service).files.watch("d")
            with pytest.raises(kind):
                await watch.start()
            assert [event async for event in watch] == []
