"""Runs the examples of the README against a real service. Skipped without SANDBOXD_URL."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
IMAGE = os.environ.get("SANDBOXD_TEST_IMAGE", "ubuntu:24.04")


def test_the_readme_has_examples() -> None:
    assert len(EXAMPLES) >= 10
    assert len(EXAMPLES[0].strip().splitlines()) <= 4


@pytest.mark.skipif(not os.environ.get("SANDBOXD_URL"), reason="set SANDBOXD_URL to run")
@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    code = compile(EXAMPLES[number].replace("ubuntu:24.04", IMAGE), f"README example {number}", "exec")
    exec(code, {"__name__": "__main__"})
    if number == 0:
        assert capsys.readouterr().out == "hello\n\n"
