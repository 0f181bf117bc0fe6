"""Each operation is sent as `sdk/cases/operations.json` says: its retries, its idempotency key and its timeout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import httpx
import pytest

from sandboxd import Sandbox, Sandboxd, SandboxdError
from sandboxd._retry import Answered, Failed, Safety, may_repeat
from sandboxd._sync import _transport
from sandboxd._sync._code import START_TIMEOUT
from scripted import SANDBOX

ROOT = Path(__file__).resolve().parents[3]
CASES: List[Dict[str, Any]] = json.loads((ROOT / "sdk/cases/operations.json").read_text(encoding="utf-8"))["cases"]
FOLDER = Path(__file__).resolve().parent / "aio"
TIMEOUT = 20.0
COMMAND = 7.0
Use = Callable[[Sandboxd, Sandbox], object]
USES: Dict[Tuple[str, str], Use] = {
    ("cancelExecution", ""): lambda _, sandbox: sandbox.executions.handle("ex_1").cancel(),
    ("cancelTemplate", ""): lambda client, _: client.templates.cancel("tpl_1"),
    ("changeNetwork", ""): lambda _, sandbox: sandbox.network.update(default="deny"),
    ("createContext", ""): lambda _, sandbox: sandbox.contexts.create(),
    ("listContexts", ""): lambda _, sandbox: sandbox.contexts.list(),
    ("removeContext", ""): lambda _, sandbox: sandbox.contexts.remove("c"),
    ("restartContext", ""): lambda _, sandbox: sandbox.contexts.restart("c"),
    ("runCode", ""): lambda _, sandbox: sandbox.run_code("1", timeout=COMMAND),
    ("runCode", "stream"): lambda _, sandbox: sandbox.run_code("1", timeout=COMMAND, on_stdout=print),
    ("closePort", ""): lambda _, sandbox: sandbox.ports.close(80),
    ("createPortToken", ""): lambda _, sandbox: sandbox.ports.token(80),
    ("createSandbox", ""): lambda client, _: client.sandboxes.create("i"),
    ("createTemplate", ""): lambda client, _: client.templates.start("web", dockerfile="FROM a"),
    ("deleteFile", ""): lambda _, sandbox: sandbox.files.remove("f"),
    ("deleteSnapshot", ""): lambda client, _: client.snapshots.delete("snap_1"),
    ("deleteTemplate", ""): lambda client, _: client.templates.delete("tpl_1"),
    ("execute", ""): lambda _, sandbox: sandbox.execute("x", timeout=COMMAND),
    ("execute", "stream"): lambda _, sandbox: sandbox.stream("x", timeout=COMMAND).start(),
    ("execute", "detached"): lambda _, sandbox: sandbox.start("x", timeout=COMMAND),
    ("execute", "killed_on_cancel"): lambda _, sandbox: sandbox.execute("x", timeout=COMMAND, killed_on_cancel=True),
    ("exposePort", ""): lambda _, sandbox: sandbox.ports.expose(80),
    ("fileExists", ""): lambda _, sandbox: sandbox.files.exists("f"),
    ("followTemplateLogs", ""): lambda client, _: once(client.templates.logs("tpl_1")),
    ("forkSandbox", ""): lambda _, sandbox: sandbox.fork(2),
    ("getExecution", ""): lambda _, sandbox: sandbox.executions.get("ex_1"),
    ("getInfo", ""): lambda client, _: client.info(),
    ("getMetrics", ""): lambda _, sandbox: sandbox.metrics(),
    ("getNetwork", ""): lambda _, sandbox: sandbox.network.get(),
    ("getOutput", ""): lambda _, sandbox: sandbox.executions.handle("ex_1").output(),
    ("getOutput", "stream"): lambda _, sandbox: once(sandbox.executions.handle("ex_1").follow()),
    ("getSandbox", ""): lambda _, sandbox: sandbox.refresh(),
    ("getSnapshot", ""): lambda client, _: client.snapshots.get("snap_1"),
    ("getTemplate", ""): lambda client, _: client.templates.get("tpl_1"),
    ("getUsage", ""): lambda client, _: client.usage(),
    ("health", ""): lambda client, _: client.health(),
    ("listEvents", ""): lambda client, _: client.events.list().page(),
    ("listEvents", "stream"): lambda client, _: client.events.follow().start(),
    ("listExecutions", ""): lambda _, sandbox: sandbox.executions.list().page(),
    ("listFiles", ""): lambda _, sandbox: sandbox.files.list("d").page(),
    ("listImages", ""): lambda client, _: client.images.list().page(),
    ("listPorts", ""): lambda _, sandbox: sandbox.ports.list(),
    ("listSandboxEvents", ""): lambda _, sandbox: sandbox.events.list().page(),
    ("listSandboxEvents", "stream"): lambda _, sandbox: sandbox.events.follow().start(),
    ("listSandboxes", ""): lambda client, _: client.sandboxes.list().page(),
    ("listSnapshots", ""): lambda client, _: client.snapshots.list().page(),
    ("listTemplates", ""): lambda client, _: client.templates.list().page(),
    ("makeDirectory", ""): lambda _, sandbox: sandbox.files.mkdir("d"),
    ("makeDirectory", "recursive"): lambda _, sandbox: sandbox.files.mkdir("d", recursive=True),
    ("moveFile", ""): lambda _, sandbox: sandbox.files.move("f", "g"),
    ("openTerminal", ""): lambda _, sandbox: sandbox.terminal(),
    ("openapi", ""): lambda client, _: client.openapi(),
    ("packDirectory", ""): lambda _, sandbox: sandbox.files.pack("d"),
    ("pauseSandbox", ""): lambda _, sandbox: sandbox.pause(),
    ("postEvents", ""): lambda _, sandbox: sandbox.events.post([{"type": "agent.error", "data": {}}]),
    ("readFile", ""): lambda _, sandbox: sandbox.files.read("f"),
    ("resumeSandbox", ""): lambda _, sandbox: sandbox.resume(),
    ("rollbackSandbox", ""): lambda _, sandbox: sandbox.rollback("snap_1"),
    ("setTimeout", ""): lambda _, sandbox: sandbox.set_timeout(1),
    ("signalExecution", ""): lambda _, sandbox: sandbox.executions.handle("ex_1").signal("SIGINT"),
    ("statFile", ""): lambda _, sandbox: sandbox.files.stat("f"),
    ("takeSnapshot", ""): lambda _, sandbox: sandbox.snapshot(),
    ("terminateSandbox", ""): lambda _, sandbox: sandbox.terminate(),
    ("unpackArchive", ""): lambda _, sandbox: sandbox.files.unpack("d", b"tar"),
    ("unpackArchive", "stream"): lambda _, sandbox: sandbox.files.unpack("d", local_file()),
    ("uploadBuildContext", ""): lambda client, _: client.templates.upload_context(b"tar"),
    ("uploadBuildContext", "stream"): lambda client, _: client.templates.upload_context(FOLDER, dockerfile_path=None),
    ("watchFiles", ""): lambda _, sandbox: sandbox.files.watch("d").start(),
    ("writeFile", ""): lambda _, sandbox: sandbox.files.write("f", b"x"),
    ("writeFile", "stream"): lambda _, sandbox: sandbox.files.write("f", local_file()),
    ("writeStdin", ""): lambda _, sandbox: sandbox.executions.handle("ex_1").write_stdin("x"),
}


def local_file() -> Path:
    """A file, which is sent as a stream."""
    return Path(__file__)


def once(followed: Any) -> None:
    """A single connection, as the stream itself tries again."""
    followed._open()


def rows() -> List[Any]:
    """The operations and their variants."""
    found: List[Any] = []
    for case in CASES:
        for row in [case, *case.get("variants", [])]:
            if row["safety"] != "none":
                operation, variant = case["operation"], row.get("variant", "")
                found.append(pytest.param(operation, variant, row, id=f"{operation} {variant}".strip()))
    return found


@pytest.mark.parametrize(("operation", "variant", "row"), rows())
def test_operations_are_sent_as_the_table_says(
    operation: str, variant: str, row: Dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_transport, "sleep", lambda seconds: None)
    faults: List[Tuple[Any, Callable[[], httpx.Response]]] = [
        (Failed.NOT_SENT, lambda: raised(httpx.ConnectError("refused"))),
        (Failed.LOST, lambda: raised(httpx.ReadError("cut"))),
        (Answered(500, "INTERNAL_ERROR"), lambda: failed(500, "INTERNAL_ERROR")),
        (Answered(503, "RESOURCE_EXHAUSTED"), lambda: failed(503, "RESOURCE_EXHAUSTED")),
        (Answered(507, "DISK_FULL"), lambda: failed(507, "DISK_FULL")),
    ]
    for fault, respond in faults:
        requests = sent(USES[operation, variant], respond)
        assert (len(requests) == 2) is may_repeat(Safety(row["safety"]), fault), fault
        keys = {request.headers.get("idempotency-key") for request in requests}
        assert len(keys) == 1 and (keys != {None}) is row["idempotency_key"], keys
        timeouts = requests[0].extensions["timeout"]
        limits = {"attempt+command": TIMEOUT + COMMAND, "kernel": START_TIMEOUT}
        assert timeouts.limit == limits.get(row["timeout"], TIMEOUT)


def sent(use: Use, respond: Callable[[], httpx.Response]) -> List[httpx.Request]:
    """The requests of a call that fails and may be retried once."""
    requests: List[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        request.read()
        requests.append(request)
        return respond()

    http = httpx.MockTransport(handle)
    with Sandboxd(url="http://127.0.0.1:9", api_key="k", timeout=TIMEOUT, retries=1, http=http) as client:
        with pytest.raises(SandboxdError):
            use(client, client.sandboxes.connect(SANDBOX))
    return requests


def raised(error: Exception) -> httpx.Response:
    raise error


def failed(status: int, code: str) -> httpx.Response:
    return httpx.Response(status, json={"error": {"code": code, "message": "m", "details": {}}})


def test_the_table_has_every_operation() -> None:
    paths = json.loads((ROOT / "docs/openapi.json").read_text(encoding="utf-8"))["paths"]
    operations = [each["operationId"] for path in paths.values() for each in path.values() if "operationId" in each]
    assert sorted(operations) == sorted(case["operation"] for case in CASES)
