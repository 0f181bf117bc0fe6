"""Command lines of bash."""

from __future__ import annotations

import shlex
from typing import Sequence, Union, cast

from ._errors import argument_error

Command = Union[str, Sequence[str]]
"""A bash command line, or a list of a program and its arguments, which are quoted for bash."""
_KEYWORDS = frozenset(
    "case coproc do done elif else esac fi for function if in select then time until while".split()
)
"""The words that bash does not take as the name of a program unless they are quoted. Others have characters that are quoted anyway."""


def command_line(command: Command) -> str:
    """The bash command line."""
    if isinstance(command, str):
        return command
    if not isinstance(cast(object, command), (list, tuple)):
        raise argument_error("command", f"command is {command!r}; expected a bash command line or a list of words")
    if not command:
        raise argument_error("command", "command is an empty list; expected a program and its arguments")
    for number, word in enumerate(command):
        if not isinstance(cast(object, word), str):
            raise argument_error("command", f"command[{number}] is {word!r}; expected a string")
        if "\0" in word:
            raise argument_error("command", f"command[{number}] has a null character, which no argument can contain")
    program, *arguments = command
    return " ".join([_quoted_program(program), *map(shlex.quote, arguments)])


def _quoted_program(word: str) -> str:
    """bash would take `A=1` as an assignment and `time` as a keyword, and not as the name of a program."""
    quoted = shlex.quote(word)
    if quoted == word and ("=" in word or word in _KEYWORDS):
        return f"'{word}'"
    return quoted
