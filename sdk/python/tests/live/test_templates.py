"""Templates against a real service. Skipped without SANDBOXD_URL."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Dict, List
from urllib.parse import urlsplit

import pytest

from sandboxd import (
    AsyncSandboxd,
    BuildDone,
    BuildEvent,
    BuildFailed,
    BuildNote,
    BuildStep,
    InvalidConfig,
    LocalFileError,
    Sandboxd,
    Stderr,
    Stdout,
    TemplateNotFound,
)
from scripted import CuttingProxy

IMAGE = os.environ.get("SANDBOXD_TEST_IMAGE", "ubuntu:24.04")
pytestmark = pytest.mark.skipif(not os.environ.get("SANDBOXD_URL"), reason="set SANDBOXD_URL to run")
SMALL: Dict[str, Any] = {"memory_mb": 2048, "disk_mb": 5120}
NAME = f"python-{os.getpid()}"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    def write(name: str, text: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    write("Dockerfile", "ARG BASE\nFROM $BASE\nENV GREETING=hello\nWORKDIR /srv\nCOPY . .\nRUN ./run.sh > out; echo $WHO >&2\n")
    write(".dockerignore", "# local\n**/*.log\nsecret\nnode_modules\n!node_modules/kept\nDockerfile\n.dockerignore\n")
    write("run.sh", "#!/bin/sh\necho $GREETING from $(pwd)\necho built >&2\n")
    (tmp_path / "run.sh").chmod(0o755)
    for name in ("src/main.py", "src/debug.log", "secret/key", "node_modules/kept", "node_modules/left/out"):
        write(name, name)
    (tmp_path / "big").write_bytes(os.urandom(3 << 20))
    (tmp_path / "link").symlink_to("src/main.py")
    return tmp_path


def dockerfile(*instructions: str) -> str:
    return "\n".join([f"FROM {IMAGE}", *instructions, ""])


def test_a_directory_is_built_without_what_it_ignores(project: Path) -> None:
    seen: List[BuildEvent] = []
    name = f"{NAME}/web"
    tags = {"job": name}
    with Sandboxd() as client:
        used = client.usage().templates.used
        first = client.templates.build(
            name, project, build_args={"BASE": IMAGE}, metadata=tags, on_log=seen.append, **SMALL
        )
        assert (first.name, first.version, first.state, first.base) == (name, 1, "ready", IMAGE)
        assert first.finished_at is not None and first.size_bytes > 3 << 20 and first.error is None
        assert [event.text for event in seen if isinstance(event, BuildStep)][1].startswith("RUN ./run.sh")
        assert Stderr("built") in seen and seen[-1] == BuildDone(first)
        with client.sandboxes.create(name, **SMALL) as sandbox:
            found = sandbox.execute("cat out; find . -type f -o -type l | sort; stat -c %a run.sh; cat link", check=True).stdout
            files = ["./Dockerfile", "./big", "./link", "./node_modules/kept", "./out", "./run.sh", "./src/main.py"]
            assert found.splitlines() == ["hello from /srv", *files, "755", "src/main.py"]
        # An earlier build has carried out the steps.
        context = client.templates.upload_context(project)
        assert context.size_bytes > 3 << 20
        second = client.templates.build(name, context, build_args={"BASE": IMAGE}, metadata=tags, **SMALL)
        assert second.version == 2 and second.steps.cached == second.steps.total == first.steps.total
        assert [each.id for each in client.templates.list(name=name, state="ready", metadata=tags)] == [second.id, first.id]
        assert client.usage().templates.used == used + 2
        assert client.templates.get(second.id) == second
        for template in (first, second):
            assert client.templates.delete(template).id == template.id
        with pytest.raises(TemplateNotFound):
            client.templates.get(first.id)
        with pytest.raises(TemplateNotFound):
            client.sandboxes.create(first.id)
        with pytest.raises(InvalidConfig):
            client.sandboxes.create(name)
        listed = client.events.list(kinds=["template.*"])
        kinds = [event.type for event in listed if event.data.get("templateId") in (first.id, second.id)]
        assert sorted(kinds) == ["template.deleted"] * 2 + ["template.ready"] * 2


def test_a_failed_build_is_an_error(project: Path) -> None:
    with Sandboxd() as client:
        with pytest.raises(BuildFailed, match="code 3") as caught:
            client.templates.build(NAME, dockerfile=dockerfile("RUN echo why >&2", "RUN exit 3"), **SMALL)
        template = caught.value.template
        assert template.state == "failed" and template.error is not None and template.error.line == 3
        assert template.error.message in caught.value.message
        assert Stderr("why") in list(client.templates.logs(template))
        with pytest.raises(BuildFailed):
            client.templates.wait(template.id)
        client.templates.delete(template)
        # A Dockerfile that is not valid is refused before a template exists.
        with pytest.raises(InvalidConfig) as refused:
            client.templates.build(NAME, dockerfile="FROM a\n\nRUN --network=none x")
        assert refused.value.details["field"] == "dockerfile" and refused.value.details["line"] == 3
        with pytest.raises(LocalFileError):
            client.templates.build(NAME, project / "src")
        with pytest.raises(InvalidConfig, match="no file 'Dockerfile'"):
            client.templates.build(NAME, client.templates.upload_context(project, dockerfile_path=None))
        assert client.templates.list(name=NAME).total() == 0


def test_a_build_is_cancelled_and_its_log_continues() -> None:
    with Sandboxd() as client:
        started = client.templates.start(
            NAME, dockerfile=dockerfile("RUN echo one; echo two; sleep 600"), idempotency_key=NAME, **SMALL
        )
        again = client.templates.start(
            NAME, dockerfile=dockerfile("RUN echo one; echo two; sleep 600"), idempotency_key=NAME, **SMALL
        )
        assert again.id == started.id and started.state in ("queued", "building")
        with client.templates.logs(started) as log:
            while next(log) != Stdout("one"):
                pass
        with client.templates.logs(started.id, after=log.offset) as rest:
            assert next(rest) == Stdout("two")
            assert client.templates.get(started.id).state == "building"
            cancelled = client.templates.cancel(started)
            assert cancelled.state == "cancelled" and client.templates.cancel(cancelled) == cancelled
            note, done = list(rest)
            assert isinstance(note, BuildNote) and done == BuildDone(cancelled)
        with pytest.raises(BuildFailed, match="was cancelled"):
            client.templates.wait(started)
        client.templates.delete(started)


async def test_a_log_of_asyncio_reconnects_without_loss() -> None:
    parts = urlsplit(os.environ["SANDBOXD_URL"])
    assert parts.port is not None
    total = 10_000
    with CuttingProxy(parts.port, cuts=5, after_bytes=40_000) as proxy:
        async with AsyncSandboxd() as direct, AsyncSandboxd(f"{parts.scheme}://{parts.hostname}:{proxy.port}") as client:
            text = dockerfile(f"RUN seq {total}")
            started = await direct.templates.start(NAME, dockerfile=text, no_cache=True, **SMALL)
            seen: List[BuildEvent] = []
            template = await client.templates.wait(started, on_log=seen.append)
            assert [each.line for each in seen if isinstance(each, Stdout)] == [str(n) for n in range(1, total + 1)]
            assert proxy.cut == 5
            await direct.templates.delete(template)


async def test_a_cancelled_task_cancels_its_build(project: Path) -> None:
    async with AsyncSandboxd() as client:
        begun = asyncio.Event()

        def notice(event: BuildEvent) -> None:
            if event == Stdout("begun"):
                begun.set()

        (project / "Dockerfile").write_text(dockerfile("COPY src /src", "RUN echo begun; sleep 600"))
        task = asyncio.ensure_future(client.templates.build(NAME, project, on_log=notice, **SMALL))
        await asyncio.wait([task, asyncio.ensure_future(begun.wait())], return_when=asyncio.FIRST_COMPLETED)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (template,) = await client.templates.list(name=NAME).all()
        assert template.state == "cancelled"
        await client.templates.delete(template)


def test_a_start_command_runs_in_every_sandbox() -> None:
    name = f"{NAME}.served"
    command = "echo $$ > /run/started; exec sleep 600"
    with Sandboxd() as client:
        template = client.templates.build(
            name,
            dockerfile=dockerfile("WORKDIR /srv"),
            start_command=command,
            ready_command="test -s /run/started",
            ready_timeout=30,
            timeout=300,
            isolation="auto",
            **SMALL,
        )
        assert template.start_command == command
        for _ in range(2):
            with client.sandboxes.create(f"{name}:{template.version}", **SMALL) as sandbox:
                assert sandbox.execute("cat /proc/$(cat /run/started)/comm; pwd").stdout == "sleep\n/srv\n"
        client.templates.delete(template)
