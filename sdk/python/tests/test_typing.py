"""Type checkers find typing errors in policies, handlers and other arguments, and accept what the documentation shows."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Set

import pytest

PACKAGE = Path(__file__).resolve().parent.parent
PROGRAM = '''\
from datetime import timedelta
from typing import List

from sandboxd import AsyncSandbox, CreateEgress, LifecycleHandlers, Paused, Sandbox, Sandboxd, models


def accepted(client: Sandboxd, sandbox: Sandbox) -> None:
    policy: CreateEgress = {"default": "deny", "allow": ["example.com"], "allowNetworks": ("192.0.2.0/24",)}
    Sandbox.create("i", egress=policy, ingress={"allowPorts": [80]}, memory="4g", disk=20_480, timeout="90m")
    client.sandboxes.create("i", memory_mb=4096, timeout=timedelta(hours=1), wait=False, on_timeout="pause")
    client.templates.start("t", memory="2g", egress={"default": "allow"}, timeout="1h")
    handlers: LifecycleHandlers = {"paused": lambda paused: print(paused.runtime_duration_ms)}
    client.sandboxes.create("i", on=handlers, wait=30)
    result: models.ExecutionResult = sandbox.execute(["echo", "a"], timeout=600, check=True)
    print(result.reason, sandbox.start("make").wait(check=True).reason)
    sandbox.network.update(default="deny", allow=["example.com"])
    sandbox.ports.expose(80, visibility="private")
    items: List[models.SandboxItem] = client.sandboxes.list(state="all").all()
    print(items)


async def accepted_with_asyncio() -> None:
    async with AsyncSandbox.create("i", egress={"default": "deny"}, memory="4g") as sandbox:
        print((await sandbox.execute(["true"])).exit_code)


def wrong(client: Sandboxd, sandbox: Sandbox, paused: Paused) -> None:
    Sandbox.create("i", egress={"defualt": "deny"})  # error
    Sandbox.create("i", egress={"default": "dney"})  # error
    Sandbox.create("i", egress={"allow": "example.com", "deny": 1})  # error
    Sandbox.create("i", ingress={"allowPorts": ["80"]})  # error
    AsyncSandbox.create("i", egress={"default": "deny", "allow_networks": []})  # error
    client.sandboxes.create("i", egres={"default": "deny"})  # error
    client.sandboxes.create("i", memory=4.5)  # error
    client.sandboxes.create("i", on_timeout="stop")  # error
    client.sandboxes.create("i", on={"pased": print})  # error
    client.templates.start("t", egress={"Default": "deny"})  # error
    sandbox.network.update(default="denied")  # error
    sandbox.ports.expose(80, visibility="pubic")  # error
    sandbox.execute([1])  # error
    sandbox.execute("x", timeout=[1])  # error
    paused.runtime_ms  # error
'''
EXPECTED: Set[int] = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# error")}


def lines_with_errors(command: List[str], environment: Dict[str, str], folder: Path) -> Set[int]:
    name = command[2]
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"needs {name}")
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    checked = subprocess.run(
        [*command, "program.py"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert checked.returncode in (0, 1), checked.stdout + checked.stderr
    return {int(line) for line in re.findall(r"program\.py:(\d+).*?error", checked.stdout)}


@pytest.fixture
def environment() -> Dict[str, str]:
    return {**os.environ, "MYPYPATH": str(PACKAGE / "src"), "PYTHONPATH": str(PACKAGE / "src")}


def test_mypy_finds_typing_errors(environment: Dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(tmp_path / "cache")]
    assert lines_with_errors(command, environment, tmp_path) == EXPECTED


def test_pyright_finds_typing_errors(environment: Dict[str, str], tmp_path: Path) -> None:
    source = str(PACKAGE / "src")
    (tmp_path / "pyrightconfig.json").write_text(
        '{"typeCheckingMode": "standard", "extraPaths": ["%s"]}' % source, encoding="utf-8"
    )
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]
    assert lines_with_errors(command, environment, tmp_path) == EXPECTED


def test_mypy_accepts_the_policies_of_the_readme(environment: Dict[str, str], tmp_path: Path) -> None:
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("needs mypy")
    readme = (PACKAGE / "README.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    (program,) = [example for example in examples if ": CreateEgress" in example]
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "program.py"]
    checked = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
