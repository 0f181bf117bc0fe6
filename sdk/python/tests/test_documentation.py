"""`help` and `repr` of every public name are useful on their own."""

from __future__ import annotations

import inspect
import re
from typing import Any, Dict, Iterator, List, Tuple

import pytest

import sandboxd
from sandboxd import AsyncSandbox, AsyncSandboxd, Run, Sandbox, Sandboxd, _models, aio, models
from scripted import EXECUTION, SANDBOX, VIEW

MODULES = (sandboxd, aio, _models)


def public_classes() -> Iterator[Tuple[str, type]]:
    for module in MODULES:
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value):
                yield f"{module.__name__}.{name}", value


def public_methods(kind: type) -> Iterator[Tuple[str, Any]]:
    for name, value in vars(kind).items():
        if not name.startswith("_"):
            function = getattr(value, "__func__", value)
            if inspect.isfunction(function) or isinstance(function, property):
                yield name, function


def test_every_public_name_has_a_docstring() -> None:
    missing = [module.__name__ for module in MODULES if not module.__doc__]
    for name, kind in public_classes():
        # `str` is the type of identifiers and states.
        if kind is not str and not (kind.__doc__ or "").strip():
            missing.append(name)
        missing += [f"{name}.{method}" for method, function in public_methods(kind) if not function.__doc__]
    assert missing == []


def undescribed(kind: type) -> List[str]:
    """The arguments that are described neither in the docstring of their method nor in that of the class."""
    found: List[str] = []
    for name, function in public_methods(kind):
        if isinstance(function, property):
            continue
        text = f"{kind.__doc__} {function.__doc__}"
        if "those of `start`" in text:
            continue
        for parameter in inspect.signature(function).parameters.values():
            is_optional = parameter.kind is inspect.Parameter.KEYWORD_ONLY
            if is_optional and not re.search(rf"`{parameter.name}(?:=\w+)?`", text):
                found.append(f"{kind.__name__}.{name}: {parameter.name}")
    return found


def test_the_optional_arguments_of_every_public_method_are_described() -> None:
    classes = [kind for _, kind in public_classes() if kind is not str and not issubclass(kind, (dict, Exception))]
    assert [each for kind in classes for each in undescribed(kind)] == []
    assert undescribed(type("Kind", (), {"method": lambda self, *, option: None})) == ["Kind.method: option"]


def test_the_help_of_a_create_stands_alone() -> None:
    parameters = set(inspect.signature(Sandbox.create).parameters)
    for create in (Sandbox.create, sandboxd.Sandboxes.create):
        text = inspect.getdoc(create) or ""
        assert {name for name in parameters if f"`{name}`" in text} == parameters
        assert "those of `" not in text
    # Both have the same list, with the text that differs before it.
    lists = [(inspect.getdoc(create) or "").partition("\n- ")[2] for create in (Sandbox.create, sandboxd.Sandboxes.create)]
    assert lists[0] == lists[1] != ""


def test_every_public_class_has_a_representation() -> None:
    missing = [name for name, kind in public_classes() if kind.__repr__ is object.__repr__]
    assert missing == []


def test_representations_name_what_the_object_is() -> None:
    view = models.Sandbox.from_json(VIEW)
    client = Sandboxd("http://127.0.0.1:9", "k")
    sandbox = Sandbox(client.sandboxes.connect(SANDBOX).context, view)
    execution = sandboxd.Execution(sandbox.context, "ex_1", models.Execution.from_json({**EXECUTION, "cwd": "/"}))
    unread = sandbox.stream(["make", "test"])
    expected: Dict[str, Any] = {
        "Sandboxd('http://127.0.0.1:9')": client,
        f"Sandbox('{SANDBOX}', state='running', image='ubuntu:24.04')": sandbox,
        f"AsyncSandbox('{SANDBOX}')": AsyncSandboxd("http://127.0.0.1:9", "k").sandboxes.connect(SANDBOX),
        "Execution('ex_1', state='running', command='x')": execution,
        "Execution('ex_2')": sandbox.executions.handle("ex_2"),
        f"<Files of {SANDBOX}>": sandbox.files,
        f"<Events of {SANDBOX}>": sandbox.events,
        "<Events of the account>": client.events,
        "<Sandboxes of http://127.0.0.1:9>": client.sandboxes,
        "<PagedList: iterate it, or call all()>": client.images.list(),
        "<FollowedOutput after 1.0>": execution.follow(after="1.0"),
        "<EventStream after ev_1>": sandbox.events.follow(after="ev_1"),
        "<OutputStream of 'make test'>": unread,
        f"<FileWatch of {SANDBOX}>": sandbox.files.watch("d"),
        "Run('r')": Run("r"),
    }
    assert {text: repr(each) for text, each in expected.items()} == {text: text for text in expected}
    unread.close()
    stream = sandbox.stream("x")
    stream.close()
    assert repr(stream) == "<OutputStream of 'x', closed>"


@pytest.mark.filterwarnings("ignore:coroutine")
async def test_a_create_of_asyncio_that_is_not_awaited_says_so() -> None:
    opening = AsyncSandboxd("http://127.0.0.1:9", "k").sandboxes.create("i")
    assert repr(opening) == "<Opening: await it, or use it in 'async with'>"
    assert AsyncSandbox.__doc__ == Sandbox.__doc__
