"""A scripted HTTP service for tests, which records requests and responds as told, and a proxy that cuts connections."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Dict, List, Mapping, Optional, Union


@dataclass(frozen=True)
class Received:
    """A received request."""

    method: str
    path: str
    headers: Dict[str, str]
    body: bytes


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Server"

    def respond(self) -> None:
        received = Received(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, self._body())
        with self.server.lock:
            self.server.received.append(received)
            responder = self.server.next_responder()
        responder(received, self)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = respond

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def cut(self) -> None:
        """Closes the connection."""
        self.close_connection = True
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def log_message(self, format: str, *args: Any) -> None:
        pass


Responder = Callable[[Received, Handler], None]


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, responders: Union[Responder, List[Responder]]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.received: List[Received] = []
        self.lock = threading.Lock()
        self._responders = responders

    def next_responder(self) -> Responder:
        if callable(self._responders):
            return self._responders
        return self._responders.pop(0) if self._responders else failure(599, "UNEXPECTED")

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(target=self.process_request_thread, args=(request, client_address), daemon=True)
        thread.name = "test-" + thread.name
        thread.start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class Service:
    """A service that responds with the responders, one after the other, or always with the same."""

    def __init__(
        self, responders: Union[Responder, List[Responder]], tls: Optional[ssl.SSLContext] = None
    ) -> None:
        self._server = Server(responders)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._scheme = "http" if tls is None else "https"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="test-server")

    @property
    def received(self) -> List[Received]:
        return self._server.received

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def settings(self) -> Dict[str, Any]:
        """The arguments of a client of this service."""
        return {"url": f"{self._scheme}://127.0.0.1:{self.port}", "api_key": "sbx_test", "timeout": 2.0}

    def __enter__(self) -> "Service":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def answer(status: int, body: Any, headers: Optional[Mapping[str, str]] = None) -> Responder:
    """A JSON response."""

    def respond(_: Received, handler: Handler) -> None:
        handler.send(status, {"content-type": "application/json", **(headers or {})}, json.dumps(body).encode())

    return respond


def failure(
    status: int, code: str, details: Optional[Dict[str, Any]] = None, headers: Optional[Mapping[str, str]] = None
) -> Responder:
    """An error response."""
    error = {"code": code, "message": "why", "details": details or {}, "requestId": "req_1"}
    return answer(status, {"error": error}, headers)


def hang_up(_: Received, handler: Handler) -> None:
    """Closes the connection without a response."""
    handler.cut()


def events(text: str, *, ends: bool = True) -> Responder:
    """An event stream; the connection is cut at its end unless `ends`."""

    def respond(_: Received, handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("x-request-id", "req_s")
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        data = text.encode()
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        if ends:
            handler.wfile.write(b"0\r\n\r\n")
        else:
            handler.wfile.flush()
            handler.cut()

    return respond


def silence(seconds: float) -> Responder:
    """No response for a while, then a hang-up."""

    def respond(received: Received, handler: Handler) -> None:
        time.sleep(seconds)
        handler.cut()

    return respond


class CuttingProxy:
    """A TCP proxy that closes each of its first connections after a number of bytes to the client."""

    def __init__(self, port: int, *, cuts: int, after_bytes: int) -> None:
        self._target = port
        self._cuts = cuts
        self._after_bytes = after_bytes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.cut = 0
        """The number of connections cut so far."""

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> "CuttingProxy":
        threading.Thread(target=self._accept, name="test-proxy", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            upstream = socket.create_connection(("127.0.0.1", self._target))
            for source, target, is_answer in ((client, upstream, False), (upstream, client, True)):
                arguments = (source, target, is_answer)
                threading.Thread(target=self._pump, args=arguments, name="test-pump", daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        left = self._after_bytes
        try:
            while data := source.recv(4096):
                if is_answer and self.cut < self._cuts:
                    target.sendall(data[:left])
                    left -= len(data)
                    if left <= 0:
                        self.cut += 1
                        break
                else:
                    target.sendall(data)
        except OSError:
            pass
        for each in (source, target):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


SANDBOX = "sb_00000000000000000001"
VIEW: Dict[str, Any] = {
    "id": SANDBOX,
    "state": "running",
    "image": "ubuntu:24.04",
    "createdAt": "2026-01-01T00:00:00.000Z",
    "startedAt": "2026-01-01T00:00:00.000Z",
    "pausedAt": None,
    "terminatedAt": None,
    "env": {},
    "metadata": {},
    "idleTimeoutMs": 0,
    "timeoutMs": 1,
    "autoResume": True,
    "isolation": "container",
    "workdir": "/workspace",
    "resources": {"cpu": 2, "memoryMb": 1, "diskMb": 1},
    "network": {"egress": {"default": "allow", "allow": []}, "ingress": {"allowPorts": []}},
}
SNAPSHOT: Dict[str, Any] = {
    "id": "snap_00000000000000000001",
    "sandboxId": SANDBOX,
    "name": "after-setup",
    "image": "ubuntu:24.04",
    "isolation": "container",
    "memory": False,
    "sizeBytes": 4096,
    "state": "ready",
    "createdAt": "2026-01-01T00:00:00.000Z",
    "metadata": {"job": "17"},
}
TEMPLATE: Dict[str, Any] = {
    "id": "tpl_00000000000000000001",
    "name": "web",
    "version": 3,
    "state": "ready",
    "base": "ubuntu:24.04",
    "isolation": "container",
    "steps": {"total": 2, "done": 2, "cached": 1},
    "sizeBytes": 4096,
    "memory": False,
    "startCommand": "serve",
    "metadata": {"job": "17"},
    "createdAt": "2026-01-01T00:00:00.000Z",
    "finishedAt": "2026-01-01T00:00:05.000Z",
}
RESULT: Dict[str, Any] = {"stdout": "hi\n", "stderr": "", "exitCode": 0, "signal": None, "durationMs": 1}
DONE = 'event: done\ndata: {"exitCode":0,"signal":null,"durationMs":5}\nid: end\n\n'
EXECUTION: Dict[str, Any] = {
    "executionId": "ex_00000000000000000001",
    "sandboxId": SANDBOX,
    "state": "running",
    "command": "x",
    "cwd": None,
    "runId": "",
    "timeoutMs": None,
    "stdinOpen": False,
    "startedAt": "2026-01-01T00:00:00.000Z",
    "endedAt": None,
    "exitCode": None,
    "signal": None,
    "durationMs": None,
    "outputStart": "0.0",
    "outputEnd": "0.0",
}
