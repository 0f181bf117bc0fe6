"""The rules of `.dockerignore` files, as Docker applies them."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import List, Optional, Pattern

_CLASS = re.compile(r"\[(\^?)((?:\\.|[^\]\\])+)\]", re.DOTALL)
"""A class of characters such as `[a-c]`."""
_NOT_LITERAL = re.compile(r"[*?\[\\]")


@dataclass(frozen=True)
class _Rule:
    is_exception: bool
    regex: Pattern[str]
    """Matches the names that the pattern matches, and everything below them."""
    prefix: str
    """What all names that the pattern matches begin with."""
    is_literal: bool

    def may_match_below(self, directory: str) -> bool:
        """Whether the pattern can match a name below a directory. True also if that is not certain."""
        below = directory + "/"
        return self.prefix.startswith(below) or (not self.is_literal and below.startswith(self.prefix))


class IgnoreRules:
    """Decides which names of a directory are omitted. Names are relative, with slashes. The last rule that matches decides."""

    def __init__(self, text: str, kept: Optional[str] = None) -> None:
        """Parses the content of a file. `kept` is never omitted. Raises ValueError if a pattern is malformed."""
        rules = [_rule(line) for line in text.split("\n") if not line.startswith("#")]
        self._rules: List[_Rule] = [rule for rule in rules if rule is not None]
        if kept is not None:
            self._rules.append(_Rule(True, re.compile(re.escape(kept)), kept, True))

    def omits(self, name: str) -> bool:
        """Whether a file or directory is omitted. With a directory everything below is omitted, except for exceptions."""
        is_omitted = False
        for rule in self._rules:
            if rule.is_exception == is_omitted and rule.regex.fullmatch(name):
                is_omitted = not is_omitted
        return is_omitted

    def may_keep_below(self, directory: str) -> bool:
        """Whether something below an omitted directory can be kept."""
        return any(rule.is_exception and rule.may_match_below(directory) for rule in self._rules)


def _rule(line: str) -> Optional[_Rule]:
    pattern = line.strip()
    is_exception = pattern.startswith("!")
    pattern = pattern[1:].strip() if is_exception else pattern
    if not pattern:
        if is_exception:
            raise ValueError("the pattern '!' lacks a name")
        return None
    # A slash at the start or at the end has no meaning.
    pattern = posixpath.normpath(pattern).lstrip("/")
    prefix = _NOT_LITERAL.split(pattern, maxsplit=1)[0]
    try:
        regex = re.compile(f"(?:{_regex(pattern)})(?:/.*)?", re.DOTALL)
    except (re.error, ValueError) as cause:
        raise ValueError(f"the pattern {line.strip()!r} is malformed: {cause}") from cause
    return _Rule(is_exception, regex, prefix, prefix == pattern)


def _regex(pattern: str) -> str:
    """The regular expression of a pattern."""
    parts: List[str] = []
    at = 0
    while at < len(pattern):
        rest = pattern[at:]
        length = 1
        if rest.startswith("**"):
            length = 3 if rest.startswith("**/") else 2
            parts.append(".*" if length == len(rest) else "(?:.*/)?")
        elif rest[0] == "*":
            parts.append("[^/]*")
        elif rest[0] == "?":
            parts.append("[^/]")
        elif rest[0] == "[":
            length, text = _class(rest)
            parts.append(text)
        elif rest[0] == "\\" and len(rest) > 1:
            length = 2
            parts.append(re.escape(rest[1]))
        else:
            parts.append(re.escape(rest[0]))
        at += length
    return "".join(parts)


def _class(rest: str) -> "tuple[int, str]":
    """The length and the regular expression of a class of characters."""
    found = _CLASS.match(rest)
    if found is None:
        raise ValueError("'[' has no ']'")
    characters = re.sub(r"\\(.)|([^-])", lambda one: re.escape(one[1] or one[2]), found[2], flags=re.DOTALL)
    return len(found[0]), f"[{found[1]}{characters}]"
