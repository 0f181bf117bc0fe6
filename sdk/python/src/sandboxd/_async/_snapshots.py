"""The snapshots of the account."""

from __future__ import annotations

from typing import Any, Dict, Optional, Union
from urllib.parse import quote

from .. import models
from .._bodies import Texts, mapping, tags_query
from .._names import OtherNames
from .._request import LARGEST_PAGE, QueryValue, checked_reference, given, key_headers, query_string
from .._retry import Safety
from ._context import AsyncSandboxContext
from ._paging import AsyncPagedList
from ._payload import json_payload
from ._transport import AsyncTransport, Call

SnapshotOrId = Union[str, models.Snapshot]


class AsyncSnapshots(OtherNames):
    """The snapshots of the account, also of terminated sandboxes."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._transport.settings.service_url.url('')}>"

    def list(
        self,
        *,
        sandbox_id: Optional[str] = None,
        name: Optional[str] = None,
        metadata: Optional[Texts] = None,
        page_size: int = LARGEST_PAGE,
    ) -> AsyncPagedList[models.Snapshot]:
        """
        Lists snapshots, newest first: those of `sandbox_id`, with the `name`, and with all tags in `metadata`. `page_size`: how many
        items a request fetches.
        """
        tags = tags_query(metadata)

        async def fetch(offset: int) -> models.SnapshotList:
            query: Dict[str, QueryValue] = {"sandboxId": sandbox_id, "name": name, "limit": page_size, "offset": offset}
            call = Call("GET", "/v1/snapshots" + query_string({**query, **tags}), Safety.REPEATABLE)
            return await self._transport.json(call, models.SnapshotList.from_json)

        return AsyncPagedList(fetch, lambda snapshot: snapshot.id)

    async def get(self, snapshot_id: str) -> models.Snapshot:
        """Returns a snapshot by its id, or the newest one with a name."""
        call = Call("GET", _path(snapshot_id), Safety.REPEATABLE)
        return await self._transport.json(call, models.Snapshot.from_json)

    async def delete(self, snapshot: SnapshotOrId) -> models.SnapshotDeleted:
        """
        Deletes a snapshot, given with its id or a name that no other one has. Sandboxes that were created from it, and snapshots of
        those, are not affected.
        """
        call = Call("DELETE", _path(snapshot), Safety.AFTER_ANSWER)
        return await self._transport.json(call, models.SnapshotDeleted.from_json)


async def take_snapshot(
    context: AsyncSandboxContext,
    name: Optional[str],
    metadata: Optional[Texts],
    memory: Optional[bool],
    key: Optional[str],
) -> models.Snapshot:
    """Takes a snapshot of a sandbox."""
    body: Dict[str, Any] = given(name=name, metadata=mapping("metadata", metadata), memory=memory)
    call = Call("POST", context.path("/snapshots"), Safety.REPEATABLE, json_payload(body), key_headers(key))
    taken = await context.json(call, models.Snapshot.from_json)
    context.record("snapshot.created", snapshotId=taken.id, name=taken.name, sizeBytes=taken.size_bytes)
    return taken


async def roll_back(context: AsyncSandboxContext, snapshot: SnapshotOrId) -> models.Sandbox:
    """Rolls a sandbox back to one of its snapshots."""
    body = {"snapshotId": _id_of(snapshot)}
    call = Call("POST", context.path("/rollback"), Safety.AFTER_ANSWER, json_payload(body))
    view = await context.json(call, models.Sandbox.from_json)
    context.record("sandbox.rolled_back", snapshotId=body["snapshotId"])
    return view


def _path(snapshot: SnapshotOrId) -> str:
    return f"/v1/snapshots/{quote(_id_of(snapshot), safe='')}"


def _id_of(snapshot: SnapshotOrId) -> str:
    return checked_reference("snapshot", "snap_", snapshot if isinstance(snapshot, str) else snapshot.id)
