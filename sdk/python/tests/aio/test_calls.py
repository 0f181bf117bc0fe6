"""Calls: their requests, retries, timeouts and errors."""

from __future__ import annotations

import hashlib
import io
import json
import os
import ssl
import subprocess
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, AsyncIterator, Dict, Iterator, List, Tuple
from urllib.parse import parse_qs, urlsplit

import pytest

from sandboxd import (
    AsyncSandbox,
    AsyncSandboxd,
    CommandFailed,
    ConfigurationError,
    ExecutionNotFound,
    InternalError,
    LocalFileError,
    NetworkError,
    ResourceExhausted,
    SandboxdError,
    SandboxNotFound,
    UnknownError,
)
from sandboxd import _version
from scripted import (
    RESULT,
    SANDBOX,
    VIEW,
    CuttingProxy,
    Handler,
    Received,
    Responder,
    Service,
    answer,
    failure,
    hang_up,
    silence,
)


def sandbox_of(service: Service, **settings: Any) -> AsyncSandbox:
    return AsyncSandboxd(**{**service.settings, **settings}).sandboxes.connect(SANDBOX)


async def test_requests_carry_the_key_and_the_agent() -> None:
    with Service([answer(201, VIEW)]) as service:
        client = AsyncSandboxd(**service.settings)
        await client.sandboxes.create("ubuntu:24.04", env={"A": "ü"}, timeout=1.5, cpu=2)
        headers = service.received[0].headers
        assert headers["authorization"] == "Bearer sbx_test"
        assert headers["user-agent"] == f"sandboxd-python/{_version.VERSION}"
        assert headers["content-type"] == "application/json" and len(headers["idempotency-key"]) == 24
        expected = {"image": "ubuntu:24.04", "env": {"A": "ü"}, "timeoutMs": 1500, "resources": {"cpu": 2}}
        assert json.loads(service.received[0].body) == expected
        await client.close()


async def test_the_timeout_is_changed_and_samples_are_listed() -> None:
    sample = {
        "timestamp": "2026-01-01T00:00:05.000Z",
        "cpuCount": 2,
        "cpuUsedPercent": 12.5,
        "memoryUsedBytes": 1,
        "memoryCacheBytes": 2,
        "memoryTotalBytes": 3,
        "diskUsedBytes": 4,
        "diskTotalBytes": 5,
    }
    changed = {**VIEW, "timeoutMs": 90_000, "expiresAt": "2026-01-01T00:01:30.000Z", "onTimeout": "pause"}
    with Service([answer(200, changed), answer(200, {"data": [sample]})]) as service:
        sandbox = sandbox_of(service)
        view = await sandbox.set_timeout(timedelta(seconds=90))
        assert view == sandbox.view and (view.timeout_ms, view.on_timeout) == (90_000, "pause")
        assert view.expires_at == "2026-01-01T00:01:30.000Z"
        (found,) = await sandbox.metrics(start=datetime(2026, 1, 1, tzinfo=timezone.utc), end="2026-01-02T00:00:00Z")
        assert (found.cpu_used_percent, found.disk_total_bytes) == (12.5, 5)
        change, listing = service.received
        assert (change.method, json.loads(change.body)) == ("PUT", {"timeoutMs": 90_000})
        assert change.path == f"/v1/sandboxes/{SANDBOX}/timeout"
        assert listing.path.endswith("/metrics?start=2026-01-01T00%3A00%3A00.000Z&end=2026-01-02T00%3A00%3A00Z")


async def test_a_retry_sends_the_same_idempotency_key_and_errors_count_the_retries() -> None:
    with Service([hang_up, failure(500, "INTERNAL_ERROR"), failure(500, "INTERNAL_ERROR")]) as service:
        with pytest.raises(InternalError) as caught:
            await AsyncSandboxd(**service.settings).sandboxes.create("i")
        assert caught.value.repeats == 2 and caught.value.request_id == "req_1"
        assert len({each.headers["idempotency-key"] for each in service.received}) == 1


async def test_commands_with_a_key_are_retried_and_those_without_are_not() -> None:
    with Service([hang_up, answer(200, RESULT)]) as service:
        result = await sandbox_of(service).execute("x", killed_on_cancel=False)
        assert result.stdout == "hi\n" and len(service.received) == 2
        assert "idempotency-key" in service.received[1].headers
    with Service([hang_up]) as service:
        with pytest.raises(NetworkError):
            await sandbox_of(service).execute("x", killed_on_cancel=True)
        assert len(service.received) == 1 and "idempotency-key" not in service.received[0].headers
    with Service([hang_up, answer(200, RESULT)]) as service:
        await sandbox_of(service).execute("x", idempotency_key="k")
        assert [each.headers["idempotency-key"] for each in service.received] == ["k", "k"]


async def test_retry_after_is_respected_and_wait_false_is_impatient() -> None:
    busy = failure(503, "RESOURCE_EXHAUSTED", headers={"retry-after": "1"})
    with Service([busy, answer(201, VIEW)]) as service:
        begin = time.monotonic()
        await AsyncSandboxd(**service.settings).sandboxes.create("i")
        assert time.monotonic() - begin >= 1
    with Service([busy]) as service:
        with pytest.raises(ResourceExhausted) as caught:
            await AsyncSandboxd(**service.settings).sandboxes.create("i", wait=False)
        assert caught.value.retry_after == 1 and len(service.received) == 1


async def test_a_service_that_does_not_respond_is_a_timeout() -> None:
    with Service(silence(1.5)) as service:
        begin = time.monotonic()
        with pytest.raises(NetworkError, match="no response within 200 ms"):
            await AsyncSandboxd(**{**service.settings, "timeout": 0.2, "retries": 0}).health()
        assert time.monotonic() - begin < 1


def slow_body(_: Received, handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    try:
        for _each in range(1000):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.05)
    except OSError:
        handler.close_connection = True


async def test_the_timeout_is_for_the_whole_response() -> None:
    with Service(slow_body) as service:
        begin = time.monotonic()
        with pytest.raises(NetworkError, match="no response within 300 ms"):
            await AsyncSandboxd(**{**service.settings, "timeout": 0.3, "retries": 0}).health()
        assert time.monotonic() - begin < 1


async def test_a_response_that_cannot_be_parsed_has_its_request_id() -> None:
    for body in ([], {"no": "status"}):
        with Service([answer(200, body, {"x-request-id": "req_p"})]) as service:
            with pytest.raises(UnknownError, match="cannot be parsed") as caught:
                await AsyncSandboxd(**service.settings).health()
            assert (caught.value.status, caught.value.request_id) == (200, "req_p")


async def test_a_response_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from sandboxd._async import _transport

    monkeypatch.setattr(_transport, "LONGEST_ANSWER", 100)
    with Service(answer(200, {**RESULT, "stdout": "x" * 100})) as service:
        with pytest.raises(NetworkError, match="longer than 100 bytes"):
            await sandbox_of(service, retries=0).execute("x")


async def test_a_refused_connection_is_retried_and_named() -> None:
    with Service([]) as service:
        settings = service.settings
    named = "no response from http://127.0.0.1.*; no service answers there: check that it runs, .* and that the URL is right; one .* may prepare"
    with pytest.raises(NetworkError, match=named) as caught:
        await AsyncSandboxd(**settings).sandboxes.connect(SANDBOX).execute("x", killed_on_cancel=True)
    assert caught.value.repeats == 2 and caught.value.retryable and caught.value.details == {"reason": "refused"}


async def test_check_makes_a_failed_command_an_error() -> None:
    with Service(answer(200, {**RESULT, "exitCode": 3, "stderr": "why"})) as service:
        sandbox = sandbox_of(service)
        assert (await sandbox.execute("x")).exit_code == 3
        with pytest.raises(CommandFailed, match="exit code 3") as caught:
            await sandbox.execute("x", check=True)
        assert caught.value.result.stderr == "why" and not caught.value.retryable


async def test_ids_and_keys_are_checked_before_they_are_sent() -> None:
    client = AsyncSandboxd(url="http://127.0.0.1:9", api_key="k")
    for wrong in ("", "sb_/../x", "a/b", "..", "-a", "a b", "sb_A", "x" * 64):
        with pytest.raises(SandboxdError) as caught:
            client.sandboxes.connect(wrong)
        assert caught.value.code == "INVALID_ARGUMENT"
    with pytest.raises(ConfigurationError, match="Idempotency-Key"):
        await client.sandboxes.create("i", idempotency_key="a\nb")
    with pytest.raises(ConfigurationError, match="run id"):
        await client.sandboxes.connect(SANDBOX).execute("x", run_id="a b")


async def test_a_name_is_accepted_in_place_of_the_id() -> None:
    view = {**VIEW, "name": "web-1.x"}
    with Service([answer(201, view), answer(200, RESULT), answer(200, view), answer(200, RESULT)]) as service:
        client = AsyncSandboxd(**service.settings)
        created = await client.sandboxes.create("i", name="web-1.x")
        assert created.view is not None and created.view.name == "web-1.x"
        assert json.loads(service.received[0].body)["name"] == "web-1.x"
        sandbox = client.sandboxes.connect("web-1.x")
        assert sandbox.id == "web-1.x"
        await sandbox.execute("x")
        # From here on another holder of the name is another sandbox.
        await sandbox.refresh()
        assert sandbox.id == view["id"]
        await sandbox.execute("x")
        paths = [request.path for request in service.received[1:]]
        assert paths == [
            "/v1/sandboxes/web-1.x/execute",
            "/v1/sandboxes/web-1.x",
            f"/v1/sandboxes/{view['id']}/execute",
        ]


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def broken() -> AsyncIterator[bytes]:
    yield b"a"
    raise ValueError("why not")


ENTRY: Dict[str, Any] = {
    "name": "f",
    "path": "/f",
    "kind": "file",
    "isDirectory": False,
    "sizeBytes": 1,
    "mode": "0644",
    "modifiedAt": "2026-01-01T00:00:00.000Z",
}


async def test_contents_are_text_bytes_files_and_iterators(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"abc")
    with Service(answer(200, ENTRY)) as service:
        files = sandbox_of(service).files
        for content in ("abc", b"abc", bytearray(b"abc"), file, io.BytesIO(b"abc"), [b"a", b"", b"bc"], chunks(b"ab", b"c")):
            await files.write("f", content, mode=0o600, parents=True)
            assert service.received[-1].body == b"abc", content
        assert service.received[-1].path.endswith("?path=f&mode=600&parents=true")


async def test_content_is_sent_again_only_if_it_can_be_read_again(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"abc")
    for content, requests in ((b"abc", 2), (file, 2), (chunks(b"abc"), 1)):
        with Service([hang_up, answer(200, ENTRY)]) as service:
            try:
                await sandbox_of(service).files.write("f", content)
            except NetworkError:
                assert requests == 1
            assert [each.body for each in service.received] == [b"abc"] * requests


async def test_content_that_cannot_be_read_is_an_error_of_this_machine(tmp_path: Path) -> None:
    with Service([]) as service:
        for content in (broken(), tmp_path / "missing"):
            with pytest.raises(LocalFileError):
                await sandbox_of(service).files.write("f", content)


async def slow_chunks() -> AsyncIterator[bytes]:
    from sandboxd._async._platform import sleep

    for _ in range(3):
        await sleep(0.3)
        yield b"x"


async def test_a_slow_source_is_not_a_timeout() -> None:
    with Service([answer(200, ENTRY)]) as service:
        await sandbox_of(service, timeout=0.5).files.write("f", slow_chunks())
        assert service.received[0].body == b"xxx"


async def test_handlers_get_what_the_object_causes_and_observes() -> None:
    paused = {"id": SANDBOX, "state": "paused", "pausedAt": "t", "runtimeDurationMs": 7}
    gone = failure(404, "SANDBOX_NOT_FOUND", {"state": "terminated", "reason": "timeout"})
    seen: List[Tuple[str, Any]] = []
    with Service([answer(201, VIEW), answer(200, paused), gone, gone]) as service:
        on = {"started": lambda event: seen.append(("started", event))}
        sandbox = await AsyncSandboxd(**service.settings).sandboxes.create("i", on=on)
        sandbox.on("paused", lambda event: seen.append(("paused", event)))
        sandbox.on("terminated", lambda event: seen.append(("terminated", event)))
        sandbox.on("failed", lambda event: seen.append(("failed", event)))
        remove = sandbox.on("paused", lambda event: seen.append(("removed", event)))
        remove()
        await sandbox.pause()
        for _ in range(2):
            with pytest.raises(SandboxNotFound):
                await sandbox.execute("x")
        async with sandbox:
            # It is known to be terminated, so the end of the block sends nothing.
            pass
        assert [name for name, _ in seen] == ["started", "paused", "terminated", "failed", "failed"]
        assert seen[1][1].runtime_duration_ms == 7 and seen[2][1].reason == "timeout"
    with pytest.raises(SandboxdError, match="started, paused"):
        sandbox.on("stopped", print)  # type: ignore[call-overload]


async def test_terminating_twice_after_a_lost_response_succeeds() -> None:
    gone = failure(404, "SANDBOX_NOT_FOUND", {"state": "terminated", "reason": "deleted"})
    with Service([hang_up, gone]) as service:
        assert (await sandbox_of(service).terminate()).total_runtime_ms is None


async def test_lists_fetch_their_pages() -> None:
    def item(number: int) -> Dict[str, Any]:
        names = ("state", "image", "createdAt", "startedAt", "pausedAt", "terminatedAt", "resources")
        return {**{name: VIEW[name] for name in names}, "id": f"sb_{number}"}

    def page(numbers: List[int], more: bool) -> Responder:
        pagination = {"limit": 2, "offset": 0, "total": 3, "hasMore": more}
        return answer(200, {"data": [item(number) for number in numbers], "pagination": pagination})

    # Another sandbox was created between the requests, so that one moved to the second page.
    with Service([page([3, 2], True), page([2, 1], False)]) as service:
        listed = AsyncSandboxd(**service.settings).sandboxes.list(state="running", metadata={"a b": "ü"}, page_size=2)
        assert await listed.total() == 3
        assert [each.id for each in await listed.all()] == ["sb_3", "sb_2", "sb_1"]
        query = "state=running&limit=2&offset=2&metadata.a%20b=%C3%BC"
        assert service.received[1].path == f"/v1/sandboxes?{query}"


class Listing:
    """Lists sandboxes by their state, as the service does."""

    def __init__(self, states: Dict[str, str]) -> None:
        self.states = states
        self.queries: List[Dict[str, List[str]]] = []

    def __call__(self, received: Received, handler: Handler) -> None:
        query = parse_qs(urlsplit(received.path).query)
        self.queries.append(query)
        limit, offset = int(query["limit"][0]), int(query["offset"][0])
        found = [name for name, state in self.states.items() if state in query.get("state", [state])]
        shown = ("image", "createdAt", "startedAt", "resources")
        page = [
            {**{field: VIEW[field] for field in shown}, "id": name, "state": self.states[name]}
            for name in found[offset : offset + limit]
        ]
        has_more = offset + len(page) < len(found)
        pagination = {"limit": limit, "offset": offset, "total": len(found), "hasMore": has_more}
        answer(200, {"data": page, "pagination": pagination})(received, handler)
        self.changed()

    def changed(self) -> None:
        """Called after each response."""


STATES = {"sb_1": "terminated", "sb_2": "running", "sb_3": "paused", "sb_4": "running", "sb_5": "terminated", "sb_6": "paused"}


async def test_an_image_is_found_by_another_form_of_its_name() -> None:
    image = {"name": "docker.io/library/alpine:latest", "status": "ready"}
    page = {"data": [image], "pagination": {"total": 1, "limit": 20, "offset": 0, "hasMore": False}}
    empty = {**page, "data": []}
    with Service([answer(200, page), answer(200, empty)]) as service:
        client = AsyncSandboxd(**service.settings)
        found = await client.images.get("alpine")
        assert found is not None and found.name == image["name"]
        assert await client.images.get("other") is None


async def test_a_list_has_the_live_sandboxes_unless_a_state_is_given() -> None:
    listing = Listing(dict(STATES))
    with Service(listing) as service:
        sandboxes = AsyncSandboxd(**service.settings).sandboxes
        assert [each.id for each in await sandboxes.list().all()] == ["sb_2", "sb_4", "sb_3", "sb_6"]
        assert await sandboxes.list().total() == 4
        assert [each.id for each in await sandboxes.list(page_size=1).all()] == ["sb_2", "sb_4", "sb_3", "sb_6"]
        for state, expected in (("terminated", ["sb_1", "sb_5"]), ("paused", ["sb_3", "sb_6"]), ("all", list(STATES))):
            assert [each.id for each in await sandboxes.list(state=state).all()] == expected
        assert "state" not in listing.queries[-1]
        listing.queries.clear()
        await sandboxes.list(image="i", metadata={"a": "b"}, details=True).all()
        filters = [(each["state"], each["image"], each["metadata.a"], each["details"]) for each in listing.queries]
        assert filters == [([state], ["i"], ["b"], ["true"]) for state in ("running", "paused", "running")]


async def test_pages_of_the_live_sandboxes_are_parts_of_one_list() -> None:
    with Service(Listing(dict(STATES))) as service:
        sandboxes = AsyncSandboxd(**service.settings).sandboxes
        for size in (1, 2, 3, 100):
            listed = sandboxes.list(page_size=size)
            found: List[str] = []
            while True:
                page = await listed.page(len(found))
                assert page.pagination.total == 4 and len(page.data) <= size
                found += [each.id for each in page.data]
                if not page.pagination.has_more:
                    break
            assert found == ["sb_2", "sb_4", "sb_3", "sb_6"], size


async def test_a_sandbox_that_changes_its_state_meanwhile_is_listed_once() -> None:
    class Changing(Listing):
        def changed(self) -> None:
            # The first one is paused, and the other resumed, after the running ones were listed.
            self.states = {"sb_1": "paused", "sb_2": "running"}

    with Service(Changing({"sb_1": "running", "sb_2": "paused"})) as service:
        listed = await AsyncSandboxd(**service.settings).sandboxes.list().all()
        assert [each.id for each in listed] == ["sb_1", "sb_2"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.pem"
    options = ["-days", "2", "-subj", "/CN=t", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command.split() + options, cwd=folder, check=True, capture_output=True)
    yield folder


def served(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    return context


async def test_certificates_and_fingerprints_are_checked_before_the_key_is_sent(certificate: Path) -> None:
    health = answer(200, {"status": "ok", "version": "v1", "timestamp": "t"})
    pem = (certificate / "cert.pem").read_text()
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()
    with Service(health, tls=served(certificate)) as service:
        for trusted in ({"certificate": pem}, {"certificate": certificate / "cert.pem"}, {"fingerprint": "sha256:" + digest}):
            client = AsyncSandboxd(**service.settings, **trusted)
            assert (await client.health()).status == "ok"
            await client.close()
        count = len(service.received)
        for untrusted in ({"fingerprint": "00" * 32}, {"system_certificates": True}):
            client = AsyncSandboxd(**service.settings, **untrusted, retries=0)
            with pytest.raises(NetworkError, match="does not trust the certificate") as caught:
                await client.health()
            assert caught.value.details == {"reason": "certificate"}
            with pytest.raises(NetworkError) as refused:
                await client.sandboxes.connect(SANDBOX).executions.handle("ex_1").attach()
            assert refused.value.details == {"reason": "certificate"}
            await client.close()
        assert len(service.received) == count


async def test_a_websocket_that_is_refused_or_not_opened_is_an_error() -> None:
    with Service([failure(404, "EXECUTION_NOT_FOUND"), silence(1.0), hang_up]) as service:
        execution = sandbox_of(service, timeout=0.3).executions.handle("ex_1")
        with pytest.raises(ExecutionNotFound) as caught:
            await execution.attach()
        assert (caught.value.status, caught.value.request_id) == (404, "req_1")
        with pytest.raises(NetworkError, match="not opened within 0.3 s"):
            await execution.attach()
        with pytest.raises(NetworkError, match="cannot open a websocket"):
            await execution.attach()
        assert service.received[0].headers["authorization"] == "Bearer sbx_test"


async def test_a_redirect_is_not_followed() -> None:
    with Service([answer(302, {}, {"location": "http://127.0.0.1:9/"})]) as service:
        with pytest.raises(UnknownError) as caught:
            await AsyncSandboxd(**service.settings).health()
        assert caught.value.status == 302


async def test_variables_of_proxies_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with Service(answer(200, {"status": "ok", "version": "v1", "timestamp": "t"})) as service:
        assert (await AsyncSandboxd(**service.settings).health()).status == "ok"


async def test_connections_that_break_within_responses_are_retried() -> None:
    body = {"status": "ok", "version": "v" * 50_000, "timestamp": "t"}
    with Service(answer(200, body)) as service, CuttingProxy(service.port, cuts=2, after_bytes=20_000) as proxy:
        client = AsyncSandboxd(**{**service.settings, "url": f"http://127.0.0.1:{proxy.port}"})
        assert (await client.health()).version == "v" * 50_000 and proxy.cut == 2
        await client.close()


async def test_a_file_is_downloaded_completely_or_not_at_all(tmp_path: Path) -> None:
    content = bytes(range(256)) * 4096

    def whole(_: Received, handler: Handler) -> None:
        handler.send(200, {}, content)

    def cut(_: Received, handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("content-length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[:1000])
        handler.wfile.flush()
        handler.cut()

    with Service([whole, whole, cut, failure(404, "FILE_NOT_FOUND"), whole]) as service:
        files = sandbox_of(service).files
        assert await files.download("a/big.bin", tmp_path / "mine") == tmp_path / "mine"
        assert await files.download("a/big.bin", str(tmp_path)) == tmp_path / "big.bin"
        (tmp_path / "mine").write_bytes(b"before")
        with pytest.raises(NetworkError):
            await files.download("a/big.bin", tmp_path / "mine")
        with pytest.raises(SandboxdError, match="FILE_NOT_FOUND"):
            await files.download("a/big.bin", tmp_path / "mine")
        with pytest.raises(LocalFileError, match="nowhere/x cannot be written"):
            await files.download("a/big.bin", tmp_path / "nowhere" / "x")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["big.bin", "mine"]
    assert (tmp_path / "big.bin").read_bytes() == content and (tmp_path / "mine").read_bytes() == b"before"


async def test_a_download_replaces_no_device_and_needs_no_room_in_the_name(tmp_path: Path) -> None:
    def page(_: Received, handler: Handler) -> None:
        handler.send(200, {}, b"content")

    os.mkfifo(tmp_path / "pipe")
    with Service(page) as service:
        files = sandbox_of(service).files
        with pytest.raises(LocalFileError, match="pipe cannot be written: it exists and is not a file"):
            await files.download("a", tmp_path / "pipe")
        assert (await files.download("a", tmp_path / ("n" * 255))).read_bytes() == b"content"
    assert (tmp_path / "pipe").is_fifo() and len(list(tmp_path.iterdir())) == 2
