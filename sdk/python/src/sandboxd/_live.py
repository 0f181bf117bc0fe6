"""The list of live sandboxes, of which the service lists each state on its own."""

from __future__ import annotations

from . import models


def live_page(running: models.SandboxList, paused: models.SandboxList, offset: int, limit: int) -> models.SandboxList:
    """The page of live sandboxes at an offset: what is left of the running ones, and then the paused ones."""
    total = running.pagination.total + paused.pagination.total
    data = [*running.data, *paused.data][:limit]
    has_more = offset + len(data) < total
    return models.SandboxList(data, models.Pagination(has_more=has_more, limit=limit, offset=offset, total=total))
