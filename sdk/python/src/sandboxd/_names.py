"""Names that users of other libraries look for, in the errors of attributes and arguments that do not exist."""

from __future__ import annotations

import difflib
import functools
import inspect
from abc import ABCMeta
from typing import TYPE_CHECKING, Any, Callable, Dict, FrozenSet, Tuple, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

_NAMES: Dict[str, Dict[str, str]] = {
    "Sandbox": {
        **dict.fromkeys(("run", "exec", "exec_run", "run_command", "commands", "process"), "execute(), or start() for a detached command"),
        **dict.fromkeys(("kill", "close", "delete", "destroy", "remove", "stop"), "terminate(), or pause() to go on later"),
        **dict.fromkeys(("restore", "revert"), "rollback()"),
        "checkpoint": "snapshot()",
        **dict.fromkeys(("fs", "filesystem"), "files"),
        **dict.fromkeys(("get_host", "expose_port", "tunnels"), "ports.expose()"),
        "pty": "terminal()",
        "sandbox_id": "id",
        "list": "Sandboxd().sandboxes.list()",
        **dict.fromkeys(("get", "from_id", "from_name", "attach"), "connect(id)"),
        **{name: f"view.{name}, or refresh()" for name in ("name", "image", "metadata", "state")},
        **dict.fromkeys(("status", "is_running"), "view.state, or refresh()"),
        **dict.fromkeys(("upload", "upload_file", "write_file"), "files.write(), or files.upload_directory()"),
        **dict.fromkeys(("download", "download_file", "read_file"), "files.read(), files.download(), or files.download_directory()"),
    },
    "Sandboxd": {
        **dict.fromkeys(("create", "list", "connect", "get"), "its attribute sandboxes, which has it"),
        **dict.fromkeys(("execute", "run", "run_code", "fork", "terminate"), "the Sandbox that sandboxes.create() returns, which has it"),
    },
    "Sandboxes": {
        **dict.fromkeys(("terminate", "delete", "kill", "remove"), "connect(id).terminate()"),
        **{name: f"connect(id).{name}()" for name in ("execute", "fork", "pause", "resume", "snapshot")},
    },
    "Executions": {
        **dict.fromkeys(("connect", "attach"), "get(execution_id), or handle(execution_id) without a request"),
        **dict.fromkeys(("create", "start", "run"), "start() of the sandbox"),
    },
    "Snapshots": dict.fromkeys(("create", "take", "snapshot"), "sandbox.snapshot()"),
    "Ports": {
        **dict.fromkeys(("get", "request", "fetch", "connect"), "client(port), an HTTP client for the port, or list()"),
        **dict.fromkeys(("url", "host", "get_url", "get_host"), "expose(port).url"),
    },
    "CodeContexts": dict.fromkeys(("delete", "close"), "remove()"),
    "Execution": {
        **dict.fromkeys(("stdout", "stderr"), "output()"),
        "close_stdin": 'write_stdin("", close=True)',
        **dict.fromkeys(("terminate", "stop"), "kill(), or signal()"),
        "execution_id": "id",
    },
    "OutputStream": {
        **dict.fromkeys(("exit_code", "result", "returncode"), "the item Done at the end, or done()"),
        **dict.fromkeys(("stdout", "stderr"), "its items, or execute()"),
    },
    "FileStream": {
        "read": "read_all(), or iterate over it",
        **dict.fromkeys(("save", "write_to"), "files.download(path, local), or its chunks: for chunk in stream: file.write(chunk)"),
    },
    "Files": {
        **dict.fromkeys(("upload", "upload_file"), "write(path, pathlib.Path(local)), or upload_directory()"),
        "download_file": "download(path, local)",
        **dict.fromkeys(("delete", "rm", "unlink"), "remove()"),
        **dict.fromkeys(("rename", "mv"), "move()"),
        **dict.fromkeys(("make_dir", "makedirs"), "mkdir()"),
        "get_info": "stat()",
        **dict.fromkeys(("copy", "cp"), 'execute(["cp", "-r", source, target])'),
        **dict.fromkeys(("glob", "find", "search"), 'execute(["find", path, "-name", pattern])'),
    },
}
"""What there is instead, by the name of the class."""
_OF_SANDBOX: Dict[str, str] = {
    **dict.fromkeys(("envs", "env_vars", "environment"), "env="),
    **dict.fromkeys(("template", "template_id", "snapshot", "snapshot_id", "image_name"), "the first argument, image"),
    **dict.fromkeys(("timeout_ms", "timeout_seconds", "lifetime", "ttl"), "timeout=, in seconds"),
    **dict.fromkeys(("cpus", "cpu_count", "vcpus", "num_cpus"), "cpu="),
    **dict.fromkeys(("mem", "mem_limit", "memory_limit", "ram"), "memory="),
    "network": "egress= and ingress=",
    **dict.fromkeys(("allow_internet_access", "block_network", "network_disabled"), 'egress={"default": "deny"}, which denies all'),
    **dict.fromkeys(("cwd", "working_dir"), "workdir="),
    **dict.fromkeys(("tags", "labels"), "metadata="),
    "ports": 'ports.expose(), and ingress={"allowPorts": [...]} for those that may be exposed',
}
_OF_COMMAND: Dict[str, str] = {
    **dict.fromkeys(("envs", "env_vars", "environment"), "env="),
    **dict.fromkeys(("timeout_ms", "timeout_seconds"), "timeout=, in seconds"),
    **dict.fromkeys(("workdir", "working_dir"), "cwd="),
    "input": "stdin=",
    **dict.fromkeys(("background", "detach", "detached"), "start()"),
    **dict.fromkeys(("on_stdout", "on_stderr"), "stream(command, on_stdout=...).done(), which calls it with each line"),
    **dict.fromkeys(("capture_output", "text", "shell"), "nothing instead: bash runs the command, and the result has the output as text"),
}
_KEYWORDS: Dict[str, Dict[str, str]] = {
    "create": _OF_SANDBOX,
    **dict.fromkeys(("execute", "start", "stream"), _OF_COMMAND),
    "run_code": {**_OF_COMMAND, "check": "the attribute exception of the result, which is None if the code raised nothing"},
    "update": {
        **dict.fromkeys(("egress", "network", "policy"), "default=, allow=, allow_networks= and deny_networks="),
        "ingress": "allow_ports=",
    },
    "fork": {
        **dict.fromkeys(("n", "number", "copies"), "count="),
        **dict.fromkeys(("envs", "env"), "execute(env=...) in each fork"),
    },
    "write": dict.fromkeys(("overwrite", "exist_ok"), "exists() before: a write replaces the file"),
    "mkdir": dict.fromkeys(("parents", "exist_ok"), "recursive="),
    **dict.fromkeys(
        ("list", "follow"),
        {
            **dict.fromkeys(("type", "types", "kind"), "kinds="),
            "run_id": "run=",
            "limit": "page_size=",
            "status": "state=",
            **dict.fromkeys(("tags", "labels"), "metadata="),
        },
    ),
}
"""What to use instead of a keyword, by the name of the method. It is shown only if the method does not have the keyword."""


class _Kind(ABCMeta):
    """
    A class whose errors of missing attributes name what there is instead, such as `Sandbox.list`. Programs can derive abstract classes
    from it.
    """

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            text = f"type object {cls.__name__!r} has no attribute {name!r}"
            instead = _NAMES.get(cls.__name__.replace("Async", ""), {}).get(name)
            raise AttributeError(text if instead is None else f"{text}; use {instead}")


class OtherNames(metaclass=_Kind):
    """An object whose errors of missing attributes name what there is instead."""

    if not TYPE_CHECKING:
        # Type checkers refuse unknown attributes by themselves, unless there is such a method.

        def __getattr__(self, name: str) -> Any:
            kind = type(self).__name__
            instead = _NAMES.get(kind.replace("Async", ""), {}).get(name)
            if instead is None:
                return object.__getattribute__(self, name)
            raise AttributeError(f"{kind!r} object has no attribute {name!r}; use {instead}")


def made_by(how: str) -> Callable[[F], F]:
    """A constructor that callers do not use: without arguments its error says how an object is made."""

    def explained(constructor: F) -> F:
        @functools.wraps(constructor)
        def made(self: object, *args: Any, **keywords: Any) -> None:
            if not args and not keywords:
                raise TypeError(f"{type(self).__name__}() has no arguments: {how}")
            constructor(self, *args, **keywords)

        return cast(F, made)

    return explained


def other_keywords(function: F) -> F:
    """A method whose errors of unknown keywords name what there is instead."""
    signature = inspect.signature(function).parameters
    parameters = frozenset(signature)
    positional = sum(each.kind is not each.KEYWORD_ONLY for each in signature.values())
    named = [f"{name}=" for name, each in signature.items() if each.kind is each.KEYWORD_ONLY]

    def check(arguments: Tuple[Any, ...], keywords: Dict[str, Any]) -> None:
        if len(arguments) > positional and named:
            # Without `self`.
            most = f"takes {positional - 1} positional argument{'' if positional == 2 else 's'}"
            raise TypeError(f"{function.__name__}() {most}; name the others: {', '.join(named)}")
        _check_keywords(function.__name__, parameters, keywords)

    if inspect.iscoroutinefunction(function):
        # What inspects the method still sees that it is awaited.

        @functools.wraps(function)
        async def awaited(*args: Any, **keywords: Any) -> Any:
            check(args, keywords)
            return await function(*args, **keywords)

        return cast(F, awaited)

    @functools.wraps(function)
    def called(*args: Any, **keywords: Any) -> Any:
        check(args, keywords)
        return function(*args, **keywords)

    return cast(F, called)


def _check_keywords(method: str, parameters: FrozenSet[str], keywords: Dict[str, Any]) -> None:
    for name in keywords:
        if name in parameters:
            continue
        text = f"{method}() got an unexpected keyword argument {name!r}"
        instead = _KEYWORDS.get(method, {}).get(name)
        # Such as `state=` of events, which have none.
        keyword = "" if instead is None else instead[:-1]
        if instead is None or (keyword.isidentifier() and keyword not in parameters):
            nearest = difflib.get_close_matches(name, parameters - {"self", "cls"}, 1)
            instead = f"{nearest[0]}=" if nearest else None
        raise TypeError(text if instead is None else f"{text}; use {instead}")
