"""
The SDK against a real service, with the settings of the environment. Skipped without SANDBOXD_URL.

The service needs `limits.*_per_minute = 0`, and capacity for 400 vCPUs: on a host with 2 vCPUs `capacity.overcommit_cpu = 256`.
SANDBOXD_TEST_SANDBOXES is the number of sandboxes at once, by default 200, and SANDBOXD_TEST_IMAGE the image.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple
from urllib.parse import urlsplit

import pytest

from sandboxd import (
    AsyncSandbox,
    AsyncSandboxd,
    CommandFailed,
    Done,
    FileChange,
    FileNotFound,
    InvalidConfig,
    InvalidState,
    Sandbox,
    Sandboxd,
    SandboxdError,
    SandboxNotFound,
    SnapshotNotFound,
    Stdout,
    TerminalEnded,
    TerminalOutput,
)
from scripted import CuttingProxy

IMAGE = os.environ.get("SANDBOXD_TEST_IMAGE", "ubuntu:24.04")
pytestmark = pytest.mark.skipif(not os.environ.get("SANDBOXD_URL"), reason="set SANDBOXD_URL to run")
SMALL: Dict[str, Any] = {"memory_mb": 2048, "disk_mb": 5120}
LEFT = "for i in $(seq 50); do pgrep -x sleep >/dev/null || exit 0; sleep 0.1 & wait; done; pgrep -a sleep"


def test_create_execute_pause_resume_terminate() -> None:
    names: List[str] = []
    on = {"started": lambda _: names.append("started"), "terminated": lambda _: names.append("terminated")}
    sandbox = Sandbox.create(IMAGE, env={"A": "1"}, metadata={"userId": "python"}, on=on)
    result = sandbox.execute("echo $A $B; cat >&2; exit 3", env={"B": "2"}, stdin="in")
    assert (result.stdout, result.stderr, result.exit_code, result.signal) == ("1 2\n", "in", 3, None)
    with pytest.raises(CommandFailed):
        sandbox.execute("false", check=True)
    sandbox.pause()
    with pytest.raises(InvalidState):
        sandbox.execute("true", auto_resume=False)
    assert sandbox.resume().state == "running"
    with Sandboxd() as client:
        listed = client.sandboxes.list(metadata={"userId": "python"})
        assert sandbox.id in [item.id for item in listed] and listed.total() >= 1
        image = client.images.get(IMAGE)
        assert image is not None and image.status == "ready"
        assert client.usage().sandboxes.used > 0 and client.health().status == "ok"
        info = client.info()
        assert sandbox.view is not None and sandbox.view.isolation == info.default_isolation
        assert info.default_isolation in [backend.name for backend in info.backends]
        assert info.limits.cpu and info.limits.timeout_ms.max >= info.limits.timeout_ms.default
        assert client.sandboxes.get(sandbox.id).view is not None
        assert client.openapi()["openapi"].startswith("3")
    assert (sandbox.terminate().total_runtime_ms or 0) > 0
    with pytest.raises(SandboxNotFound):
        sandbox.refresh()
    assert names == ["started", "terminated"]


async def test_the_asyncio_flavour() -> None:
    async with AsyncSandbox.create(IMAGE) as sandbox:
        assert (await sandbox.execute("echo hi")).stdout == "hi\n"
        lines = [output async for output in sandbox.stream("echo one; echo two >&2; exit 4")]
        assert isinstance(lines[-1], Done) and lines[-1].exit_code == 4 and len(lines) == 3
        await sandbox.files.write("f", "text")
        assert await sandbox.files.read_text("f") == "text"
        identifier = sandbox.id
    with pytest.raises(SandboxNotFound):
        await AsyncSandbox.connect(identifier).refresh()


def test_the_timeout_changes_and_samples_are_taken() -> None:
    with Sandbox.create(IMAGE, timeout=600, on_timeout="pause", auto_resume=False) as sandbox:
        view = sandbox.view
        assert view is not None and (view.on_timeout, view.auto_resume) == ("pause", False)
        assert sandbox.set_timeout(1200).timeout_ms == 1_200_000
        samples = []
        for _ in range(600):
            samples = sandbox.metrics()
            if samples:
                break
            time.sleep(0.1)
        assert samples[0].memory_total_bytes > samples[0].memory_used_bytes > 0
        assert sandbox.metrics(start="2100-01-01T00:00:00Z") == []
        sandbox.set_timeout(0)
        for _ in range(100):
            if sandbox.refresh().state == "paused":
                break
            time.sleep(0.1)
        assert sandbox.refresh().state == "paused"
        with pytest.raises(InvalidState):
            sandbox.execute("true")


def test_commands_run_as_a_user() -> None:
    with Sandbox.create(IMAGE) as sandbox:
        assert sandbox.execute("id -un; echo $HOME", user="nobody").stdout.splitlines()[0] == "nobody"
        lines = [output.line for output in sandbox.stream("id -un", user="nobody") if isinstance(output, Stdout)]
        assert lines == ["nobody"]
        detached = sandbox.start("id -un", user="nobody")
        assert detached.wait().exit_code == 0 and detached.output().stdout == "nobody\n"
        with sandbox.terminal(command="id -un", user="nobody") as terminal:
            assert "nobody" in terminal_text(list(terminal))
        missing = sandbox.execute("true", user="missing")
        assert missing.exit_code is None and "no user missing" in missing.stderr


def test_lists_long_time_limits_and_checked_waits() -> None:
    with Sandbox.create(IMAGE) as sandbox:
        assert sandbox.execute(["printf", "%s.", "two  words", "$HOME", "it's"]).stdout == "two  words.$HOME.it's."
        text = "seq 20000; echo end >&2; printf last; exit 3"
        attached, detached = sandbox.execute(text), sandbox.execute(text, timeout=301)
        assert (detached.stdout, detached.stderr, detached.exit_code) == (attached.stdout, "end\n", 3)
        missing = sandbox.execute("true", cwd="/missing", timeout="1h")
        assert missing.exit_code is None and missing.stderr
        with pytest.raises(CommandFailed, match="stderr ends with:\nwhy"):
            sandbox.start("echo why >&2; exit 4").wait(check=True)
        killed = sandbox.execute("sleep 1000", timeout=0.2)
        assert (killed.signal, killed.reason) == ("SIGKILL", "timeout") and killed.message


async def test_a_cancelled_task_kills_its_long_command() -> None:
    async with AsyncSandbox.create(IMAGE) as sandbox:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(sandbox.execute("sleep 1003", timeout="1h"), 0.5)
        assert "1003" not in (await sandbox.execute(LEFT)).stdout


def test_a_list_has_the_live_sandboxes() -> None:
    tags = {"userId": f"live-{os.getpid()}"}
    with Sandboxd() as client:
        gone = client.sandboxes.create(IMAGE, metadata=tags)
        with client.sandboxes.create(IMAGE, metadata=tags) as paused, client.sandboxes.create(IMAGE, metadata=tags) as running:
            gone.terminate()
            paused.pause()
            listed = client.sandboxes.list(metadata=tags, details=True)
            assert [item.id for item in listed] == [running.id, paused.id]
            assert [item.metadata for item in listed] == [tags, tags]
            assert [item.id for item in client.sandboxes.list(state="terminated", metadata=tags)] == [gone.id]
            assert client.sandboxes.list(state="all", metadata=tags).total() == 3


def test_a_watch_of_a_directory() -> None:
    with Sandbox.create(IMAGE) as sandbox:
        sandbox.files.mkdir("d/below", recursive=True)
        with sandbox.files.watch("d", recursive=True) as watch:
            sandbox.execute("echo 1 > d/below/f; rm -r d")
            changes = [event for event in watch if isinstance(event, FileChange)]
        seen = [(change.kind, change.path.rpartition("/d/")[2]) for change in changes]
        assert ("create", "below/f") in seen and ("write", "below/f") in seen and ("remove", "below/f") in seen
        with pytest.raises(FileNotFound):
            sandbox.files.watch("missing").start()
        watch = sandbox.files.watch(".").start()
        thread = threading.Thread(target=lambda: list(watch))
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
        watch.close()
        thread.join(5)
        assert not thread.is_alive()


async def test_a_cancelled_read_ends_the_watch() -> None:
    async with AsyncSandbox.create(IMAGE) as sandbox:
        async with sandbox.files.watch(".") as watch:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(watch.__anext__(), 0.3)
            assert [event async for event in watch] == []


async def test_a_cancelled_create_leaves_no_sandbox() -> None:
    for delay in (0.001, 0.01, 0.03, 0.06, 0.1):
        tags = {"userId": f"cancelled-{os.getpid()}"}
        async with AsyncSandboxd() as client:
            task = asyncio.ensure_future(client.sandboxes.create(IMAGE, metadata=tags).__aenter__())
            await asyncio.sleep(delay)
            task.cancel()
            try:
                await (await task).terminate()
            except asyncio.CancelledError:
                pass
        async with AsyncSandboxd() as client:
            left = await client.sandboxes.list(metadata=tags).all()
            assert [item.state for item in left if item.state != "terminated"] == []


async def test_cancelling_a_task_or_dropping_a_stream_kills_the_command() -> None:
    async with AsyncSandbox.create(IMAGE) as sandbox:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(sandbox.execute("sleep 1000"), 0.3)
        task = asyncio.ensure_future(sandbox.stream("sleep 1001").done())
        await asyncio.sleep(0.3)
        task.cancel()
        async for output in sandbox.stream("echo one; sleep 1002"):
            assert output == Stdout("one")
            break
        left = await sandbox.execute(LEFT)
        assert "100" not in left.stdout


def test_dropping_a_stream_kills_the_command() -> None:
    with Sandbox.create(IMAGE) as sandbox:
        for output in sandbox.stream("echo one; sleep 1001"):
            assert output == Stdout("one")
            break
        with sandbox.stream("echo one; sleep 1002") as stream:
            next(stream)
        assert "100" not in sandbox.execute(LEFT).stdout


def test_10_000_lines_are_streamed_without_loss() -> None:
    with Sandbox.create(IMAGE) as sandbox:
        outputs = sandbox.stream("seq 10000; printf end", line_ends=True)
        text = "".join(output.line for output in outputs if isinstance(output, Stdout))
        assert text == "".join(f"{number}\n" for number in range(1, 10_001)) + "end"


async def test_10_000_lines_are_followed_over_20_broken_connections() -> None:
    parts = urlsplit(os.environ["SANDBOXD_URL"])
    assert parts.port is not None
    # A connection transports some records of TLS, each of 16 KiB.
    with CuttingProxy(parts.port, cuts=20, after_bytes=48_000) as proxy:
        async with AsyncSandboxd() as direct, AsyncSandboxd(f"{parts.scheme}://{parts.hostname}:{proxy.port}") as client:
            async with direct.sandboxes.create(IMAGE) as sandbox:
                started = await sandbox.start("seq -f %080.0f 5000; sleep 0.5; seq -f %080.0f 5001 10000")
                execution = client.sandboxes.connect(sandbox.id).executions.handle(started.id)
                outputs = [output async for output in execution.follow()]
                lines = [int(output.line) for output in outputs if isinstance(output, Stdout)]
                assert lines == list(range(1, 10_001)) and proxy.cut == 20
                assert isinstance(outputs[-1], Done)


def test_detached_executions() -> None:
    with Sandbox.create(IMAGE) as sandbox:
        cat = sandbox.start("cat; echo done", open_stdin=True)
        cat.write_stdin("hello\n")
        cat.write_stdin("", close=True)
        assert [output.line for output in cat.follow() if isinstance(output, Stdout)] == ["hello", "done"]
        ended = cat.wait()
        assert (ended.exit_code, ended.state) == (0, "exited")
        assert cat.output().stdout == "hello\ndone\n"
        sleep = sandbox.start("exec sleep 1000")
        assert [view.execution_id for view in sandbox.executions.list()] == [sleep.id, cat.id]
        sleep.signal("SIGTERM")
        assert sleep.wait().signal == "SIGTERM"
        killed = sandbox.start("sleep 1000")
        assert killed.cancel().signal == "SIGKILL"


def test_files(tmp_path: Path) -> None:
    with Sandbox.create(IMAGE) as sandbox:
        files = sandbox.files
        entry = files.write("dir/ü.txt", "hello", parents=True, mode=0o600)
        assert (entry.size_bytes, entry.mode) == (5, "0600")
        assert files.read_text(entry) == "hello"
        assert files.read_text("dir/ü.txt", start=1, end=3) == "el"
        assert files.read_text("dir/ü.txt", last=2) == "lo"
        large = bytes(range(256)) * 12_000
        (tmp_path / "large").write_bytes(large)
        files.write("large", tmp_path / "large")
        with files.open("large") as content:
            assert content.length == len(large)
            files.write("large2", content)
        assert files.read("large2") == large
        assert files.unpack("copy", files.pack("dir")).files == 1
        files.move("copy/ü.txt", "copy/b")
        assert [each.name for each in files.list("copy")] == ["b"]
        assert not files.exists("copy/ü.txt")
        assert files.mkdir("x/y", recursive=True).is_directory
        assert files.remove("x", recursive=True) == 2
        with pytest.raises(FileNotFound):
            files.read("missing")
        assert files.stat("large").size_bytes == len(large)


def test_snapshots_are_taken_rolled_back_to_created_from_and_deleted() -> None:
    name = f"python-{os.getpid()}"
    with Sandboxd() as client, client.sandboxes.create(IMAGE, metadata={"userId": "python"}) as sandbox:
        before = client.usage()
        sandbox.execute("echo 1 > step; rm -rf /usr/share/doc", check=True)
        first = sandbox.snapshot(name, metadata={"step": "1"})
        assert (first.sandbox_id, first.name, first.memory, first.state) == (sandbox.id, name, False, "ready")
        assert first.image == IMAGE and first.metadata == {"step": "1"} and first.size_bytes > 0
        assert client.snapshots.get(first.id) == first
        usage = client.usage()
        assert usage.snapshots.used > before.snapshots.used
        assert usage.snapshot_bytes.used > before.snapshot_bytes.used

        sleep = sandbox.start("sleep 1000")
        sandbox.execute("echo 2 > step", check=True)
        second = sandbox.snapshot(name)
        listed = client.snapshots.list(sandbox_id=sandbox.id, name=name)
        assert [each.id for each in listed] == [second.id, first.id] and listed.total() == 2
        assert client.snapshots.list(name=name, metadata={"step": "1"}).all() == [first]

        assert sandbox.rollback(first).state == "running" and sandbox.files.read_text("step") == "1\n"
        assert sleep.wait().state == "lost" and "sleep" not in sandbox.execute("pgrep -a sleep").stdout
        # The name is that of the newest, and no name to delete by while two have it.
        assert sandbox.rollback(name).id == sandbox.id and sandbox.files.read_text("step") == "2\n"
        assert client.snapshots.get(name).id == second.id
        with pytest.raises(InvalidState):
            client.snapshots.delete(name)
        with client.sandboxes.create(first.id) as copy:
            assert copy.files.read_text("step") == "1\n" and not copy.files.exists("/usr/share/doc")
            with pytest.raises(InvalidConfig):
                copy.rollback(first)

        assert client.snapshots.delete(first).id == first.id
        with pytest.raises(SnapshotNotFound):
            client.snapshots.get(first.id)
        with pytest.raises(SnapshotNotFound):
            client.sandboxes.create(first.id)
        assert client.snapshots.delete(name).id == second.id
        kinds = [event.type for event in sandbox.events.list(kinds=["snapshot.*", "sandbox.rolled_back"])]
        assert kinds.count("snapshot.created") == kinds.count("snapshot.deleted") == kinds.count("sandbox.rolled_back") == 2


async def test_forks_have_the_files_and_the_configuration() -> None:
    async with AsyncSandbox.create(IMAGE, env={"A": "1", "B": "1"}, metadata={"userId": "python"}) as sandbox:
        await sandbox.files.write("f", "kept\n")
        forks = await sandbox.fork(2, env={"B": "2"}, metadata={"fork": "yes"})
        try:
            assert len({sandbox.id, *(fork.id for fork in forks)}) == 3
            commands = [fork.execute(f"echo {number} >> f; cat f; echo $A $B") for number, fork in enumerate(forks)]
            results = await asyncio.gather(*commands)
            assert [result.stdout for result in results] == ["kept\n0\n1 2\n", "kept\n1\n1 2\n"]
            assert all(fork.view is not None and fork.view.metadata == {"fork": "yes"} for fork in forks)
        finally:
            await asyncio.gather(*(fork.terminate() for fork in forks))
        assert await sandbox.files.read_text("f") == "kept\n"
        (event,) = await sandbox.events.list(kinds=["sandbox.forked"]).all()
        assert event.data["sandboxIds"] == [fork.id for fork in forks]
        (bare,) = await sandbox.fork()
        async with bare:
            assert bare.view is not None and bare.view.metadata == {"userId": "python"}


async def test_a_cancelled_fork_leaves_no_sandbox() -> None:
    async with AsyncSandboxd() as client, client.sandboxes.create(IMAGE) as sandbox:
        tags = {"userId": f"cancelled-fork-{os.getpid()}"}
        for delay in (0.001, 0.03, 0.1):
            task = asyncio.ensure_future(sandbox.fork(2, metadata=tags))
            await asyncio.sleep(delay)
            task.cancel()
            try:
                for fork in await task:
                    await fork.terminate()
            except asyncio.CancelledError:
                pass
        # Closing the client waits for the clean-ups.
        async with AsyncSandboxd() as other:
            await client.close()
            left = await other.sandboxes.list(metadata=tags).all()
            assert [item.state for item in left if item.state != "terminated"] == []


def test_ports_and_the_network() -> None:
    with Sandbox.create(IMAGE, egress={"default": "deny", "allow": ["example.com"]}) as sandbox:
        assert "8080-" in sandbox.ports.expose(8080).url
        assert "sandbox_token=" in sandbox.ports.token(8080, expires_in=60).url
        assert len(sandbox.ports.list()) == 1
        assert sandbox.ports.close(8080).port == 8080
        assert sandbox.network.get().egress.default == "deny"
        assert sandbox.network.update(default="allow", allow=[]).network.egress.default == "allow"


def test_events() -> None:
    sandbox = Sandbox.create(IMAGE)
    with sandbox.events.follow() as following:
        assert sandbox.events.post([{"type": "agent.thinking", "data": {"text": "hm"}, "runId": "r"}]) == 1
        sandbox.execute("true", run_id="r")
        sandbox.terminate()
        kinds = [event.type for event in following]
    for kind in ("agent.thinking", "exec.started", "exec.completed", "sandbox.terminated"):
        assert kind in kinds
    listed = sandbox.events.list(run="r", kinds=["agent.*"])
    assert [event.data for event in listed] == [{"text": "hm"}] and listed.total() == 1
    newest = sandbox.events.list(newest_first=True, page_size=2).all()
    assert newest[0].type == "sandbox.terminated" and len(newest) >= 5


def test_a_follower_in_a_thread_ends_when_it_is_closed() -> None:
    with Sandbox.create(IMAGE) as sandbox:
        following = sandbox.events.follow().start()
        thread = threading.Thread(target=lambda: list(following))
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
        following.close()
        thread.join(5)
        assert not thread.is_alive()


def terminal_text(events: List[Any]) -> str:
    return b"".join(event.data for event in events if isinstance(event, TerminalOutput)).decode()


def test_a_terminal() -> None:
    with Sandbox.create(IMAGE) as sandbox:
        with sandbox.terminal(cols=100, rows=30, command="stty size; read x; echo got $x; stty size") as terminal:
            terminal.resize(90, 20)
            terminal.send("hello\r")
            events = list(terminal)
        assert isinstance(events[-1], TerminalEnded) and events[-1].execution.exit_code == 0
        text = terminal_text(events)
        assert "got hello" in text and "20 90" in text
        with pytest.raises(SandboxdError) as caught:
            sandbox.executions.handle("ex_00000000000000000000").attach()
        assert caught.value.status == 404 and caught.value.request_id


def test_threads_use_the_tls_connection_of_a_terminal_in_turn() -> None:
    turn = threading.Lock()
    overlaps: List[str] = []
    uses: List[str] = []

    class Watched(ssl.SSLSocket):
        def _alone(self, name: str, call: Callable[[], Any]) -> Any:
            uses.append(name)
            if not turn.acquire(blocking=False):
                overlaps.append(name)
                return call()
            try:
                return call()
            finally:
                turn.release()

        def read(self, *arguments: Any) -> Any:
            return self._alone("read", lambda: super(Watched, self).read(*arguments))

        def send(self, *arguments: Any) -> Any:
            return self._alone("send", lambda: super(Watched, self).send(*arguments))

    with Sandboxd() as client, client.sandboxes.create(IMAGE) as sandbox:
        tls = client._transport.settings.tls
        assert tls is not None
        tls.sslsocket_class = Watched
        with sandbox.terminal(command="stty -echo; head -c 200000 | wc -c; seq 20000; read x; echo got $x") as terminal:
            for _ in range(200):
                terminal.send("x" * 999 + "\n")
            terminal.send("hello\r")
            text = terminal_text(list(terminal))
    assert "200000" in text and "got hello" in text
    assert "read" in uses and "send" in uses and not overlaps


async def test_a_terminal_of_asyncio_reconnects_without_loss() -> None:
    parts = urlsplit(os.environ["SANDBOXD_URL"])
    assert parts.port is not None
    with CuttingProxy(parts.port, cuts=5, after_bytes=40_000) as proxy:
        async with AsyncSandboxd() as direct, AsyncSandboxd(f"{parts.scheme}://{parts.hostname}:{proxy.port}") as client:
            async with direct.sandboxes.create(IMAGE) as sandbox:
                path = "/tmp/go"
                terminal = await sandbox.terminal(command=f"while [ ! -e {path} ]; do sleep 0.05; done; seq -f %030.0f 10000")
                await terminal.close()
                execution = (await sandbox.executions.list().all())[0]
                await sandbox.files.write(path, "")
                handle = client.sandboxes.connect(sandbox.id).executions.handle(execution.execution_id)
                async with handle.attach() as attached:
                    events = [event async for event in attached]
                assert terminal_text(events).split() == [f"{number:030}" for number in range(1, 10_001)]
                assert proxy.cut == 5


async def test_200_sandboxes_at_once() -> None:
    count = int(os.environ.get("SANDBOXD_TEST_SANDBOXES", "200"))
    before = time.monotonic()
    async with AsyncSandboxd(timeout=300, retries=10) as client:

        async def use(number: int) -> Tuple[int, str]:
            async with client.sandboxes.create(IMAGE, **SMALL) as sandbox:
                first = (await sandbox.execute(f"echo {number}")).stdout
                everyone.append(number)
                # All sandboxes exist at the same time.
                while len(everyone) < count:
                    await asyncio.sleep(0.05)
                return number, first

        everyone: List[int] = []
        results = await asyncio.gather(*(use(number) for number in range(count)))
    assert results == [(number, f"{number}\n") for number in range(count)]
    print(f"{count} sandboxes in {time.monotonic() - before:.1f} s")
