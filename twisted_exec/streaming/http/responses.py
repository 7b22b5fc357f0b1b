"""
HTTP responses: a dispatcher, the forms of a response, and outcomes for clients and audit.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.web import http, resource, server

from twisted_exec.api.status import APIError, InternalError, forget_frames
from twisted_exec.streaming.http.documents import render
from twisted_exec.streaming.subject import Subject

if TYPE_CHECKING:
    from twisted_exec.streaming.http.site import Request


class Dispatcher(resource.Resource):
    """A leaf that answers each request in a coroutine; a client's leaving cancels it."""

    isLeaf = True
    _log = Logger()

    async def dispatch(self, request: Request) -> None:
        """
        Answer ``request``.

        :raises APIError: becomes a JSON Status.  Most other exceptions are logged, and the user
            gets 500 without their text.
        """
        raise NotImplementedError

    def render(self, request: Request) -> int:
        answering = Deferred.fromCoroutine(self._answer(request))
        if not answering.called:
            request.notifyFinish().addErrback(lambda _: answering.cancel())
        return server.NOT_DONE_YET

    async def _answer(self, request: Request) -> None:
        try:
            await self.dispatch(request)
        except APIError as error:
            respond_status(request, error)
            forget_frames(error)
        except CancelledError:
            if not request.gone:
                respond_status(request, InternalError("the request was cancelled"))
        except Exception:  # the outermost handler: nothing above could report it
            session = request.subject.session
            self._log.failure("request {session} failed", session=session)
            respond_status(request, InternalError(f"internal error, see the log for {session}"))


def respond_json(request: Request, code: int, body: Any) -> None:
    """
    Send a JSON document and finish, unless the client left.

    :param body: anything that :func:`json.dumps` accepts, or ``bytes`` of JSON.
    """
    respond(request, code, body if isinstance(body, bytes) else render(body), "application/json")


def respond_text(request: Request, code: int, text: str) -> None:
    """Send plain text, as for probes."""
    respond(request, code, text.encode(), "text/plain; charset=utf-8")


def respond(request: Request, code: int, body: bytes, content_type: str) -> None:
    """Send a whole body and finish, unless the client left."""
    if request.gone or request.finished:
        return
    body, content_type = request.laid_out(body, content_type)
    request.setResponseCode(code)
    request.setHeader(b"Content-Type", content_type.encode())
    request.setHeader(b"Content-Length", b"%d" % len(body))
    # As kube-apiserver (endpoints/filters/cachecontrol.go).
    if not request.responseHeaders.hasHeader(b"Cache-Control"):
        request.setHeader(b"Cache-Control", b"no-cache, private")
    request.channel.write_at_once(request, body)
    request.channel.answered(len(body))
    if not request.gone:
        request.finish()


def respond_status(request: Request, error: APIError) -> None:
    """Send the error's ``Status``; close the connection if the response has begun."""
    if request.gone or request.finished:
        return
    if request.startedWriting:
        request.channel.transport.abortConnection()
        return
    if request.page is not None and request.page.reads_refusals:
        request.page.refuse(request, error)
        return
    if error.code == http.UNAUTHORIZED:
        request.setHeader(b"WWW-Authenticate", b"Bearer")
    if error.retry_after_seconds is not None:
        request.setHeader(b"Retry-After", b"%d" % error.retry_after_seconds)
    respond_json(request, error.code, error.to_status())


_WORD, _LONGER = re.compile(r"\w"), re.compile(r"[-.\w]")

CLIENT_LEFT = 499
"""Audit code for a client that left before the response, as in nginx."""


def naming(error: APIError, subject: Subject) -> APIError:
    """Prefix the error's message with the machine's name, unless it has that."""
    if not subject.machine or _is_named(error.message, subject):
        return error
    return APIError(
        f'{subject.noun} "{subject.machine}": {error.message}',
        code=error.code,
        reason=error.reason,
        details=error.details,
        retry_after_seconds=error.retry_after_seconds,
    )


def _is_named(message: str, subject: Subject) -> bool:
    # Not by a pattern for each name: users choose names, and every pattern would be compiled and kept.
    name = subject.machine
    if f'"{name}"' in message or f'"{subject.namespace}/{name}"' in message:
        return True
    words = f"{subject.noun} {name}"
    at = message.find(words)
    while at >= 0:
        end = at + len(words)
        if not (_WORD.match(message[at - 1 : at]) or _LONGER.match(message[end : end + 1])):
            return True
        at = message.find(words, end)
    return False


def outcome(problem: BaseException) -> tuple[int, str]:
    """Return the error's code and reason for audit."""
    if isinstance(problem, APIError):
        return problem.code, problem.message
    if isinstance(problem, CancelledError):
        return CLIENT_LEFT, "client closed"
    return 500, "internal error"
