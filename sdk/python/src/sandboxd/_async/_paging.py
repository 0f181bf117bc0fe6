"""Lists that fetch their pages on demand."""

from __future__ import annotations

from typing import AsyncIterator, Callable, Generic, List, Optional, Protocol, Sequence, Set, TypeVar

from .. import models
from ._platform import Iterated

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Page(Protocol[T_co]):
    """A page of a list."""

    @property
    def data(self) -> Sequence[T_co]:
        """The items of the page."""
        ...

    @property
    def pagination(self) -> models.Pagination:
        """Where the page is in the list."""
        ...


class Fetch(Protocol[T_co]):
    """Fetches the page that starts at an offset."""

    async def __call__(self, offset: int) -> Page[T_co]:
        """Fetches the page."""
        ...


class AsyncPagedList(Iterated, Generic[T]):
    """A list. Iterating it fetches its pages on demand; `all` fetches all of them, and `total` returns the number of items."""

    def __init__(self, fetch: Fetch[T], id_of: Callable[[T], object]) -> None:
        self._fetch = fetch
        self._id_of = id_of
        self._first: Optional[Page[T]] = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: iterate it, or call all()>"

    async def page(self, offset: int = 0) -> Page[T]:
        """The page that starts at `offset`."""
        return await self._fetch(offset)

    async def total(self) -> int:
        """The exact number of items that match the filters, as of the first request of this object."""
        if self._first is None:
            self._first = await self._fetch(0)
        return self._first.pagination.total

    async def all(self) -> List[T]:
        """All items."""
        return [item async for item in self]

    async def __aiter__(self) -> AsyncIterator[T]:
        last: Set[object] = set()
        offset = 0
        while True:
            page = self._first if offset == 0 and self._first is not None else await self._fetch(offset)
            self._first = None
            # An item that moves to a later page because others are created is returned only once.
            fresh = [item for item in page.data if self._id_of(item) not in last]
            last = {self._id_of(item) for item in page.data}
            for item in fresh:
                yield item
            # An empty page that announces more would cause an endless loop.
            if not page.pagination.has_more or not page.data:
                return
            offset += len(page.data)
