"""The bodies of requests, from the arguments of calls. A malformed argument is an InvalidArgument, before anything is sent."""

from __future__ import annotations

import difflib
import signal as signals
from typing import Any, AsyncIterable, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Union, cast

from . import models
from ._command import Command, command_line
from ._errors import argument_error
from ._policies import CreateEgress, CreateIngress
from ._request import QueryValue, given
from ._units import Duration, Size, chosen_megabytes, milliseconds

ImageOrId = Union[str, models.Snapshot, models.Template]
"""What a sandbox is created from: the name of an image or a template, an id, or an object of the library that has one."""
Texts = Mapping[str, Union[str, int]]
"""Texts by their names, such as environment variables and tags. A whole number is its digits."""
_EGRESS = frozenset(CreateEgress.__annotations__)
_INGRESS = frozenset(CreateIngress.__annotations__)
_LISTED_STATES = ("running", "paused", "terminated", "all")


def create_body(
    image: ImageOrId,
    *,
    cpu: Optional[int],
    memory: Optional[Size],
    memory_mb: Optional[int],
    disk: Optional[Size],
    disk_mb: Optional[int],
    env: Optional[Texts],
    workdir: Optional[str],
    timeout: Optional[Duration],
    on_timeout: Optional[str],
    auto_resume: Optional[bool],
    idle_timeout: Optional[Duration],
    name: Optional[str],
    metadata: Optional[Texts],
    egress: Optional[CreateEgress],
    ingress: Optional[CreateIngress],
    isolation: Optional[str],
    cold: Optional[bool],
) -> Dict[str, Any]:
    """The body of a create."""
    return given(
        image=image if isinstance(image, str) else _id_of(image),
        env=mapping("env", env),
        workdir=workdir,
        timeoutMs=milliseconds(timeout),
        onTimeout=on_timeout,
        autoResume=auto_resume,
        idleTimeoutMs=milliseconds(idle_timeout, "idle_timeout"),
        name=name,
        metadata=mapping("metadata", metadata),
        resources=_resources(cpu, memory, memory_mb, disk, disk_mb),
        network=_network(egress, ingress),
        isolation=isolation,
        cold=cold,
    )


def template_body(
    name: str,
    *,
    dockerfile: Optional[str],
    dockerfile_path: Optional[str],
    build_args: Optional[Texts],
    start_command: Optional[str],
    ready_command: Optional[str],
    ready_timeout: Optional[Duration],
    cpu: Optional[int],
    memory: Optional[Size],
    memory_mb: Optional[int],
    disk: Optional[Size],
    disk_mb: Optional[int],
    egress: Optional[CreateEgress],
    ingress: Optional[CreateIngress],
    isolation: Optional[str],
    timeout: Optional[Duration],
    no_cache: Optional[bool],
    metadata: Optional[Texts],
) -> Dict[str, Any]:
    """The body of a request that builds a template, without the context."""
    # No Dockerfile is one word: it begins with FROM and a name.
    if dockerfile is not None and len(str(dockerfile).split()) == 1:
        how = "dockerfile is the text, and dockerfile_path a path in the context"
        raise argument_error("dockerfile", f"dockerfile is {str(dockerfile)!r}, which is no Dockerfile; {how}")
    return given(
        name=name,
        dockerfile=dockerfile,
        dockerfilePath=dockerfile_path,
        buildArgs=mapping("build_args", build_args),
        startCommand=start_command,
        readyCommand=ready_command,
        readyTimeoutMs=milliseconds(ready_timeout, "ready_timeout"),
        resources=_resources(cpu, memory, memory_mb, disk, disk_mb),
        network=_network(egress, ingress),
        isolation=isolation,
        timeoutMs=milliseconds(timeout),
        noCache=no_cache,
        metadata=mapping("metadata", metadata),
    )


def command_body(
    command: Command,
    cwd: Optional[str],
    env: Optional[Texts],
    user: Optional[str],
    stdin: Optional[str],
    timeout: Optional[Duration],
    auto_resume: Optional[bool],
) -> Dict[str, Any]:
    """The body of a command."""
    # The caller may have ignored the type.
    if isinstance(cast(object, stdin), bytes):
        stdin = _decoded(cast(bytes, stdin))
    if stdin is not None and not isinstance(cast(object, stdin), str):
        how = "decode it, or write a file and redirect standard input to it"
        raise argument_error("stdin", f"stdin is of the type {type(stdin).__name__}; expected text; {how}")
    return given(
        command=command_line(command),
        cwd=cwd,
        user=user,
        stdin=stdin,
        timeoutMs=milliseconds(timeout),
        autoResume=auto_resume,
        env=mapping("env", env),
    )


def _decoded(stdin: bytes) -> str:
    try:
        return stdin.decode()
    except UnicodeDecodeError as cause:
        how = "write a file and redirect standard input to it, or use start(open_stdin=True) and write_stdin()"
        raise argument_error("stdin", f"stdin is not UTF-8; {how}") from cause


def check_content(content: object) -> None:
    """Refuses what is no content of a file, such as a dictionary, before a request is sent."""
    kind = type(content)
    is_source = hasattr(content, "read") or hasattr(content, "__fspath__") or issubclass(kind, (Iterable, AsyncIterable))
    if not is_source or issubclass(kind, Mapping):
        expected = "text, bytes, a pathlib.Path, an open binary file, or an iterator of bytes"
        raise argument_error("content", f"content is of the type {kind.__name__}; expected {expected}")
    # Files that are open as text decode what they read.
    if hasattr(content, "read") and hasattr(content, "encoding"):
        how = "open it with the mode 'rb', or pass its pathlib.Path"
        raise argument_error("content", f"content is a file that is open as text, of the type {kind.__name__}; {how}")


def _id_of(image: object) -> str:
    """The id of a snapshot or a template."""
    if isinstance(image, (models.Snapshot, models.Template)):
        return image.id
    expected = "a name, an id, a Snapshot or a Template"
    raise argument_error("image", f"image is of the type {type(image).__name__}; expected {expected}")


def tags_query(metadata: Optional[Texts]) -> Dict[str, QueryValue]:
    """The part of a query that filters a list by tags."""
    return {f"metadata.{name}": value for name, value in (mapping("metadata", metadata) or {}).items()}


def mapping(argument: str, values: Optional[Texts]) -> Optional[Dict[str, str]]:
    """The dictionary of an argument, with whole numbers as texts. Refuses what is none, such as a text."""
    if values is None:
        return None
    # The caller may have ignored the type.
    if not isinstance(cast(object, values), Mapping):
        raise argument_error(argument, f"{argument} is {type(values).__name__}; expected a dictionary of texts")
    for name, value in values.items():
        # Of a bool and a float there are several forms.
        is_plain = isinstance(cast(object, value), (str, int)) and not isinstance(value, bool)
        if not isinstance(cast(object, name), str) or not is_plain:
            shown = f"{argument}[{name!r}] is of the type {type(value).__name__}"
            raise argument_error(argument, f"{shown}; expected a dictionary of texts, such as {{'A': '1'}}")
    return {name: str(value) for name, value in values.items()}


def texts(argument: str, values: Optional[Sequence[str]]) -> Optional[List[str]]:
    """The list of an argument. Refuses a single text, whose letters would be the list."""
    if values is None:
        return None
    # The caller may have ignored the type.
    if isinstance(values, (str, bytes)) or not isinstance(cast(object, values), Iterable):
        raise argument_error(argument, f"{argument} is {values!r}; expected a list of texts, such as [{str(values)!r}]")
    entries = list(values)
    for number, entry in enumerate(entries):
        if not isinstance(cast(object, entry), str):
            raise argument_error(argument, f"{argument}[{number}] is {entry!r}; expected a text")
    return entries


def ports(argument: str, values: Sequence[int]) -> List[int]:
    """The list of an argument for ports."""
    # The caller may have ignored the type.
    if isinstance(cast(object, values), (str, bytes)) or not isinstance(cast(object, values), Iterable):
        raise argument_error(argument, f"{argument} is {values!r}; expected a list of numbers")
    entries = list(values)
    for number, entry in enumerate(entries):
        check_integer(f"{argument}[{number}]", entry)
    return entries


def signal_name(signal: Union[str, int]) -> str:
    """The name of a signal with `SIG`. Numbers are those of Linux, as the signals of the module `signal` there."""
    if isinstance(signal, int):
        try:
            return signals.Signals(signal).name
        except ValueError as cause:
            raise argument_error("name", f"{signal} is no signal; expected a name such as 'SIGINT'") from cause
    upper = signal.upper()
    return upper if upper.startswith("SIG") else f"SIG{upper}"


def check_integer(argument: str, value: object) -> None:
    """Refuses what is no whole number, such as a text with digits, before a request is sent."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise argument_error(argument, f"{argument} is {value!r}; expected a whole number")


def check_state(state: Optional[str]) -> None:
    """Refuses states of which there are no lists. The service does not know `all`, so its error would not name it."""
    if state is not None and state not in _LISTED_STATES:
        raise argument_error("state", f"state is {state!r}; expected one of {', '.join(_LISTED_STATES)}")


def _resources(
    cpu: Optional[int],
    memory: Optional[Size],
    memory_mb: Optional[int],
    disk: Optional[Size],
    disk_mb: Optional[int],
) -> Optional[Dict[str, Any]]:
    if cpu is not None:
        check_integer("cpu", cpu)
    memory_mb = chosen_megabytes(memory, memory_mb, "memory")
    disk_mb = chosen_megabytes(disk, disk_mb, "disk")
    return given(cpu=cpu, memoryMb=memory_mb, diskMb=disk_mb) or None


def _network(egress: Optional[CreateEgress], ingress: Optional[CreateIngress]) -> Optional[Dict[str, Any]]:
    _check_fields("egress", egress, _EGRESS)
    _check_fields("ingress", ingress, _INGRESS)
    if egress is not None:
        texts("egress.allow", egress.get("allow"))
        texts("egress.allowNetworks", egress.get("allowNetworks"))
        texts("egress.denyNetworks", egress.get("denyNetworks"))
    allowed_ports = None if ingress is None else ingress.get("allowPorts")
    if allowed_ports is not None:
        ports("ingress.allowPorts", allowed_ports)
    return given(
        egress=None if egress is None else _with_default(egress),
        ingress=None if ingress is None else dict(ingress),
    ) or None


def _with_default(egress: CreateEgress) -> Dict[str, Any]:
    """The policy of a new sandbox. A list of what is allowed denies the rest, which is not the default of the service."""
    policy: Dict[str, Any] = dict(egress)
    # Without names, allowed networks may also be the exceptions of denied ones. An empty list of names allows none.
    restricts = policy.get("allow") is not None or (policy.get("allowNetworks") and not policy.get("denyNetworks"))
    if policy.get("default") is None and restricts:
        policy["default"] = "deny"
    return policy


def _check_fields(argument: str, policy: Optional[Mapping[str, Any]], known: FrozenSet[str]) -> None:
    """Refuses unknown fields. Type checkers do, too, but not every program is checked."""
    if policy is None:
        return
    # The caller may have ignored the type.
    if not isinstance(cast(object, policy), Mapping):
        raise argument_error(argument, f"{argument} is {policy!r}; expected a dictionary")
    for name in policy:
        if name not in known:
            nearest = difflib.get_close_matches(str(name), known, 1)
            fields = ", ".join(sorted(known))
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"its fields are {fields}"
            raise argument_error(f"{argument}.{name}", f"unknown field {name!r} of {argument}; {hint}")
