"""Lists that come in pages."""

from collections.abc import Awaitable, Callable
from typing import Any, Self


class Pages:
    """The responses to a list request, one for each page. `call`: sends the request, whose `page_token` names the first
    page."""

    def __init__(self, call: Callable[[Any], Awaitable[Any]], request: Any) -> None:
        self._call = call
        self._request = request
        self._is_over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if self._is_over:
            raise StopAsyncIteration
        page = await self._call(self._request)
        self._request.page_token = page.next_page_token
        self._is_over = not page.next_page_token
        return page
