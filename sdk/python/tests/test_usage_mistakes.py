"""Mistakes of callers are errors that say what to do, before a request is sent. The state of an object is that of its last call."""

from __future__ import annotations

import abc
import asyncio
import gc
import json
import pydoc
import signal
import warnings
from typing import Any, Callable, Dict, List, cast

import pytest

from sandboxd import AsyncSandbox, AsyncSandboxd, ExecutionEnded, InvalidArgument, InvalidState, Sandbox, Sandboxd, models
from scripted import EXECUTION, RESULT, SANDBOX, VIEW, Responder, Service, answer, failure

TERMINATED = {"id": SANDBOX, "state": "terminated", "terminatedAt": "t", "totalRuntimeMs": 5}
PAUSED = {"id": SANDBOX, "state": "paused", "pausedAt": "p", "runtimeDurationMs": 1}
RESUMED = {"id": SANDBOX, "state": "running", "resumedAt": "t", "pausedDurationMs": 1}


def unreachable() -> Sandboxd:
    return Sandboxd("http://127.0.0.1:9", "k", retries=0)


def test_the_view_has_the_state_of_the_last_call() -> None:
    with Service([answer(201, VIEW), answer(200, PAUSED), answer(200, RESUMED), answer(200, TERMINATED)]) as service:
        with Sandboxd(**service.settings) as client, client.sandboxes.create("i") as sandbox:
            sandbox.pause()
            assert sandbox.view is not None and (sandbox.view.state, sandbox.view.paused_at) == ("paused", "p")
            sandbox.resume()
            assert (sandbox.view.state, sandbox.view.paused_at) == ("running", None)
        assert "state='terminated'" in repr(sandbox)
        assert (sandbox.view.terminated_at, sandbox.view.expires_at) == ("t", None)


def test_a_repeated_terminate_returns_the_first_result() -> None:
    with Service([answer(200, TERMINATED)]) as service:
        with Sandboxd(**service.settings) as client:
            sandbox = client.sandboxes.connect(SANDBOX)
            first = sandbox.terminate()
            assert sandbox.terminate() is first and first.total_runtime_ms == 5 and len(service.received) == 1
    # Another sandbox may have the name by then.
    with Service([answer(200, TERMINATED)] * 2) as service:
        with Sandboxd(**service.settings) as client:
            named = client.sandboxes.connect("mine")
            named.terminate()
            named.terminate()
            assert len(service.received) == 2


def test_lists_of_unknown_states_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="state is 'dead'; expected one of running, paused, terminated, all"):
        unreachable().sandboxes.list(state="dead")


def test_a_closed_client_refuses_calls_but_cleans_up() -> None:
    with Service([answer(201, VIEW), answer(200, TERMINATED)]) as service:
        client = Sandboxd(**service.settings)
        with client.sandboxes.create("i") as sandbox:
            client.close()
            client.close()
            for call in (client.info, lambda: sandbox.execute("x"), sandbox.executions.handle("ex_1").attach):
                with pytest.raises(InvalidState, match="the client is closed"):
                    call()
        assert [each.method for each in service.received] == ["POST", "DELETE"]


async def test_a_closed_client_of_asyncio_refuses_calls() -> None:
    client = AsyncSandboxd("http://127.0.0.1:9", "k")
    await client.close()
    await client.close()
    with pytest.raises(InvalidState, match="the client is closed"):
        await client.info()


@pytest.mark.parametrize("kind", [Sandbox, AsyncSandbox])
def test_the_help_names_the_parts(kind: type) -> None:
    _check_parts(kind, ("files", "ports", "network", "events", "executions", "contexts"))


@pytest.mark.parametrize("kind", [Sandboxd, AsyncSandboxd])
def test_the_help_of_clients_names_the_parts(kind: type) -> None:
    _check_parts(kind, ("sandboxes", "images", "snapshots", "templates", "events"))


def _check_parts(kind: type, names: Any) -> None:
    text = pydoc.plain(pydoc.render_doc(kind))
    for name in names:
        described = getattr(kind, name)
        assert described.__doc__ in text and f"`{name}`" in (kind.__doc__ or "") and name in dir(kind)


def test_a_stream_that_is_never_read_warns() -> None:
    sandbox = unreachable().sandboxes.connect(SANDBOX)
    with pytest.warns(RuntimeWarning, match="the stream of 'make' was never iterated, so the command did not run"):
        sandbox.stream("make")
        gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sandbox.stream("make").close()
        gc.collect()


CREATE_HINTS = {
    "envs": "env=",
    "template": "the first argument, image",
    "timeout_ms": "timeout=, in seconds",
    "cpus": "cpu=",
    "network": "egress= and ingress=",
    "allow_internet_access": 'egress={"default": "deny"}, which denies all',
    "metdata": "metadata=",
}


@pytest.mark.parametrize("name", CREATE_HINTS)
def test_unknown_keywords_of_a_create_name_what_there_is(name: str) -> None:
    for create in (Sandbox.create, AsyncSandbox.create, unreachable().sandboxes.create):
        with pytest.raises(TypeError) as caught:
            create("i", **{name: 1})  # type: ignore[arg-type]
        assert str(caught.value) == f"create() got an unexpected keyword argument '{name}'; use {CREATE_HINTS[name]}"


def test_unknown_keywords_of_other_methods_name_what_there_is() -> None:
    sandbox: Any = unreachable().sandboxes.connect(SANDBOX)
    calls: Dict[str, Callable[[], object]] = {
        r"execute\(\) .*'workdir'; use cwd=$": lambda: sandbox.execute("x", workdir="/"),
        r"start\(\) .*'envs'; use env=$": lambda: sandbox.start("x", envs={}),
        r"list\(\) .*'type'; use kinds=$": lambda: sandbox.events.list(type="x"),
        r"run_code\(\) .*'check'; use the attribute exception": lambda: sandbox.run_code("1", check=True),
        r"update\(\) .*'egress'; use default=, allow=": lambda: sandbox.network.update(egress={}),
        r"update\(\) takes 0 positional arguments; name the others: default=, allow=": lambda: sandbox.network.update("deny"),
        r"execute\(\) takes 1 positional argument; name the others: cwd=": lambda: sandbox.execute("x", 5),
        r"list\(\) .*'status'$": lambda: sandbox.events.list(status="x"),
        r"follow\(\) .*'run_id'; use run=$": lambda: sandbox.events.follow(run_id="x"),
    }
    for match, call in calls.items():
        with pytest.raises(TypeError, match=match):
            call()


async def test_unknown_keywords_with_asyncio_name_what_there_is() -> None:
    sandbox: Any = AsyncSandboxd("http://127.0.0.1:9", "k").sandboxes.connect(SANDBOX)
    with pytest.raises(TypeError, match="use env=$"):
        await sandbox.execute("x", envs={})


def test_a_sandbox_without_arguments_says_how_one_is_made() -> None:
    for kind in (Sandbox, AsyncSandbox):
        with pytest.raises(TypeError, match=r"Sandbox\(\) has no arguments: create\(image\) makes a sandbox"):
            cast(Any, kind)()


def test_programs_derive_abstract_classes() -> None:
    class Own(Sandbox, abc.ABC):
        pass

    assert issubclass(Own, Sandbox)


def test_views_of_executions_have_the_id_of_the_object() -> None:
    view = models.Execution.from_json(EXECUTION)
    assert view.id == view.execution_id == EXECUTION["executionId"] and "id" not in view.to_dict()


def test_unknown_attributes_name_what_there_is() -> None:
    sandbox: Any = unreachable().sandboxes.connect(SANDBOX)
    result: Any = models.ExecutionResult.from_json(RESULT)
    code: Any = models.CodeExecution("c", 1, None, 1, [], "", "")
    reads: Dict[str, Callable[[], object]] = {
        "'name'; use view.name": lambda: sandbox.name,
        "'status'; use view.state": lambda: sandbox.status,
        "'returncode'; use exit_code": lambda: result.returncode,
        "'output'; use stdout": lambda: result.output,
        r"'stdout'; use output\(\)": lambda: sandbox.executions.handle("ex_1").stdout,
        "'sandbox_id'; use id": lambda: sandbox.sandbox_id,
        r"'list'; use Sandboxd\(\).sandboxes.list\(\)": lambda: cast(Any, Sandbox).list,
        r"'AsyncSandbox' has no attribute 'get'; use connect\(id\)": lambda: cast(Any, AsyncSandbox).get,
        "has no attribute 'nothing'$": lambda: cast(Any, Sandbox).nothing,
        r"'connect'; use get\(execution_id\)": lambda: sandbox.executions.connect,
        r"'create'; use sandbox.snapshot\(\)": lambda: cast(Any, unreachable().snapshots).create,
        r"'get'; use client\(port\)": lambda: sandbox.ports.get,
        r"'url'; use expose\(port\).url": lambda: sandbox.ports.url,
        "'check'; use execute": lambda: result.check,
        "'check'; use exception": lambda: code.check,
        "'upload'; use write": lambda: sandbox.files.upload,
    }
    for match, read in reads.items():
        with pytest.raises(AttributeError, match=match):
            read()


def test_arguments_of_other_types_are_refused_with_their_names() -> None:
    client: Any = unreachable()
    sandbox: Any = client.sandboxes.connect(SANDBOX)
    calls: Dict[str, Callable[[], object]] = {
        r"env\['A'\] is of the type float": lambda: client.sandboxes.create("i", env={"A": 1.5}),
        "cpu is '2'; expected a whole number": lambda: client.sandboxes.create("i", cpu="2"),
        "port is '8000'; expected a whole number": lambda: sandbox.ports.expose("8000"),
        "egress.allow is 'example.com'; expected a list": lambda: client.sandboxes.create("i", egress={"allow": "example.com"}),
        r"allowPorts\[0\] is '80'": lambda: client.sandboxes.create("i", ingress={"allowPorts": ["80"]}),
        "allow is 'example.com'; expected a list": lambda: sandbox.network.update(allow="example.com"),
        r"deny_networks\[0\] is 1": lambda: sandbox.network.update(deny_networks=[1]),
        r"env\['A'\] is of the type bool ": lambda: sandbox.execute("x", env={"A": True}),
        "stdin is not UTF-8; write a file": lambda: sandbox.execute("x", stdin=b"\xff"),
        "99 is no signal": lambda: sandbox.executions.handle("ex_1").signal(99),
    }
    for match, call in calls.items():
        with pytest.raises(InvalidArgument, match=match.strip()):
            call()


def test_arguments_with_one_clear_meaning_are_accepted() -> None:
    responders: List[Responder] = [answer(201, VIEW), answer(200, RESULT), *[answer(200, EXECUTION)] * 4]
    with Service(responders) as service, Sandboxd(**service.settings) as client:
        sandbox = client.sandboxes.create("i", env={"N": 3}, metadata={"job": 17})
        sandbox.execute("cat", stdin=cast(Any, b"in"), env={"M": -4}, timeout="2 minutes")
        execution = sandbox.executions.handle("ex_1")
        for name in ("INT", "sigint", signal.SIGINT, 2):
            execution.signal(name)
        bodies = [json.loads(each.body) for each in service.received]
    assert bodies[0] == {"image": "i", "env": {"N": "3"}, "metadata": {"job": "17"}}
    assert bodies[1] == {"command": "cat", "stdin": "in", "env": {"M": "-4"}, "timeoutMs": 120_000}
    assert bodies[2:] == [{"signal": "SIGINT"}] * 4


def test_input_for_a_command_that_has_ended_says_how_it_stays_open() -> None:
    with Service([failure(409, "EXECUTION_ENDED")]) as service, Sandboxd(**service.settings) as client:
        with pytest.raises(ExecutionEnded, match=r"open_stdin=True\) keeps standard input open"):
            client.sandboxes.connect(SANDBOX).executions.handle("ex_1").write_stdin("x")


def test_one_kind_of_events_may_be_a_text() -> None:
    page = {"data": [], "pagination": {"total": 0, "limit": 100, "offset": 0, "hasMore": False}}
    with Service([answer(200, page)]) as service:
        with Sandboxd(**service.settings) as client:
            assert client.events.list(kinds="network.refused").all() == []
        assert "type=network.refused" in service.received[0].path


@pytest.mark.filterwarnings("ignore:coroutine")
async def test_asyncio_without_await_says_what_is_missing() -> None:
    client: Any = AsyncSandboxd("http://127.0.0.1:9", "k")
    with pytest.raises(AttributeError, match="no attribute 'id' before it is created: await it, or use it in 'async with'"):
        client.sandboxes.create("i").id
    with pytest.raises(TypeError, match="use it in 'async with' instead of 'with', or await it"):
        with client.sandboxes.create("i"):
            pass
    for each in (client.sandboxes.list(), client.images.list(), client.events.list(), client.events.follow()):
        with pytest.raises(TypeError, match="is iterated with 'async for' instead of 'for'"):
            for _ in each:
                pass


def test_a_list_without_a_path_is_that_of_the_working_directory() -> None:
    page = {"data": [], "pagination": {"total": 0, "limit": 100, "offset": 0, "hasMore": False}}
    with Service([answer(200, page)]) as service:
        with Sandboxd(**service.settings) as client:
            assert client.sandboxes.connect(SANDBOX).files.list().all() == []
        assert "path=.&" in service.received[0].path


def test_hints_name_what_there_is_instead() -> None:
    client: Any = unreachable()
    sandbox = client.sandboxes.connect(SANDBOX)
    attributes: Dict[str, Callable[[], object]] = {
        r"sandboxes, which has it": lambda: client.create,
        r"use connect\(id\)\.terminate\(\)": lambda: client.sandboxes.delete,
        r"use write_stdin\(\"\", close=True\)": lambda: sandbox.executions.handle("ex_1").close_stdin,
        r"use remove\(\)": lambda: sandbox.contexts.delete,
        r"use execute\(\[.*find": lambda: sandbox.files.glob,
    }
    for match, access in attributes.items():
        with pytest.raises(AttributeError, match=match):
            access()
    keywords: Dict[str, Callable[[], object]] = {
        r"fork\(\) .*'n'; use count=": lambda: sandbox.fork(n=2),
        r"snapshot\(\) .*'nam'; use name=": lambda: sandbox.snapshot(nam="x"),
        r"update\(\) .*'alow'; use allow=": lambda: sandbox.network.update(alow=[]),
        r"write\(\) .*'overwrite'; use exists\(\)": lambda: sandbox.files.write("a", b"", overwrite=False),
        r"mkdir\(\) .*'parents'; use recursive=": lambda: sandbox.files.mkdir("a", parents=True),
    }
    for match, call in keywords.items():
        with pytest.raises(TypeError, match=match):
            call()
    with pytest.raises(InvalidArgument, match=r"at most 5 minutes: use start\(\)"):
        sandbox.stream("true", timeout="10m")


def test_a_create_is_a_task_of_asyncio() -> None:
    async def main() -> None:
        async with AsyncSandboxd(**service.settings) as client:
            first = await asyncio.create_task(client.sandboxes.create("i"))
            cancelled = asyncio.create_task(client.sandboxes.create("i"))
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            assert first.id == SANDBOX and len(service.received) == 1

    with Service([answer(201, VIEW)]) as service:
        asyncio.run(main())


def test_hibernation_updates_the_view() -> None:
    hibernated = {**VIEW, "state": "paused", "hibernatedAt": "h"}
    with Service([answer(201, VIEW), answer(200, PAUSED), answer(200, hibernated)]) as service:
        with Sandboxd(**service.settings) as client:
            sandbox = client.sandboxes.create("i")
            sandbox.pause(hibernate=True)
            assert sandbox.view is not None and sandbox.view.hibernated_at == "h"
