"""
Every operation of the OpenAPI document has a method, every field of a response a field of a dataclass, and every parameter and field
of a request an argument.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Set, Tuple
from urllib.parse import parse_qs, urlsplit

import pytest

from sandboxd import Execution, Sandbox, Sandboxd, SandboxdError, models
from scripted import Handler, Received, Service, answer

FOLDER = Path(__file__).resolve().parent / "aio"
SOURCE = Path(__file__).resolve().parents[3] / "docs" / "openapi.json"
if not SOURCE.exists():
    pytest.skip("needs docs/openapi.json of the repository", allow_module_level=True)
DOCUMENT: Dict[str, Any] = json.loads(SOURCE.read_text(encoding="utf-8"))
SANDBOX = "sb_01234567890123456789"
SNAPSHOT = "snap_01234567890123456789"
TEMPLATE = "tpl_01234567890123456789"
ID = "ev_0000000000000001"
RUN: Dict[str, Any] = {"run_id": "run_1"}
FILE: Dict[str, Any] = {"auto_resume": False, **RUN}
LIST: Dict[str, Any] = {"kinds": ["exec.*"], "run": "r", "since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"}
COMMAND: Dict[str, Any] = {"cwd": "/", "env": {}, "user": "u", "stdin": "", "timeout": 1, **FILE}
CREATE: Dict[str, Any] = {
    "cpu": 2,
    "memory_mb": 2048,
    "disk_mb": 5120,
    "env": {},
    "workdir": "/",
    "timeout": 1,
    "on_timeout": "pause",
    "auto_resume": False,
    "idle_timeout": 0,
    "name": "web",
    "metadata": {},
    "egress": {"default": "deny", "allow": [], "allowNetworks": [], "denyNetworks": []},
    "ingress": {"allowPorts": []},
    "isolation": "container",
    "cold": True,
}
BUILD: Dict[str, Any] = {
    "dockerfile": "FROM a",
    "dockerfile_path": "b",
    "build_args": {},
    "start_command": "c",
    "ready_command": "d",
    "ready_timeout": 1,
    "no_cache": True,
    "idempotency_key": "k",
    **{name: CREATE[name] for name in ("cpu", "memory_mb", "disk_mb", "egress", "ingress", "isolation")},
    **{name: CREATE[name] for name in ("timeout", "metadata")},
}
NOT_SENT = {"lastEventId", "encoding"}
"""The header `Last-Event-ID` has the value of the first. Output is text here, whose bytes a file would have."""
NOT_PARSED = {"ErrorBody", "ErrorObject", "ErrorCode"}
"""Objects that the errors of the SDK replace."""
EVENT: Dict[str, Any] = {
    "id": "ev_0000000000000002",
    "timestamp": "t",
    "type": "exec.started",
    "sandboxId": SANDBOX,
    "runId": "",
    "data": {},
}
DONE: Dict[str, Any] = {"durationMs": 1, "exitCode": 0, "signal": None}


@dataclasses.dataclass
class Target:
    """The objects whose methods send the requests."""

    client: Sandboxd
    sandbox: Sandbox
    execution: Execution


def first(items: Any) -> Any:
    """The first item of an iterator that is closed afterwards."""
    with items as entered:
        return next(iter(entered), None)


CALLS: Dict[str, List[Callable[[Target], object]]] = {
    "listEvents": [
        lambda t: t.client.events.list(sandbox_id=SANDBOX, after=ID, before=ID, newest_first=True, **LIST).page(1),
        lambda t: first(t.client.events.follow(after=ID, **LIST)),
    ],
    "health": [lambda t: t.client.health()],
    "listImages": [lambda t: t.client.images.list().page(1), lambda t: t.client.images.get("a")],
    "openapi": [lambda t: t.client.openapi()],
    "listSandboxes": [
        lambda t: t.client.sandboxes.list(state="running", image="a", metadata={"userId": "u"}, details=True).page(1)
    ],
    "createSandbox": [lambda t: t.client.sandboxes.create("ubuntu:24.04", **CREATE)],
    "terminateSandbox": [lambda t: t.sandbox.terminate()],
    "getSandbox": [lambda t: t.sandbox.refresh()],
    "listSandboxEvents": [
        lambda t: t.sandbox.events.list(after=ID, before=ID, newest_first=True, **LIST).page(1),
        lambda t: first(t.sandbox.events.follow(after=ID, **LIST)),
    ],
    "postEvents": [
        lambda t: t.sandbox.events.post([models.EventBody(run_id="r", type="agent.error", data={}, timestamp="t")])
    ],
    "execute": [
        lambda t: t.sandbox.execute("true", **COMMAND),
        lambda t: t.sandbox.start("true", open_stdin=True, reader_timeout=1, **COMMAND),
        lambda t: first(t.sandbox.stream("true", line_ends=True)),
    ],
    "listExecutions": [lambda t: t.sandbox.executions.list().page(1)],
    "cancelExecution": [lambda t: t.execution.cancel(auto_resume=False)],
    "getExecution": [lambda t: t.execution.refresh()],
    "attachTerminal": [lambda t: t.execution.attach(after=1, auto_resume=False)],
    "getOutput": [
        lambda t: t.execution.output(after="1.0"),
        lambda t: first(t.execution.follow(after="1.0", line_ends=True)),
    ],
    "signalExecution": [lambda t: t.execution.signal("SIGINT", auto_resume=False)],
    "writeStdin": [lambda t: t.execution.write_stdin("x", close=True, auto_resume=False)],
    "deleteFile": [lambda t: t.sandbox.files.remove("a", recursive=True, **FILE)],
    "readFile": [lambda t: t.sandbox.files.read("a", start=1, end=2, if_range='"e"', **FILE)],
    "writeFile": [lambda t: t.sandbox.files.write("a", "x", parents=True, mode=0o600, **FILE)],
    "fileExists": [lambda t: t.sandbox.files.exists("a", auto_resume=False)],
    "listFiles": [lambda t: t.sandbox.files.list("a", auto_resume=False).page(1)],
    "makeDirectory": [lambda t: t.sandbox.files.mkdir("a", recursive=True, mode=0o700, **FILE)],
    "moveFile": [lambda t: t.sandbox.files.move("a", "b", overwrite=True, **FILE)],
    "statFile": [lambda t: t.sandbox.files.stat("a", follow=True, auto_resume=False)],
    "watchFiles": [lambda t: first(t.sandbox.files.watch("a", recursive=True, auto_resume=False))],
    "packDirectory": [lambda t: t.sandbox.files.pack("a", **FILE).close()],
    "unpackArchive": [lambda t: t.sandbox.files.unpack("a", b"", **FILE)],
    "getNetwork": [lambda t: t.sandbox.network.get()],
    "changeNetwork": [
        lambda t: t.sandbox.network.update(
            default="deny", allow=["a"], allow_networks=["192.0.2.0/24"], deny_networks=[], allow_ports=[1]
        )
    ],
    "pauseSandbox": [lambda t: t.sandbox.pause(hibernate=True)],
    "resumeSandbox": [lambda t: t.sandbox.resume(cold=True, adopt=True)],
    "getMetrics": [
        lambda t: t.sandbox.metrics(start="2026-01-01T00:00:00Z", end=datetime(2026, 1, 2, tzinfo=timezone.utc))
    ],
    "setTimeout": [lambda t: t.sandbox.set_timeout(0)],
    "takeSnapshot": [lambda t: t.sandbox.snapshot("a", metadata={}, memory=False)],
    "rollbackSandbox": [lambda t: t.sandbox.rollback(SNAPSHOT)],
    "forkSandbox": [lambda t: t.sandbox.fork(1, env={}, name="a", metadata={}, memory=True)],
    "listSnapshots": [
        lambda t: t.client.snapshots.list(sandbox_id=SANDBOX, name="a", metadata={"userId": "u"}).page(1)
    ],
    "getSnapshot": [lambda t: t.client.snapshots.get(SNAPSHOT)],
    "deleteSnapshot": [lambda t: t.client.snapshots.delete(SNAPSHOT)],
    "createTemplate": [
        lambda t: t.client.templates.start("a", models.BuildContext("t", "ctx_01234567", 1), **BUILD)
    ],
    "uploadBuildContext": [lambda t: t.client.templates.upload_context(FOLDER, dockerfile_path=None)],
    "listTemplates": [
        lambda t: t.client.templates.list(name="a", state="ready", metadata={"userId": "u"}).page(1)
    ],
    "getTemplate": [lambda t: t.client.templates.get(TEMPLATE)],
    "deleteTemplate": [lambda t: t.client.templates.delete(TEMPLATE)],
    "cancelTemplate": [lambda t: t.client.templates.cancel(TEMPLATE)],
    "followTemplateLogs": [lambda t: first(t.client.templates.logs(TEMPLATE, after="1"))],
    "listPorts": [lambda t: t.sandbox.ports.list()],
    "exposePort": [lambda t: t.sandbox.ports.expose(1, visibility="public", auto_resume=False)],
    "createContext": [lambda t: t.sandbox.contexts.create("bash", cwd="/")],
    "listContexts": [lambda t: t.sandbox.contexts.list()],
    "removeContext": [lambda t: t.sandbox.contexts.remove("c")],
    "restartContext": [lambda t: t.sandbox.contexts.restart("c")],
    "runCode": [
        lambda t: t.sandbox.run_code(
            "1", language="bash", context="c", env={}, timeout=1, auto_resume=False, run_id="run_1"
        ),
    ],
    "closePort": [lambda t: t.sandbox.ports.close(1)],
    "createPortToken": [lambda t: t.sandbox.ports.token(1, expires_in=1)],
    "openTerminal": [
        lambda t: t.sandbox.terminal(
            cols=1, rows=1, command="", cwd="/", env={}, user="u", timeout=1, auto_resume=False, run_id="r"
        )
    ],
    "getInfo": [lambda t: t.client.info()],
    "getUsage": [lambda t: t.client.usage()],
}
"""The calls of each operation. Together they use all arguments."""


def respond(received: Received, handler: Handler) -> None:
    if received.headers.get("accept") == "text/event-stream":
        name, data = ("event", EVENT) if "/events" in received.path else ("done", DONE)
        text = f"id: {EVENT['id']}\nevent: {name}\ndata: {json.dumps(data)}\n\n"
        handler.send(200, {"content-type": "text/event-stream"}, text.encode())
    else:
        # Which objects come back does not matter here, because requests are compared.
        answer(200, {})(received, handler)


def requests_of(operation: str) -> List[Received]:
    with Service(respond) as service:
        with Sandboxd(**{**service.settings, "timeout": 0.5}, retries=0) as client:
            sandbox = client.sandboxes.connect(SANDBOX)
            target = Target(client, sandbox, sandbox.executions.handle("ex_01234567890123456789"))
            for call in CALLS.get(operation, []):
                try:
                    call(target)
                except SandboxdError:
                    pass
    return service.received


@pytest.fixture(scope="module")
def sent() -> Dict[str, List[Received]]:
    return {operation: requests_of(operation) for operation in CALLS}


def operations(document: Dict[str, Any]) -> Iterator[Tuple[str, str, Dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if isinstance(operation, dict) and "operationId" in operation:
                yield path, method.upper(), operation


def resolved(document: Dict[str, Any], schema: Dict[str, Any]) -> Dict[str, Any]:
    if "$ref" in schema:
        return dict(document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]])
    return schema


def fields_of(document: Dict[str, Any], schema: Dict[str, Any]) -> Set[str]:
    """The names of the fields of a request, also below."""
    schema = resolved(document, schema)
    fields = set(schema.get("properties", {}))
    below = [*schema.get("properties", {}).values(), *schema.get("oneOf", [])]
    if "items" in schema:
        below.append(schema["items"])
    return fields.union(*(fields_of(document, each) for each in below))


def names_in(value: Any) -> Set[str]:
    if isinstance(value, dict):
        return set(value).union(*(names_in(each) for each in value.values()))
    return set().union(*(names_in(each) for each in value)) if isinstance(value, list) else set()


def missing_arguments(document: Dict[str, Any], sent: Dict[str, List[Received]]) -> List[str]:
    """What the operations accept and no call sends."""
    missing: List[str] = []
    for path, method, operation in operations(document):
        name = operation["operationId"]
        pattern = re.compile(re.sub(r"\{\w+\}", "[^/]+", path))
        of_path = [
            request
            for request in sent.get(name, [])
            if request.method == method and pattern.fullmatch(urlsplit(request.path).path)
        ]
        if not of_path:
            missing.append(name)
            continue
        used = {key for request in of_path for key in parse_qs(urlsplit(request.path).query, keep_blank_values=True)}
        headers = {header for request in of_path for header in request.headers}
        for parameter in operation.get("parameters", []):
            is_used = {
                "path": True,
                "query": parameter["name"] in used,
                "header": parameter["name"].lower() in headers,
            }[parameter["in"]]
            if not is_used and parameter["name"] not in NOT_SENT:
                missing.append(f"{name} {parameter['name']}")
        body = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if body is not None:
            fields = set().union(*(names_in(json.loads(request.body)) for request in of_path))
            missing += [f"{name} {field}" for field in sorted(fields_of(document, body["schema"]) - fields)]
    return missing


def response_schemas(document: Dict[str, Any]) -> Set[str]:
    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str) and "/schemas/" in value["$ref"]:
                yield value["$ref"].rsplit("/", 1)[1]
            for each in value.values():
                yield from references(each)
        elif isinstance(value, list):
            for each in value:
                yield from references(each)

    found: Set[str] = {"Done"}
    for _, _, operation in operations(document):
        for status, response in operation["responses"].items():
            if status.startswith("2"):
                found.update(references(response.get("content", {})))
    waiting = list(found)
    while waiting:
        for name in references(document["components"]["schemas"][waiting.pop()]):
            if name not in found:
                found.add(name)
                waiting.append(name)
    return found - NOT_PARSED


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def missing_fields(document: Dict[str, Any]) -> List[str]:
    """What responses contain and no dataclass has."""
    missing: List[str] = []
    for name in sorted(response_schemas(document)):
        properties = document["components"]["schemas"][name].get("properties")
        if properties is None:
            continue
        model = getattr(models, name, None)
        if model is None:
            missing.append(name)
            continue
        fields = {field.name for field in dataclasses.fields(model)}
        missing += [f"{name} {field}" for field in properties if snake_case(field) not in fields]
    return missing


def test_every_operation_parameter_and_field_of_a_request_is_sent(sent: Dict[str, List[Received]]) -> None:
    assert sorted(CALLS) == sorted(operation["operationId"] for _, _, operation in operations(DOCUMENT))
    assert missing_arguments(DOCUMENT, sent) == []


def test_every_field_of_a_response_is_a_field_of_a_dataclass() -> None:
    assert missing_fields(DOCUMENT) == []


def test_additions_to_the_document_are_noticed(sent: Dict[str, List[Received]]) -> None:
    document = copy.deepcopy(DOCUMENT)
    schemas = document["components"]["schemas"]
    schemas["Execution"]["properties"]["coreDumped"] = {"type": "boolean"}
    schemas["Quota"]["properties"]["resetAt"] = {"type": "string"}
    schemas["Novelty"] = {"type": "object", "properties": {"a": {"type": "string"}}}
    schemas["Health"]["properties"]["novelty"] = {"$ref": "#/components/schemas/Novelty"}
    assert missing_fields(document) == ["Execution coreDumped", "Health novelty", "Novelty", "Quota resetAt"]

    schemas["CreateEgress"]["properties"]["deny"] = {"type": "array"}
    schemas["DetachedBody"]["properties"]["nice"] = {"type": "integer"}
    files = document["paths"]["/v1/sandboxes/{id}/files"]
    files["get"]["parameters"].append({"name": "charset", "in": "query"})
    files["put"]["parameters"].append({"name": "If-Match", "in": "header"})
    document["paths"]["/v1/sandboxes/{id}/clone"] = {"post": {"operationId": "cloneSandbox", "responses": {}}}
    expected = {
        "createSandbox deny",
        "createTemplate deny",
        "changeNetwork deny",
        "execute nice",
        "readFile charset",
        "writeFile If-Match",
        "cloneSandbox",
    }
    assert set(missing_arguments(document, sent)) == expected
