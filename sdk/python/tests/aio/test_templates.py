"""Templates: the requests of builds, uploads of contexts, logs, failures, and arguments that are refused."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from datetime import timedelta
from pathlib import Path
from typing import Any, Dict, List

import pytest

from sandboxd import (
    AsyncSandboxd,
    BuildDone,
    BuildEvent,
    BuildFailed,
    BuildNote,
    BuildStep,
    InvalidArgument,
    LocalFileError,
    NetworkError,
    SandboxdError,
    Stderr,
    Stdout,
    TemplateNotFound,
    UnknownError,
    models,
)
from scripted import TEMPLATE, CuttingProxy, Handler, Received, Responder, Service, answer, events, failure, hang_up

ID = str(TEMPLATE["id"])
BUILDING: Dict[str, Any] = {key: value for key, value in TEMPLATE.items() if key != "finishedAt"}
BUILDING.update(state="building", steps={"total": 2, "done": 0, "cached": 0})
FAILED: Dict[str, Any] = {**TEMPLATE, "state": "failed", "error": {"message": "line 2: code 3", "line": 2}}
CONTEXT: Dict[str, Any] = {"id": "ctx_00000001", "sizeBytes": 1, "expiresAt": "t"}
STEP: Dict[str, Any] = {"number": 1, "total": 2, "line": 2, "text": "RUN make", "cached": True}


def sent(name: str, data: str, event_id: object) -> str:
    return f"id: {event_id}\nevent: {name}\ndata: {data}\n\n"


def done(template: Dict[str, Any]) -> str:
    return sent("done", json.dumps(template), "end")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "Dockerfile").write_text("FROM ubuntu:24.04\nCOPY . /srv\n")
    (tmp_path / "app.py").write_text("print(1)\n")
    (tmp_path / "secret").write_text("secret\n")
    (tmp_path / ".dockerignore").write_text("secret\nDockerfile\n.dockerignore\n")
    return tmp_path


def names_in(archive: bytes) -> List[str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return sorted(opened.getnames())


async def test_a_build_uploads_its_context_and_follows_the_log(project: Path) -> None:
    log = sent("step", json.dumps(STEP), 1) + sent("stdout", "one", 2) + sent("stderr", "two", 3) + sent("note", "n", 4)
    responders = [answer(201, CONTEXT), answer(201, BUILDING), events(f"id: 0\n\n{log}{done(TEMPLATE)}")]
    seen: List[BuildEvent] = []
    with Service(responders) as service:
        template = await AsyncSandboxd(**service.settings).templates.build("web", project, on_log=seen.append)
        assert template == models.Template.from_json(TEMPLATE)
        step = BuildStep(number=1, total=2, line=2, text="RUN make", cached=True)
        assert seen == [step, Stdout("one"), Stderr("two"), BuildNote("n"), BuildDone(template)]
        upload, build, logs = service.received
        assert (upload.method, upload.path) == ("POST", "/v1/templates/contexts")
        assert upload.headers["content-type"] == "application/x-tar"
        assert upload.headers["transfer-encoding"] == "chunked"
        assert names_in(upload.body) == [".", "Dockerfile", "app.py"]
        assert (build.method, build.path) == ("POST", "/v1/templates")
        assert json.loads(build.body) == {"name": "web", "context": CONTEXT["id"]}
        assert len(build.headers["idempotency-key"]) == 24
        assert (logs.method, logs.path) == ("GET", f"/v1/templates/{ID}/logs")
        assert logs.headers["accept"] == "text/event-stream" and "last-event-id" not in logs.headers


async def test_a_text_without_a_context_is_not_uploaded_and_options_are_sent() -> None:
    with Service([hang_up, answer(201, BUILDING)]) as service:
        template = await AsyncSandboxd(**service.settings).templates.start(
            "web",
            dockerfile="FROM ubuntu:24.04",
            build_args={"A": "1"},
            start_command="serve",
            ready_command="check",
            ready_timeout=1.5,
            cpu=2,
            memory_mb=2048,
            disk_mb=5120,
            egress={"default": "deny"},
            ingress={"allowPorts": [1]},
            isolation="gvisor",
            timeout=timedelta(minutes=1),
            no_cache=True,
            metadata={"job": "17"},
            idempotency_key="k",
        )
        assert (template.state, template.finished_at, template.error) == ("building", None, None)
        lost, build = service.received
        assert lost.body == build.body
        assert lost.headers["idempotency-key"] == build.headers["idempotency-key"] == "k"
        assert json.loads(build.body) == {
            "name": "web",
            "dockerfile": "FROM ubuntu:24.04",
            "buildArgs": {"A": "1"},
            "startCommand": "serve",
            "readyCommand": "check",
            "readyTimeoutMs": 1500,
            "resources": {"cpu": 2, "memoryMb": 2048, "diskMb": 5120},
            "network": {"egress": {"default": "deny"}, "ingress": {"allowPorts": [1]}},
            "isolation": "gvisor",
            "timeoutMs": 60_000,
            "noCache": True,
            "metadata": {"job": "17"},
        }


async def test_the_current_directory_is_the_context_unless_a_text_is_given(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    with Service([answer(201, CONTEXT), answer(201, BUILDING), answer(201, CONTEXT), answer(201, BUILDING)]) as service:
        templates = AsyncSandboxd(**service.settings).templates
        await templates.start("web")
        # The Dockerfile is not needed with a text.
        await templates.start("web", ".", dockerfile="FROM a")
        by_path, _, by_text, build = service.received
        assert names_in(by_path.body) == [".", "Dockerfile", "app.py"]
        assert names_in(by_text.body) == [".", "app.py"]
        assert json.loads(build.body) == {"name": "web", "dockerfile": "FROM a", "context": CONTEXT["id"]}


async def test_several_builds_can_have_the_same_uploaded_context(project: Path) -> None:
    (project / "a.Dockerfile").write_text("FROM a\n")
    # An upload whose response is lost is packed and sent again.
    with Service([hang_up, answer(201, CONTEXT), answer(201, BUILDING), answer(201, BUILDING)]) as service:
        templates = AsyncSandboxd(**service.settings).templates
        context = await templates.upload_context(project)
        assert (context.id, context.size_bytes, context.expires_at) == ("ctx_00000001", 1, "t")
        await templates.start("web", context)
        await templates.start("a", context, dockerfile_path="a.Dockerfile")
        lost, upload, *builds = service.received
        assert lost.body == upload.body and upload.path == "/v1/templates/contexts"
        expected = {"name": "a", "dockerfilePath": "a.Dockerfile", "context": context.id}
        assert [json.loads(build.body) for build in builds] == [{"name": "web", "context": context.id}, expected]


async def test_an_archive_is_uploaded_as_it_is() -> None:
    with Service(answer(201, CONTEXT)) as service:
        templates = AsyncSandboxd(**service.settings).templates
        for archive in (b"tar", bytearray(b"tar"), io.BytesIO(b"tar"), [b"t", b"ar"]):
            await templates.upload_context(archive)
        assert [received.body for received in service.received] == [b"tar"] * 4


async def test_a_context_that_cannot_be_read_is_an_error_of_this_machine(tmp_path: Path) -> None:
    with Service([]) as service:
        templates = AsyncSandboxd(**service.settings).templates
        with pytest.raises(LocalFileError, match="no Dockerfile"):
            await templates.build("web", tmp_path)
        (tmp_path / "Dockerfile").write_text("FROM a\n")
        with pytest.raises(InvalidArgument, match="Dockerfile', a file; pass its directory, and dockerfile_path="):
            await templates.build("web", tmp_path / "Dockerfile")
        (tmp_path / ".dockerignore").write_text("[")
        with pytest.raises(LocalFileError, match="malformed"):
            await templates.upload_context(tmp_path, dockerfile_path=None)
        with pytest.raises(LocalFileError):
            await templates.upload_context(tmp_path / "missing", dockerfile_path=None)


async def test_a_large_context_is_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 64 << 20
    with open(tmp_path / "big", "wb") as file:
        file.truncate(size)
    read = 0

    def counted(handler: Handler) -> bytes:
        nonlocal read
        while length := int(handler.rfile.readline(), 16):
            assert length <= 1 << 20
            read += len(handler.rfile.read(length + 2)) - 2
        handler.rfile.readline()
        return b""

    monkeypatch.setattr(Handler, "_body", counted)
    with Service([answer(201, CONTEXT)]) as service:
        await AsyncSandboxd(**service.settings).templates.upload_context(tmp_path, dockerfile_path=None)
    assert read > size


async def test_a_failed_or_cancelled_build_is_an_error_with_the_template() -> None:
    cancelled = {**TEMPLATE, "state": "cancelled"}
    responders: List[Responder] = []
    for template in (FAILED, cancelled):
        responders += [answer(201, BUILDING), events(done(template))]
    with Service(responders) as service:
        templates = AsyncSandboxd(**service.settings).templates
        with pytest.raises(BuildFailed, match=r"the build of web:3 failed: line 2: code 3 \(BUILD_FAILED\)") as caught:
            await templates.build("web", dockerfile="FROM a")
        error = caught.value
        assert error.template == models.Template.from_json(FAILED)
        assert error.template.error == models.TemplateError(message="line 2: code 3", line=2)
        assert error.details == {"templateId": ID, "state": "failed", "line": 2} and not error.retryable
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
        with pytest.raises(BuildFailed, match="the build of web:3 was cancelled") as caught:
            await templates.build("web", dockerfile="FROM a")
        assert caught.value.template.state == "cancelled"


async def test_the_error_of_a_build_has_the_output_of_its_last_step() -> None:
    steps = [json.dumps({**STEP, "number": number}) for number in (1, 2)]
    log = sent("step", steps[0], 1) + sent("stdout", "earlier", 2) + sent("step", steps[1], 3)
    log += sent("stdout", "compiling", 4) + sent("stderr", "no such file", 5)
    with Service([events(f"id: 0\n\n{log}{done(FAILED)}")]) as service:
        templates = AsyncSandboxd(**service.settings).templates
        with pytest.raises(BuildFailed) as caught:
            await templates.wait(models.Template.from_json(BUILDING))
    error = caught.value
    assert error.output == "compiling\nno such file"
    assert str(error).endswith("line 2: code 3 (BUILD_FAILED); the output ends with:\ncompiling\nno such file")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


async def test_a_log_is_followed_over_lost_connections() -> None:
    stopping = json.dumps({"code": "RESOURCE_EXHAUSTED", "message": "the daemon is stopping", "details": {}})
    responders = [
        events("id: 0\n\n" + sent("stdout", "one", 10), ends=False),
        hang_up,
        events(sent("stdout", "two", 20) + sent("error", stopping, 20)),
        # Events of newer services are ignored.
        events(sent("novelty", "?", 25) + sent("note", "three", 30) + done(TEMPLATE)),
    ]
    with Service(responders) as service:
        log = AsyncSandboxd(**service.settings).templates.logs(models.Template.from_json(BUILDING))
        assert [event async for event in log][:3] == [Stdout("one"), Stdout("two"), BuildNote("three")]
        assert log.offset == "end"
        assert [event async for event in log] == []
        after = [received.headers.get("last-event-id") for received in service.received]
        assert after == [None, "10", "10", "20"]


async def test_a_log_continues_after_an_event() -> None:
    with Service([events(sent("stdout", "two", 20) + done(TEMPLATE))]) as service:
        async with AsyncSandboxd(**service.settings).templates.logs(ID, after="10") as log:
            assert await log.__anext__() == Stdout("two") and log.offset == "20"
        assert service.received[0].headers["last-event-id"] == "10"
        assert [event async for event in log] == []


async def test_10_000_lines_arrive_once_over_broken_connections() -> None:
    total = 10_000

    def respond(received: Received, handler: Handler) -> None:
        first = int(received.headers.get("last-event-id", 0)) + 1
        lines = (sent("stdout", str(number), number) for number in range(first, total + 1))
        events("".join(lines) + done(TEMPLATE))(received, handler)

    with Service(respond) as service, CuttingProxy(service.port, cuts=10, after_bytes=15_000) as proxy:
        client = AsyncSandboxd(**{**service.settings, "url": f"http://127.0.0.1:{proxy.port}"})
        seen: List[BuildEvent] = []
        assert (await client.templates.wait(ID, on_log=seen.append)).id == ID
        assert [int(each.line) for each in seen if isinstance(each, Stdout)] == list(range(1, total + 1))
        assert isinstance(seen[-1], BuildDone) and proxy.cut == 10
        await client.close()


async def test_a_log_ends_with_errors_that_do_not_pass() -> None:
    with Service([hang_up, failure(404, "TEMPLATE_NOT_FOUND"), events(sent("step", "{}", 1))]) as service:
        templates = AsyncSandboxd(**service.settings).templates
        with pytest.raises(TemplateNotFound) as caught:
            await templates.wait(ID)
        assert (caught.value.code, caught.value.status, caught.value.retryable) == ("TEMPLATE_NOT_FOUND", 404, False)
        with pytest.raises(UnknownError, match="'step' of the stream cannot be parsed"):
            await templates.wait(ID)


async def test_templates_are_listed_fetched_cancelled_and_deleted() -> None:
    def page(numbers: List[int], more: bool) -> Responder:
        pagination = {"limit": 2, "offset": 0, "total": 3, "hasMore": more}
        return answer(200, {"data": [{**TEMPLATE, "id": f"tpl_{number}"} for number in numbers], "pagination": pagination})

    ended = answer(200, {**TEMPLATE, "state": "cancelled"})
    deleted = answer(200, {"id": ID, "deletedAt": "t"})
    with Service([page([3, 2], True), page([2, 1], False), answer(200, TEMPLATE), hang_up, ended, deleted, hang_up]) as service:
        templates = AsyncSandboxd(**service.settings).templates
        listed = templates.list(name="a/b", state="ready", metadata={"job": "17"}, page_size=2)
        assert await listed.total() == 3
        assert [each.id for each in await listed.all()] == ["tpl_3", "tpl_2", "tpl_1"]
        found = await templates.get(ID)
        assert (found.version, found.base, found.isolation, found.memory) == (3, "ubuntu:24.04", "container", False)
        assert found.steps == models.TemplateSteps(cached=1, done=2, total=2)
        assert (found.size_bytes, found.start_command, found.metadata) == (4096, "serve", {"job": "17"})
        assert (await templates.cancel(found)).state == "cancelled"
        assert (await templates.delete(ID)).deleted_at == "t"
        # A deletion whose response is lost is not retried.
        with pytest.raises(NetworkError):
            await templates.delete(found)
        query = "name=a%2Fb&state=ready&limit=2&offset=2&metadata.job=17"
        assert service.received[1].path == f"/v1/templates?{query}"
        requests = [(received.method, received.path) for received in service.received[2:]]
        cancel, delete = ("POST", f"/v1/templates/{ID}/cancel"), ("DELETE", f"/v1/templates/{ID}")
        assert requests == [("GET", f"/v1/templates/{ID}"), cancel, cancel, delete, delete]


async def test_ids_and_keys_are_checked_before_anything_is_sent(tmp_path: Path) -> None:
    templates = AsyncSandboxd(url="http://127.0.0.1:9", api_key="k").templates
    for wrong in ("", "tpl_/../x", "..", "tpl_A"):
        for call in (templates.get, templates.delete, templates.cancel, templates.wait):
            with pytest.raises(SandboxdError) as caught:
                await call(wrong)
            assert (caught.value.code, caught.value.details) == ("INVALID_ARGUMENT", {"argument": "template"})
    with pytest.raises(SandboxdError, match="Idempotency-Key"):
        await templates.build("web", tmp_path, idempotency_key="a\nb")
    with pytest.raises(SandboxdError) as caught:
        await templates.build("web", tmp_path, dockerfile_path="../Dockerfile")
    assert caught.value.details == {"argument": "dockerfile_path"}
