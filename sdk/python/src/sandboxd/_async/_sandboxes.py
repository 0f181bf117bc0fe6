"""The sandboxes and images of a service."""

from __future__ import annotations

from typing import AsyncIterator, Callable, Dict, Literal, Optional, Set, Union

from .. import models
from .._bodies import ImageOrId, Texts, check_state, create_body, tags_query
from .._lifecycle import LifecycleHandlers
from .._live import live_page
from .._names import OtherNames, other_keywords
from .._policies import CreateEgress, CreateIngress
from .._request import LARGEST_PAGE, QueryValue, query_string
from .._retry import Safety
from .._units import Duration, Size
from . import _platform
from ._context import Recorder
from ._paging import AsyncPagedList, Fetch
from ._sandbox import AsyncSandbox, create_sandbox, sandbox_handle
from ._transport import AsyncTransport, Call


class AsyncSandboxes(OtherNames):
    """The sandboxes of the account."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._transport.settings.service_url.url('')}>"

    @other_keywords
    def create(
        self,
        image: ImageOrId,
        *,
        cpu: Optional[int] = None,
        memory: Optional[Size] = None,
        memory_mb: Optional[int] = None,
        disk: Optional[Size] = None,
        disk_mb: Optional[int] = None,
        env: Optional[Texts] = None,
        workdir: Optional[str] = None,
        timeout: Optional[Duration] = None,
        on_timeout: Optional[Literal["terminate", "pause"]] = None,
        auto_resume: Optional[bool] = None,
        idle_timeout: Optional[Duration] = None,
        name: Optional[str] = None,
        metadata: Optional[Texts] = None,
        egress: Optional[CreateEgress] = None,
        ingress: Optional[CreateIngress] = None,
        isolation: Optional[str] = None,
        cold: Optional[bool] = None,
        idempotency_key: Optional[str] = None,
        wait: Union[bool, Duration] = True,
        run: Optional[Recorder] = None,
        on: Optional[LifecycleHandlers] = None,
    ) -> _platform.Opening[AsyncSandbox]:
        """
        Creates a sandbox and returns it when it runs. In a `with` statement it is terminated at the end of the block.

        - `image`: the name of an image or a template, the id of a snapshot or a template, or a `Snapshot` or `Template`.
          From a snapshot the sandbox has the files, and not the `env`, `workdir`, `metadata` or `egress` of the other sandbox.
        - `cpu`: 2, 4 or 8 vCPUs. Default: 2.
        - `memory`, `disk`: MB as a number, or a text with a unit such as `"4g"`. Default: 4 GB of memory, a disk of 10 GB. The
          arguments `memory_mb` and `disk_mb` are the same, only as numbers.
        - `env`: environment variables of all commands. `workdir`: their working directory. Default: `/workspace`.
        - `timeout`: the running time, not counting pauses, at whose end `on_timeout` happens: `terminate` (default) or `pause`.
          Seconds as a number, a text such as `"90m"`, or a `timedelta`. Default: 5 minutes.
        - `auto_resume`: with False, commands, files and ports do not resume the sandbox while it is paused.
        - `idle_timeout`: pauses the sandbox after this time without activity; 0 disables it. Default: 2 minutes.
        - `name`: accepted in place of the id, as by `connect`. The create fails if another sandbox of the account that is not
          terminated has it.
        - `metadata`: tags, by which lists can be filtered.
        - `egress`: the policy for outgoing connections, such as `{"allow": ["example.com"]}`. A list `allow` denies the rest, unless
          `default` is `allow`; so does `allowNetworks` without `denyNetworks`. Default: all public addresses are allowed.
        - `ingress`: the policy for exposed ports, such as `{"allowPorts": [8080]}`. Default: all ports may be exposed.
        - `isolation`: `container`, `gvisor`, or `auto` (default) for the operator's choice.
        - `cold`: starts without the processes of the snapshot.
        - `idempotency_key`: a request with the same key within 24 hours, from any process, returns the same sandbox.
        - `wait`: how long the call waits in all while the service refuses it, because of a rate limit, without capacity, or while the
          image is being pulled: a duration, or True for the client's `max_retry_wait`. With False the call fails at the
          first refusal, which takes up to 25 s while an image is being pulled.
        - `run`: records the events of the sandbox in this `Run`.
        - `on`: handlers of lifecycle events by name: `started`, `paused`, `resumed`, `terminated`, `failed`.

        Cancelling the asyncio task, or interrupting a blocking call with Ctrl-C, terminates the sandbox, unless the caller gave
        an `idempotency_key`.
        """
        body = create_body(
            image,
            cpu=cpu,
            memory=memory,
            memory_mb=memory_mb,
            disk=disk,
            disk_mb=disk_mb,
            env=env,
            workdir=workdir,
            timeout=timeout,
            on_timeout=on_timeout,
            auto_resume=auto_resume,
            idle_timeout=idle_timeout,
            name=name,
            metadata=metadata,
            egress=egress,
            ingress=ingress,
            isolation=isolation,
            cold=cold,
        )
        return _platform.opening(create_sandbox(self._transport, body, idempotency_key, wait, run, on))

    async def get(self, sandbox_id: str) -> AsyncSandbox:
        """Returns a sandbox with its current state, by its id or its name."""
        sandbox = self.connect(sandbox_id)
        await sandbox.refresh()
        return sandbox

    def connect(self, sandbox_id: str) -> AsyncSandbox:
        """
        An object for a sandbox, by its id or its name. Sends no request, so the sandbox need not exist. With a name each call is for
        the sandbox that has it at that time, until `refresh` fetches the id.
        """
        return sandbox_handle(self._transport, sandbox_id)

    @other_keywords
    def list(
        self,
        *,
        state: Optional[str] = None,
        image: Optional[str] = None,
        metadata: Optional[Texts] = None,
        details: bool = False,
        page_size: int = LARGEST_PAGE,
    ) -> AsyncPagedList[models.SandboxItem]:
        """
        Lists sandboxes: the running ones and then the paused ones, each newest first.

        - `state`: lists only `running`, `paused` or `terminated` sandboxes, or with `all` those of every state, newest first.
        - `image`: lists only sandboxes from this image. `metadata`: only those that have all of these tags.
        - `details`: items of live sandboxes also have `name`, `isolation`, `metadata`, `hibernated_at` and `expires_at`.
        - `page_size`: how many items a request fetches.
        """
        check_state(state)
        filters: Dict[str, QueryValue] = {"image": image, "details": details or None, **tags_query(metadata)}

        async def in_state(state: Optional[str], offset: int) -> models.SandboxList:
            query: Dict[str, QueryValue] = {"state": state, "limit": page_size, "offset": offset, **filters}
            call = Call("GET", "/v1/sandboxes" + query_string(query), Safety.REPEATABLE)
            return await self._transport.json(call, models.SandboxList.from_json)

        def listed(state: Optional[str]) -> AsyncPagedList[models.SandboxItem]:
            async def fetch(offset: int) -> models.SandboxList:
                return await in_state(state, offset)

            return AsyncPagedList(fetch, lambda item: item.id)

        async def fetch_live(offset: int) -> models.SandboxList:
            running = await in_state("running", offset)
            paused = await in_state("paused", max(offset - running.pagination.total, 0))
            return live_page(running, paused, offset, page_size)

        if state is None:
            return AsyncLiveSandboxes(fetch_live, listed)
        return listed(None if state == "all" else state)


class AsyncLiveSandboxes(AsyncPagedList[models.SandboxItem]):
    """The running sandboxes, and then the paused ones."""

    def __init__(
        self, fetch: Fetch[models.SandboxItem], listed: Callable[[str], AsyncPagedList[models.SandboxItem]]
    ) -> None:
        super().__init__(fetch, lambda item: item.id)
        self._listed = listed

    async def __aiter__(self) -> AsyncIterator[models.SandboxItem]:
        seen: Set[str] = set()
        # The last list has a sandbox that was paused during the first one, and resumed before the second.
        for state in ("running", "paused", "running"):
            async for item in self._listed(state):
                if item.id not in seen:
                    seen.add(item.id)
                    yield item


class AsyncImages:
    """The images of the service."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._transport.settings.service_url.url('')}>"

    def list(self) -> AsyncPagedList[models.Image]:
        """Lists the images, with the progress of pulls."""

        async def fetch(offset: int) -> models.ImageList:
            return await self._page({"limit": LARGEST_PAGE, "offset": offset})

        return AsyncPagedList(fetch, lambda image: image.name)

    async def get(self, name: str) -> Optional[models.Image]:
        """Returns an image, by any form of its name, or None if it is neither stored nor being pulled."""
        found = (await self._page({"name": name})).data
        # The service may list the image under the complete form of its name.
        return next((image for image in found if image.name == name), found[0] if found else None)

    async def _page(self, query: Dict[str, QueryValue]) -> models.ImageList:
        call = Call("GET", "/v1/images" + query_string(query), Safety.REPEATABLE)
        return await self._transport.json(call, models.ImageList.from_json)
