"""The templates of the account: images that are built from Dockerfiles."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, Callable, Dict, Optional, Union
from urllib.parse import quote

from .. import models
from .._bodies import Texts, tags_query, template_body
from .._build_context import local_context
from .._build_events import BuildDone, BuildEvent, StepOutput, parse_build_event
from .._errors import BuildFailed, NetworkError, SandboxdError
from .._policies import CreateEgress, CreateIngress
from .._request import LARGEST_PAGE, QueryValue, checked_reference, key_headers, query_string
from .._retry import Safety
from .._sse import Event
from .._units import Duration, Size
from . import _platform
from ._following import AsyncFollowing
from ._paging import AsyncPagedList
from ._payload import AsyncPayload, json_payload
from ._transport import AsyncTransport, Call, is_cut_off

DOCKERFILE = "Dockerfile"
TemplateOrId = Union[str, models.Template]
LocalPath = Union[str, "os.PathLike[str]"]
OnLog = Callable[[BuildEvent], object]


class AsyncBuildLog(AsyncFollowing[BuildEvent]):
    """
    The log of a build: an iterator of `BuildStep`, `Stdout`, `Stderr`, `BuildNote` and `BuildDone`, the last one. The connection is
    established again when it is lost, and no event is missed or repeated. `offset` is the id of the last event that was returned,
    with which another `logs` can continue.
    """

    def _parse(self, event: Event) -> Optional[BuildEvent]:
        return parse_build_event(event)

    def _is_last(self, item: BuildEvent) -> bool:
        return isinstance(item, BuildDone)


class AsyncTemplates:
    """The templates of the account, and their builds."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._transport.settings.service_url.url('')}>"

    async def build(
        self,
        name: str,
        context: Union[None, LocalPath, models.BuildContext] = None,
        *,
        dockerfile: Optional[str] = None,
        dockerfile_path: Optional[str] = None,
        build_args: Optional[Texts] = None,
        start_command: Optional[str] = None,
        ready_command: Optional[str] = None,
        ready_timeout: Optional[Duration] = None,
        cpu: Optional[int] = None,
        memory: Optional[Size] = None,
        memory_mb: Optional[int] = None,
        disk: Optional[Size] = None,
        disk_mb: Optional[int] = None,
        egress: Optional[CreateEgress] = None,
        ingress: Optional[CreateIngress] = None,
        isolation: Optional[str] = None,
        timeout: Optional[Duration] = None,
        no_cache: Optional[bool] = None,
        metadata: Optional[Texts] = None,
        idempotency_key: Optional[str] = None,
        on_log: Optional[OnLog] = None,
    ) -> models.Template:
        """
        Builds a template and returns it when it is ready. Then `name` can be the image of a create. Raises `BuildFailed` if the
        build fails or is cancelled. `on_log` is called with each event of the log. The other arguments: those of `start`.

        Cancelling the asyncio task, interrupting a blocking call with Ctrl-C, or an exception of `on_log` cancels the build, unless
        the caller gave an `idempotency_key`.
        """
        body = template_body(
            name,
            dockerfile=dockerfile,
            dockerfile_path=dockerfile_path,
            build_args=build_args,
            start_command=start_command,
            ready_command=ready_command,
            ready_timeout=ready_timeout,
            cpu=cpu,
            memory=memory,
            memory_mb=memory_mb,
            disk=disk,
            disk_mb=disk_mb,
            egress=egress,
            ingress=ingress,
            isolation=isolation,
            timeout=timeout,
            no_cache=no_cache,
            metadata=metadata,
        )
        return await self._built(body, context, idempotency_key, on_log, is_awaited=True)

    async def start(
        self,
        name: str,
        context: Union[None, LocalPath, models.BuildContext] = None,
        *,
        dockerfile: Optional[str] = None,
        dockerfile_path: Optional[str] = None,
        build_args: Optional[Texts] = None,
        start_command: Optional[str] = None,
        ready_command: Optional[str] = None,
        ready_timeout: Optional[Duration] = None,
        cpu: Optional[int] = None,
        memory: Optional[Size] = None,
        memory_mb: Optional[int] = None,
        disk: Optional[Size] = None,
        disk_mb: Optional[int] = None,
        egress: Optional[CreateEgress] = None,
        ingress: Optional[CreateIngress] = None,
        isolation: Optional[str] = None,
        timeout: Optional[Duration] = None,
        no_cache: Optional[bool] = None,
        metadata: Optional[Texts] = None,
        idempotency_key: Optional[str] = None,
    ) -> models.Template:
        """
        Starts a build and returns its template, without waiting for the end. `wait` waits for it, and `logs` follows it.

        - `context`: a local directory, which is uploaded as `upload_context` does, or an uploaded context. Default: the current
          directory, or nothing if `dockerfile` is given.
        - `dockerfile`: the text of the Dockerfile. Default: the file of the context at `dockerfile_path`, which is `Dockerfile`.
        - `build_args`: values of `ARG`. They are part of the record of the template: not for secrets.
        - `start_command`: a shell command that runs in every sandbox from the template. `ready_command` succeeds when it is ready,
          at most `ready_timeout` after its start.
        - `cpu`, `memory` or `memory_mb`, `disk` or `disk_mb`, `egress`, `ingress`, `isolation`: those of the sandboxes in which the
          steps run, as in a create. Sandboxes from the template have an isolation that is at least as strong.
        - `timeout`: the time for all steps together. `no_cache`: runs all steps anew.
        - `metadata`: tags, by which lists can be filtered.
        - `idempotency_key`: a request with the same key and body within 24 hours returns the same template. Each upload has an id of
          its own, so the body is the same only with an uploaded context or without a context.

        A call that is cancelled before it returns cancels the build like a cancelled `build`.
        """
        body = template_body(
            name,
            dockerfile=dockerfile,
            dockerfile_path=dockerfile_path,
            build_args=build_args,
            start_command=start_command,
            ready_command=ready_command,
            ready_timeout=ready_timeout,
            cpu=cpu,
            memory=memory,
            memory_mb=memory_mb,
            disk=disk,
            disk_mb=disk_mb,
            egress=egress,
            ingress=ingress,
            isolation=isolation,
            timeout=timeout,
            no_cache=no_cache,
            metadata=metadata,
        )
        return await self._built(body, context, idempotency_key, None, is_awaited=False)

    async def upload_context(
        self, context: _platform.Content, *, dockerfile_path: Optional[str] = DOCKERFILE
    ) -> models.BuildContext:
        """
        Uploads a context for several builds within an hour. `context` is the path of a local directory, or a tar archive: bytes, an
        open binary file, or an iterator of bytes.

        Files of a directory that its `.dockerignore` omits are not uploaded, except for the Dockerfile at `dockerfile_path`, which is
        None if the directory has no Dockerfile. A file such as `Dockerfile.dockerignore`, with the path of the Dockerfile, replaces
        `.dockerignore`.
        """
        content = local_context(context, dockerfile_path) if isinstance(context, (str, os.PathLike)) else context
        payload = AsyncPayload(content, "application/x-tar")
        # A second upload is a second context, which the service deletes after an hour.
        call = Call("POST", "/v1/templates/contexts", Safety.REPEATABLE, payload)
        return await self._transport.json(call, models.BuildContext.from_json)

    async def wait(self, template: TemplateOrId, *, on_log: Optional[OnLog] = None) -> models.Template:
        """
        Waits for the end of a build, and returns the template if it is ready. Raises `BuildFailed` otherwise. `on_log` is called with
        each event of the log, also those before this call.
        """
        output = StepOutput()
        async with self.logs(template) as log:
            async for event in log:
                output.add(event)
                if on_log is not None:
                    on_log(event)
                if isinstance(event, BuildDone):
                    if event.template.state != "ready":
                        raise BuildFailed(event.template, output.text())
                    return event.template
        raise NetworkError("the log ended before the build did")

    def logs(self, template: TemplateOrId, *, after: Optional[str] = None) -> AsyncBuildLog:
        """The log of a build from its beginning, or after the event with the id `after`, and new events until the build is over."""
        return AsyncBuildLog(self._transport, _path(template, "/logs"), after)

    def list(
        self,
        *,
        name: Optional[str] = None,
        state: Optional[models.TemplateState] = None,
        metadata: Optional[Texts] = None,
        page_size: int = LARGEST_PAGE,
    ) -> AsyncPagedList[models.Template]:
        """
        Lists templates and builds, newest first: those with the `name`, in the `state`, and with all tags in `metadata`. `page_size`:
        how many items a request fetches.
        """
        tags = tags_query(metadata)

        async def fetch(offset: int) -> models.TemplateList:
            query: Dict[str, QueryValue] = {"name": name, "state": state, "limit": page_size, "offset": offset}
            call = Call("GET", "/v1/templates" + query_string({**query, **tags}), Safety.REPEATABLE)
            return await self._transport.json(call, models.TemplateList.from_json)

        return AsyncPagedList(fetch, lambda template: template.id)

    async def get(self, template_id: str) -> models.Template:
        """Returns a template by its id, or the newest one with a name, with the progress of its build."""
        call = Call("GET", _path(template_id), Safety.REPEATABLE)
        return await self._transport.json(call, models.Template.from_json)

    async def cancel(self, template: TemplateOrId) -> models.Template:
        """Cancels a build and returns when nothing of it runs any more. A build that is over stays as it is."""
        call = Call("POST", _path(template, "/cancel"), Safety.REPEATABLE)
        return await self._transport.json(call, models.Template.from_json)

    async def delete(self, template: TemplateOrId) -> models.TemplateDeleted:
        """
        Deletes a template, given with its id or a name that no other one has, and cancels its build. Sandboxes that were created from
        it are not affected.
        """
        call = Call("DELETE", _path(template), Safety.AFTER_ANSWER)
        return await self._transport.json(call, models.TemplateDeleted.from_json)

    async def _built(
        self,
        body: Dict[str, Any],
        context: Union[None, LocalPath, models.BuildContext],
        key: Optional[str],
        on_log: Optional[OnLog],
        *,
        is_awaited: bool,
    ) -> models.Template:
        """Starts a build, after the upload of its context. A call that is cancelled cancels the build."""
        headers = key_headers(key)
        if context is None and "dockerfile" not in body:
            context = os.curdir
        if context is not None:
            if not isinstance(context, models.BuildContext):
                path = None if "dockerfile" in body else body.get("dockerfilePath", DOCKERFILE)
                context = await self.upload_context(context, dockerfile_path=path)
            body["context"] = context.id
        call = Call("POST", "/v1/templates", Safety.REPEATABLE, json_payload(body), headers)
        template: Optional[models.Template] = None
        try:
            template = await self._transport.json(call, models.Template.from_json)
            return await self.wait(template, on_log=on_log) if is_awaited else template
        except SandboxdError:
            raise
        except BaseException as error:
            # With a key of the caller, another call may wait for the same build.
            is_unknown = is_cut_off(error) and call.progress.may_have_effect
            if key is None and (template is not None or is_unknown):
                undo = partial(self._undo, call, template)
                await self._transport.cleanups.run("cancelling the build of a cancelled call", undo)
            raise

    async def _undo(self, build: Call, template: Optional[models.Template]) -> None:
        """Cancels a build. If its id is unknown, a request with the same idempotency key returns it."""
        if template is None:
            template = await self._transport.json(self._transport.for_cleanup(build), models.Template.from_json)
        cancel = Call("POST", _path(template, "/cancel"), Safety.REPEATABLE)
        await self._transport.json(self._transport.for_cleanup(cancel), models.Template.from_json)


def _path(template: TemplateOrId, rest: str = "") -> str:
    template_id = template if isinstance(template, str) else template.id
    return f"/v1/templates/{quote(checked_reference('template', 'tpl_', template_id), safe='')}{rest}"
