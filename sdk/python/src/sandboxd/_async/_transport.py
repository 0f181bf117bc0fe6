"""Sends calls over HTTP, with retries where they are safe. Modules describe a request as a `Call`."""

from __future__ import annotations

import json
import logging
import random
import ssl
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, AsyncIterator, Callable, Dict, FrozenSet, List, Mapping, Optional, Protocol, TypeVar, cast

import httpx
from websockets.exceptions import WebSocketException

from .._errors import (
    ConfigurationError,
    InvalidState,
    LocalFileError,
    NetworkError,
    SandboxdError,
    UnknownError,
    of_response,
)
from .._limit_queue import LimitQueues
from .._open_connections import OpenConnections
from .._retry import LIMITS, RATE_LIMITED, Answered, Failed, Fault, Safety, had_no_effect, limit_wait, may_repeat, wait
from .._secrets import HasKey, Secret, without_frames
from .._settings import Settings
from .._timeouts import Timeouts
from .._version import VERSION
from ._background import AsyncCleanups
from ._payload import AsyncPayload
from ._platform import CANCELLED, TIMEOUTS, Abandoning, AsyncSocket, InvalidStatus, interrupt, sleep
from ._port_transport import AsyncPortTransport, NewToken

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
KEEP_IDLE = 60.0
"""Shorter than the idle timeout of the service."""
LONGEST_ANSWER = 256 << 20
"""Two output streams of 16 MiB with every byte escaped, plus a margin."""
AGENT = f"sandboxd-python/{VERSION}"
SLACK = 2.0
"""Seconds by which a call may exceed its time for limits, because calls wait for each other and at random."""
CLEANUP_WAIT = 300.0
"""Seconds for which a clean-up waits for rate limits, whatever the client waits for: otherwise sandboxes would be left."""
_LOG = logging.getLogger("sandboxd")
_OPENED = frozenset(("connection.connect_tcp.complete", "connection.start_tls.complete"))
"""The events of httpcore whose value is a new connection."""
_REFUSED = (
    "no service answers there: check that it runs, which 'sandboxd serve' starts, and that the URL is right; "
    "one that has just been started may prepare its images first"
)
_ADVICE = (
    "this client does not trust the certificate: trust the service's certificate file (SANDBOXD_CERTIFICATE or the argument "
    "certificate) or pin its fingerprint (the argument fingerprint)"
)


@dataclass
class Progress:
    """What the attempts of a call may have caused so far."""

    may_have_effect: bool = False


@dataclass(frozen=True)
class Call:
    """A request, for all attempts."""

    method: str
    path: str
    """Path and query."""
    safety: Safety
    payload: Optional[AsyncPayload] = None
    headers: Dict[str, str] = field(default_factory=lambda: {})
    accept: str = "application/json"
    timeout: Optional[float] = None
    """Seconds for an attempt, instead of those of the client."""
    waits_for: FrozenSet[str] = LIMITS
    """The codes of limits whose end the call waits for. Others are errors at once."""
    max_wait: Optional[float] = None
    """Seconds for which the call waits for limits, instead of those of the client."""
    on_wait: Optional[Callable[[float], None]] = None
    """Gets the seconds of each wait for a limit."""
    progress: Progress = field(default_factory=Progress)
    ends_work: bool = False
    """Whether it ends work that was begun earlier. Such calls are made by closed clients, too."""

    @property
    def kind(self) -> str:
        """Which calls wait in one queue: those of a method and a path, because the service counts them against the same limits."""
        return f"{self.method} {self.path.partition('?')[0]}"


class Attempt(Protocol[T_co]):
    """An attempt of a call."""

    async def __call__(self) -> T_co:
        """Makes the attempt."""
        ...


class _AttemptFailed(Exception):
    """The fault for the retry rules, and the error for the caller."""

    def __init__(self, fault: Fault, error: SandboxdError) -> None:
        super().__init__(error)
        self.fault = fault
        self.error = error


class _Attempts:
    """The attempts of a call so far."""

    def __init__(self, number: int, left: float) -> None:
        self.number = number
        """Its place among the calls that wait."""
        self.left = left
        """The seconds for which it may wait for limits."""
        self.waited = 0.0
        """The seconds for which it has waited for limits."""
        self.total = 0
        self.failures = 0
        """Those attempts that failed otherwise than by a limit that ends at a known time."""
        self.error: Optional[SandboxdError] = None
        """The last error."""

    def add(self, error: SandboxdError) -> None:
        """Counts an attempt that failed."""
        error.repeats = self.total
        self.total += 1
        if error.code not in LIMITS or error.retry_after is None:
            self.failures += 1
        self.error = error


class AsyncResponse:
    """A response whose body is read by chunks. Must be closed; the service then stops what it does for the request."""

    def __init__(self, response: httpx.Response, timeouts: Timeouts) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self.content = b""
        """The whole body, if it was read by the transport."""
        self.is_closed = False
        self._response = response
        self._timeouts = timeouts
        self._chunks: AsyncIterator[bytes] = cast(httpx.AsyncByteStream, response.stream).__aiter__()
        self._abandoning = Abandoning()

    @property
    def request_id(self) -> Optional[str]:
        """The id under which the service logged the request."""
        request_id: Optional[str] = self.headers.get("x-request-id")
        return request_id

    async def read(self, silence: float) -> Optional[bytes]:
        """The next bytes; None at the end. Fails if none arrive for `silence` seconds."""
        self._timeouts.allow_silence(silence)
        try:
            return await self._chunks.__anext__()
        except StopAsyncIteration:
            return None
        except httpx.TimeoutException as cause:
            without_frames(cause)
            raise NetworkError(f"no data for {silence:g} s, not even a comment") from cause
        except (httpx.TransportError, OSError) as cause:
            without_frames(cause)
            raise NetworkError(f"the stream was interrupted: {cause}") from cause

    async def read_whole(self) -> None:
        """Reads the body into `content`."""
        chunks: List[bytes] = []
        size = 0
        async for chunk in self._chunks:
            size += len(chunk)
            if size > LONGEST_ANSWER:
                raise httpx.ReadError(f"the response is longer than {LONGEST_ANSWER} bytes")
            if self._timeouts.is_over:
                raise httpx.ReadTimeout("the response took too long")
            chunks.append(chunk)
        self.content = b"".join(chunks)
        await self.close()

    async def close(self) -> None:
        """Closes the connection, or returns it to the pool if the body was read."""
        if self.is_closed:
            return
        self.is_closed = True
        try:
            await cast(httpx.AsyncByteStream, self._response.stream).aclose()
        except (httpx.TransportError, OSError):
            # The connection is lost, so there is nothing to close.
            pass

    async def interrupt(self) -> None:
        """Closes the connection, also while another thread or task reads."""
        interrupt(self._response.extensions.get("network_stream"))
        await self.close()

    def __del__(self) -> None:
        if not self.is_closed:
            self._abandoning.close(self._response)


class AsyncTransport(HasKey):
    """The connections of a client."""

    def __init__(self, settings: Settings, http: Optional[httpx.AsyncBaseTransport] = None) -> None:
        self.settings = settings
        self.cleanups = AsyncCleanups()
        """The clean-ups after cancelled calls."""
        self._is_closed = False
        self._queues = LimitQueues()
        self._connections = OpenConnections()
        # Proxies and certificates of environment variables are not used: the key goes to the configured service only. The number
        # of connections is unlimited, because a stream occupies one.
        self._http = http or httpx.AsyncHTTPTransport(
            verify=settings.tls or False,
            trust_env=False,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=KEEP_IDLE),
        )
        self._headers = {
            "user-agent": AGENT,
            "authorization": Secret(f"Bearer {settings.api_key}"),
            "accept-encoding": "identity",
        }

    async def close(self) -> None:
        """Closes the connections, after the clean-ups. Ends the calls of other threads, whose clean-ups use new connections."""
        self._is_closed = True
        await self.cleanups.finish()
        for stream in self._connections.all():
            interrupt(stream)
        await self._http.aclose()

    async def json(self, call: Call, parse: Callable[[Any], T]) -> T:
        """Sends a call and parses the response as JSON."""
        response = await self._repeated(call, partial(self._counted, call))
        try:
            return parse(json.loads(response.content))
        except (ValueError, KeyError, TypeError, AttributeError) as cause:
            message = f"the response cannot be parsed: {cause}"
            raise UnknownError(message, status=response.status, request_id=response.request_id) from cause

    async def stream(self, call: Call) -> AsyncResponse:
        """Sends a call and returns the response with a streamed body, which has no timeout here."""
        return await self._repeated(call, partial(self._attempt, call, is_whole=False))

    async def open_socket(self, path: str) -> AsyncSocket:
        """Opens a websocket. Waits for limits, but is not repeated after other errors."""
        call = Call("GET", path, Safety.ONLY_UNSTARTED)
        return await self._repeated(call, partial(self._socket, path))

    def for_port(self, port_url: str, new_token: Optional[NewToken]) -> AsyncPortTransport:
        """Sends the requests of an HTTP client for a port through the same connections."""
        return AsyncPortTransport(self._http, self, self.settings.service_url, port_url, new_token)

    def for_cleanup(self, call: Call) -> Call:
        """The call as a part of a clean-up. It waits for rate limits, but not for capacity."""
        on_wait = self.cleanups.postpone
        return replace(call, waits_for=frozenset((RATE_LIMITED,)), max_wait=CLEANUP_WAIT, on_wait=on_wait, ends_work=True)

    async def _repeated(self, call: Call, attempt: Attempt[T]) -> T:
        """Makes attempts until one succeeds or the call gives up."""
        self._check_usable(call)
        max_wait = self.settings.policy.max_retry_wait if call.max_wait is None else call.max_wait
        made = _Attempts(self._queues.number(), max_wait)
        if RATE_LIMITED in call.waits_for:
            self._queues.join(call.kind, made.number)
        try:
            while True:
                await self._wait_in_queue(call, made)
                # Another thread may have closed the client during the wait.
                self._check_usable(call)
                effect = call.progress.may_have_effect
                call.progress.may_have_effect = True
                try:
                    return await attempt()
                except _AttemptFailed as failed:
                    fault, error = failed.fault, failed.error
                if had_no_effect(fault):
                    call.progress.may_have_effect = effect
                self._check_usable(call)
                made.add(error)
                await self._wait_after(call, made, error, self._pause(call, made, fault, error))
        finally:
            self._queues.end(call.kind, made.number)

    def _check_usable(self, call: Call) -> None:
        if not call.ends_work:
            self.check_open()

    def check_open(self) -> None:
        """Fails if the client is closed."""
        if self._is_closed:
            raise InvalidState("the client is closed; make a new one", details={"reason": "closed"})

    def _pause(self, call: Call, made: _Attempts, fault: Fault, error: SandboxdError) -> float:
        """The delay before the next attempt. Raises the error if there is none."""
        can_be_sent = call.payload is None or call.payload.can_be_sent
        is_awaited = error.code not in LIMITS or error.code in call.waits_for
        pause: Optional[float] = None
        if may_repeat(call.safety, fault) and can_be_sent and is_awaited:
            if error.code in LIMITS and error.retry_after is not None:
                pause = limit_wait(made.left, made.total, error.retry_after, random.random())
            else:
                pause = wait(self.settings.policy, made.failures, error.retry_after, random.random())
        if pause is None:
            raise error
        return pause

    async def _wait_after(self, call: Call, made: _Attempts, error: SandboxdError, pause: float) -> None:
        """Waits before the next attempt, or queues the call for it."""
        if error.code not in LIMITS or error.retry_after is None:
            await sleep(pause)
            return
        notice = self._queues.notice(made.number, error, pause, time.monotonic(), waited=made.waited)
        if notice is not None:
            _LOG.warning("%s", notice)
        if error.code == RATE_LIMITED:
            self._queues.requeue(call.kind, made.number, error, time.monotonic() + pause)
        else:
            await self._wait(call, made, pause)

    async def _wait_in_queue(self, call: Call, made: _Attempts) -> None:
        """
        Waits until the calls before this one are sent. A call that cannot wait so long fails with the error of its last attempt;
        without one it is sent at once, so that the service explains the limit.
        """
        while (delay := self._queues.delay(call.kind, made.number, time.monotonic())) > 0:
            if delay > made.left + SLACK:
                if made.error is not None:
                    raise made.error
                self._queues.leave(call.kind, made.number)
                return
            await self._wait(call, made, delay)

    async def _wait(self, call: Call, made: _Attempts, pause: float) -> None:
        """Waits for the end of a limit."""
        if call.on_wait is not None:
            call.on_wait(pause)
        made.left -= pause
        made.waited += pause
        await sleep(pause)

    async def _counted(self, call: Call) -> AsyncResponse:
        """An attempt whose end may end a limit of calls at a time."""
        self._queues.begin(call.kind)
        is_refused = False
        try:
            return await self._attempt(call, is_whole=True)
        except _AttemptFailed as failed:
            is_refused = isinstance(failed.fault, Answered) and failed.fault.code in LIMITS
            raise
        finally:
            self._queues.returned(call.kind, is_refused=is_refused)

    async def _attempt(self, call: Call, *, is_whole: bool) -> AsyncResponse:
        limit = self.settings.timeout if call.timeout is None else call.timeout
        payload = call.payload
        timeouts = Timeouts(limit, is_streamed=payload is not None and payload.is_streamed)
        response: Optional[AsyncResponse] = None
        try:
            request = self._request(call, timeouts)
            response = AsyncResponse(await self._http.handle_async_request(request), timeouts)
            is_success = 200 <= response.status < 300
            if is_whole or not is_success:
                await response.read_whole()
        except BaseException as cause:
            without_frames(cause)
            if response is not None:
                await response.close()
            if not isinstance(cause, Exception):
                raise cause
            raise self._failure(cause, payload, limit) from cause
        self._report_ignored_fields(call, response)
        if is_success:
            return response
        self._check_scheme(call, response)
        error = of_response(response.status, response.content, response.headers)
        if error.details.get("commandStarted") is True:
            raise _AttemptFailed(Failed.KILLED, error)
        raise _AttemptFailed(Answered(response.status, error.code), error)

    def _check_scheme(self, call: Call, response: AsyncResponse) -> None:
        """Names the URL with https, if the service redirects to it."""
        service_url = self.settings.service_url
        location = str(response.headers.get("location", ""))
        if service_url.is_tls or not location.startswith("https://"):
            return
        base = location[: -len(call.path)] if location.endswith(call.path) else location
        details = {"reason": "https", "location": base}
        text = f"{service_url.url('')} is plain HTTP, and the service answers only over HTTPS: use {base!r}"
        error = ConfigurationError(text, status=response.status, details=details)
        raise _AttemptFailed(Answered(response.status, error.code), error)

    async def _socket(self, path: str) -> AsyncSocket:
        """Opens a websocket once."""
        settings = self.settings
        url = settings.service_url.url(path)
        headers = {"authorization": self._headers["authorization"]}
        try:
            address = url.replace("http", "ws", 1)
            return await AsyncSocket.open(address, headers, settings.tls, AGENT, settings.timeout)
        except InvalidStatus as refused:
            without_frames(refused)
            response = refused.response
            lower = {name.lower(): value for name, value in response.headers.raw_items()}
            error = of_response(response.status_code, bytes(response.body or b""), lower)
            raise _AttemptFailed(Answered(response.status_code, error.code), error) from None
        except TIMEOUTS as cause:
            without_frames(cause)
            raise NetworkError(f"the websocket was not opened within {settings.timeout:g} s") from cause
        except (OSError, WebSocketException) as cause:
            without_frames(cause)
            raise _network_error(f"cannot open a websocket at {settings.service_url.url('')}", cause) from cause

    def _report_ignored_fields(self, call: Call, response: AsyncResponse) -> None:
        ignored = response.headers.get("sandboxd-ignored-fields")
        if ignored:
            _LOG.warning("the service ignored unknown fields of %s: %s", call.kind, ignored)

    def _request(self, call: Call, timeouts: Timeouts) -> httpx.Request:
        headers = {**self._headers, "accept": call.accept, **call.headers}
        content = None
        if call.payload is not None:
            headers["content-type"] = call.payload.content_type
            content = call.payload.body()
        url = self.settings.service_url.url(call.path)
        extensions = {"timeout": timeouts, **self.extensions()}
        return httpx.Request(call.method, url, headers=headers, content=content, extensions=extensions)

    def extensions(self) -> Dict[str, Any]:
        """Those of each request, by which the client knows its connections."""
        return {"trace": self._trace}

    async def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Keeps the connections that httpcore opens."""
        if event in _OPENED:
            self._connections.add(info["return_value"])

    def _failure(self, cause: Exception, payload: Optional[AsyncPayload], limit: float) -> _AttemptFailed:
        if payload is not None and payload.error is not None:
            error: SandboxdError = LocalFileError(f"the content cannot be read: {payload.error}")
            error.__cause__ = payload.error.with_traceback(payload.traceback)
            return _AttemptFailed(Failed.NO_CONTENT, error)
        if isinstance(cause, httpx.TimeoutException):
            error, fault = NetworkError(f"no response within {limit * 1000:.0f} ms"), Failed.LOST
        elif isinstance(cause, (httpx.TransportError, OSError)):
            url = self.settings.service_url.url("")
            error = _network_error(f"no response from {url}", cause)
            fault = Failed.NOT_SENT if isinstance(cause, httpx.ConnectError) else Failed.LOST
        elif isinstance(cause, httpx.InvalidURL):
            error, fault = ConfigurationError(f"the URL is invalid: {cause}"), Failed.NO_CONTENT
        else:
            raise cause
        error.__cause__ = cause
        return _AttemptFailed(fault, error)


def is_cut_off(error: BaseException) -> bool:
    """Whether a call ended without its result because it was cancelled, or because its client was closed meanwhile."""
    is_closed = isinstance(error, InvalidState) and error.details.get("reason") == "closed"
    return is_closed or isinstance(error, CANCELLED)


def _network_error(message: str, cause: BaseException) -> NetworkError:
    """An error with its innermost cause: the causes around it add nothing that a user can act on."""
    innermost = cause
    while (below := innermost.__cause__ or innermost.__context__ or _first_of_group(innermost)) is not None:
        innermost = below
    text = f"{message}: {innermost or type(innermost).__name__}"
    if isinstance(innermost, ssl.SSLCertVerificationError):
        return NetworkError(f"{text}; {_ADVICE}", details={"reason": "certificate"})
    if isinstance(innermost, ConnectionRefusedError):
        return NetworkError(f"{text}; {_REFUSED}", details={"reason": "refused"})
    return NetworkError(text)


def _first_of_group(error: BaseException) -> Optional[BaseException]:
    """The first error of a group, such as those of the addresses of a host."""
    errors = getattr(error, "exceptions", ())
    return errors[0] if errors else None
