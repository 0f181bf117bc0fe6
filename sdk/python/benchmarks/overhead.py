"""
Measures what the SDK adds to a call of bare httpx. Both send `GET /v1/health` to the same service, alternately, so that the load of
the machine affects both. Prints the medians. With `--limit MS` it fails if the difference is larger.

The settings come from the environment, as those of the SDK. Without SANDBOXD_URL it starts a minimal service of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Tuple

import httpx

from sandboxd import AsyncSandboxd, Sandboxd
from sandboxd._settings import Settings, resolve

WARM_UP = 50


class Samples:
    """The durations of both, in milliseconds."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.bare: List[float] = []
        self.sdk: List[float] = []

    def document(self) -> Dict[str, List[float]]:
        """All durations, without those of the warm-up."""
        return {"sandboxd": self.sdk[WARM_UP:], "httpx": self.bare[WARM_UP:]}

    def overhead(self) -> float:
        """Prints the medians and returns their difference."""
        bare, sdk = statistics.median(self.bare[WARM_UP:]), statistics.median(self.sdk[WARM_UP:])
        print(f"{self.name}: httpx {bare:.3f} ms, sandboxd {sdk:.3f} ms, overhead {sdk - bare:+.3f} ms")
        return sdk - bare


def blocking(settings: Settings, count: int) -> Samples:
    """Measures the blocking flavour."""
    samples = Samples("blocking")
    with httpx.Client(**arguments(settings)) as bare, Sandboxd() as client:
        for _ in range(count):
            begin = time.perf_counter()
            bare.get(settings.service_url.url("/v1/health")).raise_for_status().json()
            between = time.perf_counter()
            client.health()
            samples.bare.append((between - begin) * 1000)
            samples.sdk.append((time.perf_counter() - between) * 1000)
    return samples


async def with_asyncio(settings: Settings, count: int) -> Samples:
    """Measures the asyncio flavour."""
    samples = Samples("asyncio")
    async with httpx.AsyncClient(**arguments(settings)) as bare, AsyncSandboxd() as client:
        for _ in range(count):
            begin = time.perf_counter()
            (await bare.get(settings.service_url.url("/v1/health"))).raise_for_status().json()
            between = time.perf_counter()
            await client.health()
            samples.bare.append((between - begin) * 1000)
            samples.sdk.append((time.perf_counter() - between) * 1000)
    return samples


def arguments(settings: Settings) -> Dict[str, Any]:
    """The arguments of a bare client."""
    headers = {"authorization": f"Bearer {settings.api_key}"}
    return {"verify": settings.tls or False, "trust_env": False, "headers": headers, "timeout": 30.0}


def serve() -> Tuple[str, Callable[[], None]]:
    """A service that responds to any request with its health."""
    body = json.dumps({"status": "ok", "version": "v1", "timestamp": "2026-01-01T00:00:00.000Z"}).encode()
    response = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    listener = socket.create_server(("127.0.0.1", 0))

    def respond(connection: socket.socket) -> None:
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while connection.recv(65536):
                connection.sendall(response)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=respond, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}", listener.close


def main() -> int:
    """Measures both flavours."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="number of calls (default: 1000)")
    parser.add_argument("--json", action="store_true", help="print all durations, for ./dev bench sdk")
    parser.add_argument("--limit", type=float, help="largest overhead in milliseconds")
    options = parser.parse_args()
    close: Callable[[], None] = lambda: None
    if not os.environ.get("SANDBOXD_URL"):
        os.environ["SANDBOXD_URL"], close = serve()
        os.environ["SANDBOXD_API_KEY"] = "sbx_test"
    settings = resolve()
    count = WARM_UP + options.count
    both = [blocking(settings, count), asyncio.run(with_asyncio(settings, count))]
    close()
    if options.json:
        print(json.dumps({"sdk-python": both[0].document(), "sdk-python-asyncio": both[1].document()}))
        return 0
    largest = max([samples.overhead() for samples in both])
    return 1 if options.limit is not None and largest > options.limit else 0


if __name__ == "__main__":
    sys.exit(main())
