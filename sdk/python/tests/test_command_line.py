"""bash takes the words of a list as they are."""

from __future__ import annotations

import shutil
import subprocess
from typing import List

import pytest

from sandboxd._command import command_line
from sandboxd._how_it_ended import LONGEST_TAIL, tail
from sandboxd._output import offset_before_end

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
WORDS = ["", " ", "a b", "it's", '"', "$HOME", "`id`", "\\", "\n", "*", "~", "a=b", "!", "#", "&&", "{1,2}", "ü", "-n", "$'\\n'", "%s"]


def run(command: List[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["bash", "-c", command_line(command)], capture_output=True, text=True, check=False)


def test_arguments_arrive_unchanged() -> None:
    assert run(["printf", "%s\\0", *WORDS]).stdout == "".join(f"{word}\0" for word in WORDS)


@pytest.mark.parametrize("program", ["A=1", "time", "if", "while", "function", "coproc", "[[", "{", "!", "select", "in", "a b", "~", "$X"])
def test_the_first_word_is_always_a_program(program: str) -> None:
    ended = run([program, "true"])
    # Where there is a program `time`, it runs.
    expected = (0,) if shutil.which(program) else (127,)
    assert ended.returncode in expected, ended.stderr


def test_a_command_line_is_left_as_it_is() -> None:
    assert command_line("echo $HOME | cat") == "echo $HOME | cat"
    assert command_line(("git", "commit", "-m", "a message")) == "git commit -m 'a message'"


def test_the_end_of_an_output_begins_with_a_line() -> None:
    assert tail("one\ntwo\n\n") == "one\ntwo"
    text = "\n".join(f"line {number}" for number in range(1000))
    assert len(tail(text)) <= LONGEST_TAIL + len("[...]\n")
    assert tail(text).startswith("[...]\nline ") and tail(text).endswith("line 999")
    assert tail("x" * 3000) == "[...]\n" + "x" * LONGEST_TAIL


@pytest.mark.parametrize(
    ("start", "end", "offset"),
    [("0.0", "10.20", "0.10"), ("8.0", "20.5", "10.0"), ("15.3", "20.5", "15.3"), ("0", "25", "15")],
)
def test_an_offset_before_the_end_is_within_the_stored_output(start: str, end: str, offset: str) -> None:
    assert offset_before_end(start, end, 10) == offset
