"""The key appears nowhere but in requests: not in `repr`, pickles, tracebacks with local variables, or logs."""

from __future__ import annotations

import copy
import logging
import pickle
import traceback
from pathlib import Path
from typing import Any, AsyncIterator, Awaitable, Callable, Dict, List

import httpx
import pytest

from sandboxd import AsyncSandboxd, ConfigurationError, InvalidArgument, Sandbox, Sandboxd, SandboxdError
from sandboxd._secrets import Secret
from scripted import SANDBOX, VIEW, Responder, Service, answer, failure, hang_up, silence

KEY = "sbk_" + "c0ffee" * 5


def client_of(service: Service, **settings: Any) -> Sandboxd:
    return Sandboxd(**{**service.settings, "api_key": KEY, "timeout": 0.3, "retries": 0, **settings})


def report_of(error: BaseException) -> str:
    """What a program that reports errors sends along, also for the errors that led to this one."""
    return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())


def raised(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except BaseException as error:
        # Without the frame of this test, whose variables are those of the caller.
        return error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
    raise AssertionError("no error")


def objects_of(client: Any) -> List[Any]:
    sandbox = client.sandboxes.connect(SANDBOX)
    execution = sandbox.executions.handle("ex_1")
    parts = [getattr(client, name) for name in ("sandboxes", "images", "snapshots", "templates", "events")]
    parts += [getattr(sandbox, name) for name in ("files", "ports", "events", "network", "executions", "contexts")]
    parts += [sandbox.context, sandbox.context.transport, client.sandboxes.list(), client.templates.logs("tpl_1")]
    parts += [execution, execution.follow(), sandbox.stream("x"), sandbox.files.watch("d")]
    settings = sandbox.context.transport.settings
    return [client, sandbox, *parts, settings, [settings.api_key], vars(sandbox.context.transport), vars(settings)]


def test_no_representation_has_the_key() -> None:
    blocking = objects_of(Sandboxd("http://127.0.0.1:9", KEY))
    for each in [*blocking, *objects_of(AsyncSandboxd("http://127.0.0.1:9", KEY))]:
        for text in (repr(each), str(each), f"{each}"):
            assert KEY not in text, type(each)
    assert repr(Secret(KEY)) == "'***'" and str(Secret(KEY)) == KEY


def test_objects_with_the_key_are_not_pickled() -> None:
    objects = objects_of(Sandboxd("http://127.0.0.1:9", KEY))
    for each in objects:
        with pytest.raises((TypeError, AttributeError, pickle.PicklingError)) as caught:
            pickle.dumps(each)
        assert KEY not in str(caught.value)
    client, sandbox = objects[:2]
    for store in (pickle.dumps, copy.deepcopy):
        for each in (client, sandbox, sandbox.context.transport.settings):
            with pytest.raises(TypeError, match="pass the id of the sandbox"):
                store(each)


def test_errors_are_pickled_without_the_key() -> None:
    with Service(failure(404, "SANDBOX_NOT_FOUND")) as service:
        error = raised(lambda: client_of(service).sandboxes.get(SANDBOX))
    assert KEY.encode() not in pickle.dumps(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def broken_head(_: Any, handler: Any) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nno header\r\n\r\n")
    handler.cut()


CALLS: Dict[str, Callable[[Sandboxd], object]] = {
    "json": lambda client: client.health(),
    "create": lambda client: client.sandboxes.create("i"),
    "stream": lambda client: client.sandboxes.connect(SANDBOX).stream("x").start(),
    "socket": lambda client: client.sandboxes.connect(SANDBOX).executions.handle("ex_1").attach(),
    "upload": lambda client: client.sandboxes.connect(SANDBOX).files.write("f", broken_content()),
}


def broken_content() -> Any:
    yield b"a"
    raise ValueError("mine")


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("respond", [hang_up, silence(1.0), broken_head, failure(401, "UNAUTHORIZED")])
def test_tracebacks_with_local_variables_do_not_have_the_key(name: str, respond: Responder) -> None:
    with Service(respond) as service:
        client = client_of(service)
        error = raised(lambda: CALLS[name](client))
        client.close()
    assert isinstance(error, SandboxdError)
    assert KEY not in report_of(error)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://127.0.0.1:9/\x00", "http://[::1]:1"])
def test_tracebacks_of_failed_connections_do_not_have_the_key(url: str) -> None:
    client = Sandboxd(url, KEY, retries=0)
    assert KEY not in report_of(raised(client.health))


async def async_content() -> AsyncIterator[bytes]:
    yield b"a"
    raise ValueError("mine")


ASYNC_CALLS: List[Callable[[AsyncSandboxd], Awaitable[object]]] = [
    lambda client: client.health(),
    lambda client: client.sandboxes.connect(SANDBOX).execute("x"),
    lambda client: client.sandboxes.connect(SANDBOX).files.write("f", async_content()),
    lambda client: client.sandboxes.connect(SANDBOX).executions.handle("ex_1").attach(),
]


def async_client_of(service: Service) -> AsyncSandboxd:
    return AsyncSandboxd(**{**service.settings, "api_key": KEY, "timeout": 0.3, "retries": 0})


@pytest.mark.parametrize("respond", [hang_up, silence(1.0), broken_head])
async def test_tracebacks_of_asyncio_do_not_have_the_key(respond: Responder) -> None:
    with Service(respond) as service:
        async with async_client_of(service) as client:
            for call in ASYNC_CALLS:
                with pytest.raises(SandboxdError) as caught:
                    await call(client)
                assert KEY not in report_of(caught.value)


def test_an_error_of_the_transport_does_not_have_the_key() -> None:
    def fails(request: httpx.Request) -> httpx.Response:
        headers = request.headers.raw
        raise RuntimeError(f"a bug with {len(headers)} headers")

    client = Sandboxd("http://127.0.0.1:9", KEY, http=httpx.MockTransport(fails))
    error = raised(client.health)
    assert isinstance(error, RuntimeError) and KEY not in report_of(error)


def test_an_interrupted_call_does_not_have_the_key() -> None:
    def interrupted(request: httpx.Request) -> httpx.Response:
        headers = request.headers.raw
        raise KeyboardInterrupt(len(headers))

    client = Sandboxd("http://127.0.0.1:9", KEY, http=httpx.MockTransport(interrupted))
    assert KEY not in report_of(raised(client.health))


def test_the_frames_of_the_content_remain() -> None:
    with Service([]) as service:
        error = raised(lambda: CALLS["upload"](client_of(service)))
    assert "broken_content" in report_of(error) and "httpcore" not in report_of(error)


def test_errors_of_settings_do_not_have_the_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wrong: List[Dict[str, Any]] = [
        {"url": "ftp://a.example"},
        {"url": "https://a.example", "certificate": tmp_path / "missing.pem"},
        {"fingerprint": "ab"},
        {"timeout": "soon"},
    ]
    for settings in wrong:
        error = raised(lambda: Sandboxd(**settings, api_key=KEY))
        assert isinstance(error, (ConfigurationError, InvalidArgument)) and KEY not in report_of(error)
        monkeypatch.setenv("SANDBOXD_API_KEY", KEY)
        if "timeout" not in settings:
            assert KEY not in report_of(raised(lambda: Sandboxd(**settings)))
            monkeypatch.setenv("SANDBOXD_URL", "ftp://a.example")
            assert KEY not in report_of(raised(lambda: Sandbox.create("i")))
            monkeypatch.delenv("SANDBOXD_URL")
        monkeypatch.delenv("SANDBOXD_API_KEY")


def test_logs_do_not_have_the_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with Service([answer(201, VIEW), failure(404, "EXECUTION_NOT_FOUND")]) as service:
        with client_of(service) as client:
            sandbox = client.sandboxes.create("i")
            with pytest.raises(SandboxdError):
                sandbox.executions.handle("ex_1").attach()
    messages = [record.getMessage() for record in caplog.records]
    assert any("Upgrade: websocket" in message for message in messages)
    assert not [message for message in messages if KEY in message]
