"""Directories and runs against a real service. Skipped without SANDBOXD_URL."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import List

import pytest

from sandboxd import AsyncRun, AsyncSandbox, LocalFileError, Run, RuntimeEvent, Sandbox

IMAGE = os.environ.get("SANDBOXD_TEST_IMAGE", "ubuntu:24.04")
pytestmark = pytest.mark.skipif(not os.environ.get("SANDBOXD_URL"), reason="set SANDBOXD_URL to run")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "src" / "main.py").write_text("print('hello')\n")
    (project / "run.sh").write_text("#!/bin/sh\n")
    (project / "run.sh").chmod(0o755)
    (project / "link").symlink_to("src/main.py")
    (project / "big").write_bytes(os.urandom(3 << 20))
    return project


def test_a_directory_is_uploaded_and_downloaded(project: Path, tmp_path: Path) -> None:
    with Sandbox.create(IMAGE) as sandbox:
        assert sandbox.files.upload_directory(project, "project").files == 3
        assert sandbox.execute("cat project/link; stat -c %a project/run.sh").stdout == "print('hello')\n755\n"
        sandbox.execute("mkfifo project/fifo; ln -s /etc/passwd project/away; echo x > project/new", check=True)
        unpacked = sandbox.files.download_directory("project", tmp_path / "copy")
        assert unpacked.links == 2
        assert (tmp_path / "copy" / "big").read_bytes() == (project / "big").read_bytes()
        assert os.readlink(tmp_path / "copy" / "link") == "src/main.py"
        assert (tmp_path / "copy" / "new").read_text() == "x\n" and not (tmp_path / "copy" / "fifo").exists()
        with pytest.raises(LocalFileError):
            sandbox.files.upload_directory(tmp_path / "missing", "project")


def test_asyncio_uploads_and_downloads_and_can_be_cancelled(project: Path, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with AsyncSandbox.create(IMAGE) as sandbox:
            await sandbox.files.upload_directory(project, "project")
            unpacked = await sandbox.files.download_directory("project", tmp_path / "copy")
            assert unpacked.files == 3
            assert (tmp_path / "copy" / "big").read_bytes() == (project / "big").read_bytes()
            await sandbox.execute("head -c 300M /dev/zero > project/zeroes", check=True)
            downloading = asyncio.ensure_future(sandbox.files.download_directory("project", tmp_path / "half"))
            while not downloading.done() and not (tmp_path / "half" / "zeroes").exists():
                await asyncio.sleep(0.01)
            downloading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await downloading
            size = (tmp_path / "half" / "zeroes").stat().st_size
            await asyncio.sleep(0.3)
            assert (tmp_path / "half" / "zeroes").stat().st_size == size < 300 << 20

    asyncio.run(scenario())


def test_a_run_collects_what_the_program_and_its_sandboxes_do(tmp_path: Path) -> None:
    seen: List[RuntimeEvent] = []
    with Run() as run:
        run.to_file(tmp_path / "run.jsonl").on_event(seen.append)
        with Sandbox.create(IMAGE, run=run) as sandbox:
            run.to_service(sandbox)
            run.tool_call("shell", {"command": "true"})
            sandbox.execute("true")
            run.flush()
            recorded = [event.type for event in sandbox.events.list(run=run.id)]
    assert [event.type for event in seen][:5] == [
        "sandbox.created",
        "sandbox.started",
        "agent.tool_call",
        "exec.started",
        "exec.completed",
    ]
    assert "agent.tool_call" in recorded and "exec.completed" in recorded
    assert len((tmp_path / "run.jsonl").read_text().splitlines()) == len(seen)


def test_an_asyncio_run_uploads_its_events() -> None:
    async def scenario() -> None:
        async with AsyncSandbox.create(IMAGE) as sandbox, AsyncRun() as run:
            run.to_service(sandbox)
            for number in range(30):
                run.thinking(str(number))
            await run.flush()
            events = [event async for event in sandbox.events.list(run=run.id)]
            assert [event.data["text"] for event in events] == [str(number) for number in range(30)]

    asyncio.run(scenario())
