"""A context: one kernel, its language and its working directory. Executions in a context run one after the other.

```
starting -> idle <-> busy -> (interrupt: idle within INTERRUPT_S, else a new kernel) -> closed
```
If a kernel dies, the execution ends with an error that says so, and a new kernel takes its place without the state of
the old one.
"""

import asyncio
import contextlib
import errno
import functools
import os
import tempfile
import time
import uuid
from queue import Empty

import zmq.asyncio
from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
from jupyter_client.manager import AsyncKernelManager

from .output import Output, error

START_S = 60
INTERRUPT_S = 5
# How long a starting kernel may take to announce a request before it is asked again.
ANNOUNCE_S = 0.3
# How often a running execution checks that its kernel is alive.
ALIVE_S = 0.1
KEEPALIVE_S = 5
QUEUE = 64
# The status of a request whose kernel was replaced while it started.
REPLACED = 409
# More than the files that a kernel writes when it starts.
KERNEL_FILES_BYTES = 256 << 10

ALIASES = {
    "python": "sandboxd-python",
    "python3": "sandboxd-python",
    "py": "sandboxd-python",
    "javascript": "sandboxd-javascript",
    "js": "sandboxd-javascript",
    "node": "sandboxd-javascript",
    "bash": "sandboxd-bash",
    "sh": "sandboxd-bash",
    "shell": "sandboxd-bash",
}
CANONICAL = {"sandboxd-python": "python", "sandboxd-javascript": "javascript", "sandboxd-bash": "bash"}

# Without a limit, because a full queue drops messages, also the one that ends an execution.
SOCKETS = zmq.asyncio.Context()
SOCKETS.rcvhwm = 0


@functools.lru_cache(maxsize=1)
def runtime_dir():
    """A directory for connection files and sockets, which only this user can access."""
    return tempfile.mkdtemp(prefix="code-interpreter-")


class Refused(Exception):
    """A request that cannot be met: status and message."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


def check_disk():
    """Refuses to start a kernel on a full disk: it would start, and fail at its first execution."""
    try:
        with tempfile.TemporaryFile(dir=runtime_dir()) as file:
            file.write(bytes(KERNEL_FILES_BYTES))
    except OSError as cause:
        if cause.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Refused(507, "the disk of the sandbox is full") from None
        raise


def kernel_name(language):
    """The name of the kernel for a language."""
    name = ALIASES.get(language.lower(), language)
    try:
        KernelSpecManager().get_kernel_spec(name)
    except (NoSuchKernel, ValueError):
        known = ", ".join(sorted(set(CANONICAL.values())))
        raise Refused(400, f"language is {language!r:.100}; allowed: {known}, or the name of an installed kernel") from None
    return name


class Context:
    def __init__(self, language, cwd, context_id=None):
        self.kernel = kernel_name(language)
        self.language = CANONICAL.get(self.kernel, self.kernel)
        if not os.path.isdir(cwd):
            raise Refused(400, f"cwd is {cwd!r:.200}; allowed: an existing directory")
        self.cwd = cwd
        self.id = context_id or str(uuid.uuid4())
        self.lock = asyncio.Lock()
        self.waiting = 0
        self.manager = None
        self.client = None
        self.is_closed = False
        # Whether a kernel was ended with its state since the last execution.
        self.lost_state = False

    def view(self):
        return {"id": self.id, "language": self.language, "cwd": self.cwd}

    async def start(self):
        """Starts the kernel if none runs."""
        async with self.lock:
            await self.ensure()

    async def ensure(self):
        if self.is_closed:
            raise Refused(404, f"context {self.id} was removed")
        if self.manager is not None and await self.manager.is_alive():
            return
        await self.drop()
        check_disk()
        # Without these the sockets would be in the working directory of each process.
        path = os.path.join(runtime_dir(), uuid.uuid4().hex)
        manager = AsyncKernelManager(
            kernel_name=self.kernel, transport="ipc", ip=path, connection_file=path + ".json", context=SOCKETS
        )
        await manager.start_kernel(cwd=self.cwd)
        self.manager, self.client = manager, manager.client()
        self.client.start_channels(stdin=False, hb=False)
        try:
            await self.wait_for_ready()
        except asyncio.CancelledError:
            # A closed socket cancels what waits for it, as a client that disconnects cancels this task.
            if self.manager is not manager:
                raise Refused(REPLACED, f"context {self.id} was restarted or removed meanwhile") from None
            await self.drop()
            raise
        except BaseException:
            await self.drop()
            raise

    async def wait_for_ready(self):
        """Waits until the kernel answers and its output channel delivers, which is subscribed asynchronously."""
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            request = self.client.kernel_info()
            if await self.is_announced(request):
                return
            if not await self.manager.is_alive():
                break
        raise Refused(500, f"the kernel for {self.language} did not start; see /var/log/code-interpreter.log inside")

    async def is_announced(self, request):
        until = time.monotonic() + ANNOUNCE_S
        while time.monotonic() < until:
            try:
                message = await self.client.get_iopub_msg(timeout=ANNOUNCE_S)
            except Empty:
                return False
            if message["parent_header"].get("msg_id") == request and message["msg_type"] == "status":
                if message["content"].get("execution_state") == "idle":
                    return True
        return False

    async def drop(self):
        """Kills the kernel."""
        manager, client = self.manager, self.client
        self.manager = self.client = None
        if client is not None:
            client.stop_channels()
        if manager is not None:
            with contextlib.suppress(Exception):
                await manager.shutdown_kernel(now=True)

    async def close(self):
        self.is_closed = True
        await self.drop()

    async def restart(self):
        """Ends what runs, and the kernel with it."""
        await self.drop()
        async with self.lock:
            await self.ensure()

    async def execute(self, code, env_vars, emit):
        """Runs code and passes its events to `emit`, which must not block: the kernel's messages are always read.

        Cancelling the task interrupts the kernel.
        """
        if self.waiting >= QUEUE:
            raise Refused(429, f"{QUEUE} executions wait in context {self.id} already")
        self.waiting += 1
        try:
            await self.lock.acquire()
        finally:
            self.waiting -= 1
        try:
            try:
                await self.ensure()
            except Refused as refused:
                if refused.status != REPLACED:
                    raise
                emit(error("KernelDied", RESTARTED))
                emit({"type": "end_of_execution"})
                return
            if self.lost_state:
                self.lost_state = False
                emit({"type": "stderr", "text": LOST, "timestamp": time.time_ns()})
            await self.run(code, env_vars, emit)
        finally:
            self.lock.release()

    async def run(self, code, env_vars, emit):
        manager, client = self.manager, self.client
        request = client.session.msg(
            "execute_request",
            {
                "code": code,
                "silent": False,
                "store_history": True,
                "user_expressions": {},
                "allow_stdin": False,
                "stop_on_error": False,
            },
            metadata={"env_vars": env_vars} if env_vars else {},
        )
        client.shell_channel.send(request)
        name = request["header"]["msg_id"]
        try:
            await self.follow(name, manager, client, emit)
        except KernelDied as died:
            await self.replace(died.args[0], emit)
        except asyncio.CancelledError:
            # A closed socket cancels what waits for it, as a client that disconnects cancels this task.
            if self.manager is manager:
                await asyncio.shield(self.interrupt(name, manager, client))
                raise
            await self.replace(RESTARTED, emit)
        emit({"type": "end_of_execution"})

    async def replace(self, why, emit):
        """Reports the end of the kernel and starts a new one, unless the context was removed."""
        emit(error("KernelDied", why))
        with contextlib.suppress(Exception):
            await self.ensure()

    async def follow(self, request, manager, client, emit):
        """Passes on the output of a request until the kernel is idle."""
        output, quiet_since = Output(), time.monotonic()
        while True:
            try:
                message = await client.get_iopub_msg(timeout=ALIVE_S)
            except Empty:
                if self.manager is not manager:
                    raise KernelDied(RESTARTED) from None
                if not await manager.is_alive():
                    raise KernelDied(death(manager)) from None
                if time.monotonic() - quiet_since >= KEEPALIVE_S:
                    quiet_since = time.monotonic()
                    emit({"type": "keepalive"})
                continue
            except (zmq.ZMQError, AttributeError, RuntimeError):
                raise KernelDied(RESTARTED) from None
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content.get("execution_state") == "idle":
                break
            for event in output.events(kind, content):
                quiet_since = time.monotonic()
                emit(event)
        # The reply has nothing new, but an unread one would stay in the socket.
        with contextlib.suppress(Exception):
            while (await client.get_shell_msg(timeout=5))["parent_header"].get("msg_id") != request:
                pass

    async def interrupt(self, request, manager, client):
        """Ends what runs: by an interrupt, or by a new kernel if it resists."""
        if self.manager is not manager:
            return
        try:
            await manager.interrupt_kernel()
            await asyncio.wait_for(self.follow(request, manager, client, lambda event: None), INTERRUPT_S)
        except Exception:
            if self.manager is manager:
                self.lost_state = True
                await self.drop()


LOST = "[the kernel did not react to an interrupt and was replaced; the state of this context is lost]\n"
RESTARTED = "the context was restarted or removed during the execution"


class KernelDied(Exception):
    pass


def memory_limit():
    """The memory of the sandbox, for the message; empty if it is unknown: only a file of lxcfs has it, another that of the host."""
    if not os.path.ismount("/proc/meminfo"):
        return ""
    try:
        with open("/proc/meminfo") as file:
            kilobytes = int(file.readline().split()[1])
    except (OSError, ValueError, IndexError):
        return ""
    return f": the sandbox has {round(kilobytes / 1024)} MB (resources.memoryMb)"


def death(manager):
    process = getattr(manager.provisioner, "process", None)
    code = process.poll() if process is not None else None
    if code is None:
        how = "ended"
    elif code < 0:
        how = f"was killed by signal {-code}" + (f", probably because memory ran out{memory_limit()}" if code == -9 else "")
    else:
        how = f"ended with exit code {code}"
    return f"the kernel {how}; its state is lost, and a new kernel takes its place"
