"""The bodies of requests, from the arguments of calls. A malformed argument is an InvalidArgument, before anything is sent."""

from __future__ import annotations

import difflib
from typing import Any, Dict, FrozenSet, Mapping, Optional, cast

from ._command import Command, command_line
from ._errors import argument_error
from ._policies import CreateEgress, CreateIngress
from ._request import given
from ._units import Duration, Size, chosen_megabytes, milliseconds

_EGRESS = frozenset(CreateEgress.__annotations__)
_INGRESS = frozenset(CreateIngress.__annotations__)


def create_body(
    image: str,
    *,
    cpu: Optional[int],
    memory: Optional[Size],
    memory_mb: Optional[int],
    disk: Optional[Size],
    disk_mb: Optional[int],
    env: Optional[Mapping[str, str]],
    workdir: Optional[str],
    timeout: Optional[Duration],
    on_timeout: Optional[str],
    auto_resume: Optional[bool],
    idle_timeout: Optional[Duration],
    name: Optional[str],
    metadata: Optional[Mapping[str, str]],
    egress: Optional[CreateEgress],
    ingress: Optional[CreateIngress],
    isolation: Optional[str],
    cold: Optional[bool],
) -> Dict[str, Any]:
    """The body of a create."""
    return given(
        image=image,
        env=None if env is None else dict(env),
        workdir=workdir,
        timeoutMs=milliseconds(timeout),
        onTimeout=on_timeout,
        autoResume=auto_resume,
        idleTimeoutMs=milliseconds(idle_timeout, "idle_timeout"),
        name=name,
        metadata=None if metadata is None else dict(metadata),
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
    build_args: Optional[Mapping[str, str]],
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
    metadata: Optional[Mapping[str, str]],
) -> Dict[str, Any]:
    """The body of a request that builds a template, without the context."""
    return given(
        name=name,
        dockerfile=dockerfile,
        dockerfilePath=dockerfile_path,
        buildArgs=None if build_args is None else dict(build_args),
        startCommand=start_command,
        readyCommand=ready_command,
        readyTimeoutMs=milliseconds(ready_timeout, "ready_timeout"),
        resources=_resources(cpu, memory, memory_mb, disk, disk_mb),
        network=_network(egress, ingress),
        isolation=isolation,
        timeoutMs=milliseconds(timeout),
        noCache=no_cache,
        metadata=None if metadata is None else dict(metadata),
    )


def command_body(
    command: Command,
    cwd: Optional[str],
    env: Optional[Mapping[str, str]],
    user: Optional[str],
    stdin: Optional[str],
    timeout: Optional[Duration],
    auto_resume: Optional[bool],
) -> Dict[str, Any]:
    """The body of a command."""
    return given(
        command=command_line(command),
        cwd=cwd,
        user=user,
        stdin=stdin,
        timeoutMs=milliseconds(timeout),
        autoResume=auto_resume,
        env=None if env is None else dict(env),
    )


def _resources(
    cpu: Optional[int],
    memory: Optional[Size],
    memory_mb: Optional[int],
    disk: Optional[Size],
    disk_mb: Optional[int],
) -> Optional[Dict[str, Any]]:
    memory_mb = chosen_megabytes(memory, memory_mb, "memory")
    disk_mb = chosen_megabytes(disk, disk_mb, "disk")
    return given(cpu=cpu, memoryMb=memory_mb, diskMb=disk_mb) or None


def _network(egress: Optional[CreateEgress], ingress: Optional[CreateIngress]) -> Optional[Dict[str, Any]]:
    _check_fields("egress", egress, _EGRESS)
    _check_fields("ingress", ingress, _INGRESS)
    policies = {"egress": egress, "ingress": ingress}
    return {name: dict(policy) for name, policy in policies.items() if policy is not None} or None


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
