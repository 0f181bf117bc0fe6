"""Where a stream of events begins: in the blocking client at the call, with asyncio at its start."""

from __future__ import annotations

import gc
import threading

import pytest

from sandboxd import AsyncSandboxd, Sandboxd, SandboxNotFound
from scripted import SANDBOX, Handler, Received, Service, failure


class Following:
    """A service that sends the position and then waits until the client closes the connection."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def __call__(self, _: Received, handler: Handler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(b"id: ev_0000000000000007\n\n")
        handler.wfile.flush()
        handler.connection.settimeout(10)
        if handler.rfile.read(1) == b"":
            self.closed.set()
        handler.close_connection = True


@pytest.mark.parametrize("how", ["close", "collect", "block"])
def test_a_blocking_stream_of_events_connects_at_the_call_and_leaves_no_connection(how: str) -> None:
    following = Following()
    with Service(following) as service, Sandboxd(**service.settings) as client:
        stream = client.sandboxes.connect(SANDBOX).events.follow()
        assert len(service.received) == 1 and stream.last_event_id == "ev_0000000000000007"
        if how == "close":
            stream.close()
        elif how == "block":
            with stream:
                assert len(service.received) == 1
        del stream
        gc.collect()
        assert following.closed.wait(5)


def test_a_stream_with_a_position_connects_at_its_first_read() -> None:
    gone = failure(404, "SANDBOX_NOT_FOUND")
    with Service([gone, gone]) as service, Sandboxd(**service.settings) as client:
        events = client.sandboxes.connect(SANDBOX).events
        stream = events.follow(after="ev_0000000000000001")
        assert service.received == []
        with pytest.raises(SandboxNotFound):
            next(stream)
        with pytest.raises(SandboxNotFound):
            events.follow()


async def test_a_stream_of_asyncio_connects_at_its_start() -> None:
    following = Following()
    with Service(following) as service:
        async with AsyncSandboxd(**service.settings) as client:
            stream = client.sandboxes.connect(SANDBOX).events.follow()
            assert service.received == []
            await stream.start()
            assert len(service.received) == 1
            await stream.close()
