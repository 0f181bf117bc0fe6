"""Keeps the API key out of what programs print, store and report. It is sent to the service, and nowhere else."""

from __future__ import annotations

import logging
from typing import List, NoReturn, Set

SOCKET_LOG = logging.getLogger("sandboxd.websocket")
"""The log of the websocket library, without the line of the key."""


class Secret(str):
    """A text that is sent, but not shown: not in the `repr` of an object, nor among the local variables of a traceback."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"

    def __reduce__(self) -> NoReturn:
        _refuse_pickle()


class HasKey:
    """An object that holds an API key, and therefore is neither pickled nor copied."""

    def __reduce__(self) -> NoReturn:
        _refuse_pickle()


def without_frames(error: BaseException) -> None:
    """
    Removes the stack frames of an error and of those that led to it. In the frames of HTTP libraries the headers of the request are
    local variables, which programs that report errors send along.
    """
    seen: Set[int] = set()
    waiting: List[BaseException] = [error]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        each.__traceback__ = None
        # The attempts to connect to several addresses are a group of errors.
        others = [each.__cause__, each.__context__, *getattr(each, "exceptions", ())]
        waiting += [other for other in others if isinstance(other, BaseException)]


def _refuse_pickle() -> NoReturn:
    raise TypeError(
        "an object with an API key cannot be pickled or copied; pass the id of the sandbox, and call `connect` there"
    )


def _is_shown(record: logging.LogRecord) -> bool:
    arguments = record.args if isinstance(record.args, tuple) else ()
    return not any(isinstance(each, str) and each.lower() == "authorization" for each in arguments)


SOCKET_LOG.addFilter(_is_shown)
