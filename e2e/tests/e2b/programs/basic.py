"""Uses sandboxes through the package e2b, first with its synchronous classes, then with its asynchronous ones."""

import asyncio
import os
import time
import uuid

import names
import httpx
from e2b import (
    AsyncSandbox, AuthenticationException, CommandExitException, FilesystemEventType, FileType, NotFoundException,
    PtySize, Sandbox, SandboxException, SandboxNotFoundException, SandboxQuery,
)

HOME = "/home/user"  # tidy: allow(machine-path): the home inside a sandbox
BLOB = bytes(range(256)) * 4096
UNKNOWN_ID = "sb" + "0" * 20
INVALID_KEY = "e2b_" + "0" * 64
# In seconds. The service measures every 5 s.
METRICS_TIMEOUT = 30


def raises(expected, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except expected as error:
        return error
    raise AssertionError(f"{call} did not raise {expected}")


async def raises_async(expected, awaitable):
    try:
        await awaitable
    except expected as error:
        return error
    raise AssertionError(f"{awaitable} did not raise {expected}")


def seconds_left(info):
    return (info.end_at - info.started_at).total_seconds()


def check_info(sandbox, tag):
    info = sandbox.get_info()
    assert info.sandbox_id == sandbox.sandbox_id, info
    assert info.template_id == "base" and info.metadata == {"test": tag}, info
    assert info.state.value == "running" and info.cpu_count > 0 and info.memory_mb > 0, info
    assert 115 <= seconds_left(info) <= 125, info
    sandbox.set_timeout(300)
    assert 295 <= seconds_left(sandbox.get_info()) <= 310, sandbox.get_info()


def check_commands(sandbox):
    run = sandbox.commands.run
    result = run("echo out; echo err >&2; pwd; echo $CREATED; whoami")
    assert result.stdout == f"out\n{HOME}\nfrom create\nuser\n", result
    assert (result.stderr, result.exit_code) == ("err\n", 0), result
    error = raises(CommandExitException, run, "echo before; exit 3")
    assert (error.exit_code, error.stdout) == (3, "before\n"), error
    assert run("echo $CREATED $ONCE", envs={"CREATED": "changed", "ONCE": "1"}).stdout == "changed 1\n"
    assert run("pwd", cwd="/tmp").stdout == "/tmp\n"
    assert run("id -u; echo $HOME", user="root").stdout == "0\n/root\n"
    assert run("sudo id -u").stdout == "0\n"
    # Its home does not exist.
    assert run("id -un; pwd", user="nobody").stdout == "nobody\n/\n"
    assert run("echo mine > /workspace/file; stat -c %U /workspace").stdout == "user\n"
    parts = []
    run("echo 1; sleep 0.2; echo 2", on_stdout=parts.append)
    assert "".join(parts) == "1\n2\n" and len(parts) >= 2, parts


def check_processes(sandbox):
    commands = sandbox.commands
    sleeper = commands.run("sleep 1000", background=True)
    assert sleeper.pid in [process.pid for process in commands.list()]
    assert commands.kill(sleeper.pid)
    assert raises(CommandExitException, sleeper.wait).exit_code != 0
    assert not commands.kill(sleeper.pid)
    assert sleeper.pid not in [process.pid for process in commands.list()]

    reader = commands.run("read line; echo got $line; cat", background=True, stdin=True)
    again = commands.connect(reader.pid)
    reader.disconnect()
    commands.send_stdin(reader.pid, "a line\n")
    commands.send_stdin(reader.pid, "rest")
    commands.close_stdin(reader.pid)
    result = again.wait()
    assert (result.stdout, result.exit_code) == ("got a line\nrest", 0), result


def check_terminal(sandbox):
    terminal = sandbox.pty.create(PtySize(rows=24, cols=80), envs={"PS1": "$ "})
    shown = b""
    resized = False
    sandbox.pty.send_stdin(terminal.pid, b"stty size\n")
    for _, _, data in terminal:
        shown += data or b""
        if b"24 80" in shown and not resized:
            resized = True
            sandbox.pty.resize(terminal.pid, PtySize(rows=40, cols=120))
            sandbox.pty.send_stdin(terminal.pid, b"stty size; exit\n")
    assert resized and b"40 120" in shown, shown


def check_files(sandbox):
    files = sandbox.files
    written = files.write("notes.txt", "ä first\n")
    assert (written.path, written.name) == (f"{HOME}/notes.txt", "notes.txt"), written
    assert files.read("notes.txt") == "ä first\n"
    assert sandbox.commands.run("stat -c '%U %a' notes.txt").stdout == "user 644\n"
    assert files.exists("notes.txt") and not files.exists("missing.txt")
    raises(NotFoundException, files.read, "missing.txt")
    files.write("blob", BLOB)
    assert bytes(files.read("blob", format="bytes")) == BLOB
    both = files.write_files([{"path": "many/a", "data": "A"}, {"path": "many/b", "data": b"B"}])
    assert [entry.path for entry in both] == [f"{HOME}/many/a", f"{HOME}/many/b"], both
    listed = files.list("many")
    assert [(entry.name, entry.type) for entry in listed] == [("a", FileType.FILE), ("b", FileType.FILE)], listed
    assert files.make_dir("many/deep/er") and not files.make_dir("many/deep/er")
    moved = files.rename("many/a", "many/c")
    assert moved.path == f"{HOME}/many/c" and not files.exists("many/a")
    info = files.get_info("many/c")
    assert (info.size, info.owner, info.type) == (1, "user", FileType.FILE), info
    files.remove("many")
    assert not files.exists("many")


def check_urls(sandbox):
    upload = sandbox.upload_url("up.bin", user="user", use_signature_expiration=60)
    sent = httpx.post(upload, files={"file": ("up.bin", BLOB)})
    assert sent.status_code == 200, sent.text
    download = sandbox.download_url("up.bin", user="user", use_signature_expiration=60)
    assert httpx.get(download).content == BLOB
    as_root = {"Authorization": "Basic cm9vdDo="}
    assert httpx.get(sandbox.download_url("up.bin"), headers=as_root).content == BLOB, "the signature has no user: the default"
    assert httpx.get(download, headers={"Range": "bytes=99999999-"}).status_code == 416
    forged = httpx.get(download.replace("up.bin", "notes.txt"))
    assert forged.status_code == 401, forged.text


def write_by_native_api(sandbox, path, text):
    """This API writes a temporary file, and renames it."""
    port = os.environ["E2B_DOMAIN"].rpartition(":")[2]
    url = f"https://127.0.0.1:{port}/v1/sandboxes/sb_{sandbox.sandbox_id.removeprefix('sb')}/files"
    key = {"Authorization": f"Bearer {os.environ['NATIVE_KEY']}"}
    sent = httpx.put(url, params={"path": path}, content=text, headers=key)
    assert sent.status_code == 200, sent.text


def check_watch(sandbox):
    sandbox.files.make_dir("watched/below")
    handle = sandbox.files.watch_dir("watched")
    tree = sandbox.files.watch_dir("watched", recursive=True)

    def new_events(handle):
        return [(event.name, event.type) for event in handle.get_new_events()]

    sandbox.files.write("watched/new", "text")
    events = new_events(handle)
    assert events[0] == ("new", FilesystemEventType.CREATE), events
    assert ("new", FilesystemEventType.WRITE) in events, events
    sandbox.files.write("watched/new", "changed")
    events = new_events(handle)
    assert ("new", FilesystemEventType.WRITE) in events, events
    assert ("new", FilesystemEventType.CREATE) not in events, events
    sandbox.files.remove("watched/new")
    assert new_events(handle) == [("new", FilesystemEventType.REMOVE)]
    assert {name for name, _ in new_events(tree)} == {"new"}
    for name in ("native", "below/native"):
        for kind in (FilesystemEventType.CREATE, FilesystemEventType.WRITE):
            write_by_native_api(sandbox, f"{HOME}/watched/{name}", "text")
            assert new_events(tree) == [(name, kind)], (name, kind)
    assert new_events(handle) == [("native", FilesystemEventType.CREATE), ("native", FilesystemEventType.WRITE)]
    handle.stop()
    tree.stop()


def check_list(sandbox, tag):
    other = Sandbox.create(timeout=60, metadata={"test": tag})
    pages = Sandbox.list(query=SandboxQuery(metadata={"test": tag}), limit=1)
    found = []
    while pages.has_next:
        items = pages.next_items()
        assert len(items) == 1, items
        found += [item.sandbox_id for item in items]
    assert found == [other.sandbox_id, sandbox.sandbox_id], found
    assert other.kill() and not Sandbox.kill(other.sandbox_id)
    assert not other.is_running()
    raises(SandboxNotFoundException, Sandbox.connect, other.sandbox_id)


def check_pause(sandbox):
    sandbox.files.write("ticks", "")
    counter = sandbox.commands.run("while sleep 0.1; do echo >> ticks; done", background=True)
    sandbox.pause()
    assert sandbox.get_info().state.value == "paused"
    assert not sandbox.is_running()
    same = Sandbox.connect(sandbox.sandbox_id, timeout=200)
    assert same.get_info().state.value == "running" and same.is_running()
    assert counter.pid in [process.pid for process in same.commands.list()]
    before = same.files.get_info("ticks").size
    time.sleep(0.5)
    assert same.files.get_info("ticks").size > before
    assert same.commands.kill(counter.pid)


def check_port(sandbox):
    sandbox.files.write("site/index.html", "served inside")
    server = sandbox.commands.run("python3 -m http.server 8000 -d site", background=True)
    host = sandbox.get_host(8000)
    assert host.startswith(f"8000-{sandbox.sandbox_id}."), host
    for _ in range(100):
        response = httpx.get(f"https://{host}/")
        if response.status_code == 200:
            break
        assert response.status_code == 502, response.text
        time.sleep(0.1)
    assert response.text == "served inside", response.text
    server.kill()


def check_metrics(sandbox):
    begin = time.monotonic()
    while not (metrics := sandbox.get_metrics()):
        assert time.monotonic() < begin + METRICS_TIMEOUT, "there are no metrics"
        time.sleep(0.5)
    sample = metrics[-1]
    assert sample.cpu_count > 0 and 0 < sample.mem_used < sample.mem_total, sample
    assert 0 < sample.disk_used < sample.disk_total, sample


def check_errors():
    raises(SandboxNotFoundException, Sandbox.connect, UNKNOWN_ID)
    assert not Sandbox.kill(UNKNOWN_ID)
    raises(AuthenticationException, Sandbox.create, api_key=INVALID_KEY)
    error = raises(SandboxException, Sandbox.create, "no-such-template")
    assert "no-such-template" in str(error) and "not found" in str(error), error
    assert error.status_code == 404, error


def synchronous():
    tag = uuid.uuid4().hex
    sandbox = Sandbox.create(timeout=120, metadata={"test": tag}, envs={"CREATED": "from create"})
    check_info(sandbox, tag)
    check_commands(sandbox)
    check_processes(sandbox)
    check_terminal(sandbox)
    check_files(sandbox)
    check_urls(sandbox)
    check_watch(sandbox)
    check_port(sandbox)
    check_list(sandbox, tag)
    check_pause(sandbox)
    check_metrics(sandbox)
    assert sandbox.kill()
    check_errors()


async def check_async_commands(sandbox):
    commands = sandbox.commands
    results = await asyncio.gather(*(commands.run(f"sleep 0.2; echo {number}") for number in range(8)))
    assert [result.stdout for result in results] == [f"{number}\n" for number in range(8)]
    error = await raises_async(CommandExitException, commands.run("echo e >&2; exit 4", user="root", cwd="/"))
    assert (error.exit_code, error.stderr) == (4, "e\n"), error
    assert (await commands.run("echo $CREATED; sudo id -u")).stdout == "from create\n0\n"
    reader = await commands.run("cat", background=True, stdin=True)
    again = await commands.connect(reader.pid)
    await reader.disconnect()
    await commands.send_stdin(reader.pid, "typed")
    await commands.close_stdin(reader.pid)
    assert (await again.wait()).stdout == "typed"
    sleeper = await commands.run("sleep 1000", background=True)
    assert await commands.kill(sleeper.pid)
    await raises_async(CommandExitException, sleeper.wait())


async def check_async_terminal(sandbox):
    shown = bytearray()
    first = asyncio.Event()

    def on_data(data):
        shown.extend(data)
        if b"24 80" in shown:
            first.set()

    terminal = await sandbox.pty.create(PtySize(rows=24, cols=80), on_data)
    await sandbox.pty.send_stdin(terminal.pid, b"stty size\n")
    await asyncio.wait_for(first.wait(), 10)
    await sandbox.pty.resize(terminal.pid, PtySize(rows=40, cols=120))
    await sandbox.pty.send_stdin(terminal.pid, b"stty size; exit\n")
    await terminal.wait()
    assert b"40 120" in shown, shown


async def check_async_files(sandbox):
    files = sandbox.files
    removed = asyncio.Event()
    events = []

    def on_event(event):
        events.append((event.name, event.type))
        if event.type == FilesystemEventType.REMOVE:
            removed.set()

    await files.make_dir("watched")
    handle = await files.watch_dir("watched", on_event)
    await files.write("watched/new", BLOB)
    assert bytes(await files.read("watched/new", format="bytes")) == BLOB
    await files.remove("watched/new")
    await asyncio.wait_for(removed.wait(), 10)
    await handle.stop()
    assert events[0] == ("new", FilesystemEventType.CREATE), events
    assert ("new", FilesystemEventType.WRITE) in events, events
    assert await files.list("watched") == [] and await files.exists("watched")


async def asynchronous():
    tag = uuid.uuid4().hex
    sandbox = await AsyncSandbox.create(timeout=120, metadata={"test": tag}, envs={"CREATED": "from create"})
    await check_async_commands(sandbox)
    await check_async_terminal(sandbox)
    await check_async_files(sandbox)
    pages = AsyncSandbox.list(query=SandboxQuery(metadata={"test": tag}))
    assert [item.sandbox_id for item in await pages.next_items()] == [sandbox.sandbox_id]
    assert not pages.has_next
    await sandbox.pause()
    same = await AsyncSandbox.connect(sandbox.sandbox_id, timeout=100)
    assert (await same.get_info()).state.value == "running"
    assert await same.kill()
    await raises_async(SandboxNotFoundException, AsyncSandbox.connect(sandbox.sandbox_id))
    await raises_async(AuthenticationException, AsyncSandbox.create(api_key=INVALID_KEY))


async def with_own_loop():
    await asyncio.wait_for(asynchronous(), 120)


if __name__ == "__main__":
    assert "E2B_API_KEY" in os.environ
    synchronous()
    asyncio.run(with_own_loop())
    names.passed()
