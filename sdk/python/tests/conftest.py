"""Runs coroutine tests, each in a loop of its own that must be empty afterwards."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any, Optional

import pytest

LONGEST = 120


async def _run(function: Any, arguments: Any) -> None:
    before = asyncio.all_tasks()
    await asyncio.wait_for(function(**arguments), LONGEST)
    # Connections that are being closed end within moments.
    for _ in range(100):
        left = asyncio.all_tasks() - before
        if not left:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"tasks are left: {left}")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Optional[bool]:
    function = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function):
        return None
    names = inspect.signature(function).parameters
    asyncio.run(_run(function, {name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(autouse=True)
def no_threads_are_left() -> Any:
    """Fails a test that leaves a thread, except those of the tests' servers, which end by themselves."""
    before = set(threading.enumerate())
    yield
    for _ in range(100):
        left = [each for each in set(threading.enumerate()) - before if not each.name.startswith("test-")]
        if not left:
            return
        threading.Event().wait(0.02)
    raise AssertionError(f"threads are left: {left}")
