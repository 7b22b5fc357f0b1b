"""A dispatcher that returns requests, and can do so late, or fail."""

from __future__ import annotations

from twisted.internet.defer import Deferred, fail

from twisted_exec.api.status import NotFound, TooManyRequests
from twisted_exec.streaming.http.responses import Dispatcher, respond_json, respond_text
from twisted_exec.streaming.http.site import Request


class Echo(Dispatcher):
    """Returns the request, or fails as its path says."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Deferred[None]] = []
        self.asked: list[bytes] = []

    async def dispatch(self, request: Request) -> None:
        self.asked.append(request.path)
        if request.path == b"/refused":
            try:
                await fail(NotFound("machines", "y"))
            except NotFound as error:
                raise NotFound("machines", error.message) from None
        if request.path == b"/missing":
            raise NotFound("machines", "x")
        if request.path == b"/full":
            raise TooManyRequests("come back", 7)
        if request.path == b"/bug":
            raise ZeroDivisionError("the secret of the universe")
        if request.path == b"/slow":
            self.waiting.append(Deferred())
            await self.waiting[-1]
        if request.path == b"/begun":
            request.write(b"half")
            raise NotFound("machines", "x")
        if request.path == b"/text":
            respond_text(request, 200, "ok")
            return
        respond_json(request, 200, {"body": request.content.read().decode()})
