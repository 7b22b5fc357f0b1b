"""
Requests to the API server: query, authorization attributes, and limits on concurrency.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import cast
from urllib.parse import unquote_to_bytes

from twisted_exec.api.kinds import NAMESPACES, Object
from twisted_exec.api.selectors import EVERYTHING, FieldSelector
from twisted_exec.api.status import TooManyRequests
from twisted_exec.api.yaml_text import yaml_bytes
from twisted_exec.apiserver.serving.costs import CHEAP, cost_of_json
from twisted_exec.apiserver.serving.query import YAML, Query, prefers_yaml
from twisted_exec.apiserver.serving.target import RequestTarget
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.rules import Attributes
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.paced import accepts_gzip, respond_pieces
from twisted_exec.streaming.http.site import Request


class APIRequest(Request):
    """
    A request to the API server.

    :ivar is_laid_out: the body of the response needs no :attr:`layout` any more.
    :ivar changed: the object that the request has changed, for its audit record.
    :ivar keeps_response: keep the body of a whole response, for its audit record.
    """

    is_laid_out = False
    changed: Object | None = None
    keeps_response = False
    response_body = b""

    @cached_property
    def query(self) -> Query:
        """The query, parsed."""
        return Query(self.args or {})

    def process(self) -> None:
        # twisted.web leaves out of ``args`` what has no equals sign, such as ``?watch``.
        for item in self.uri.partition(b"?")[2].split(b"&"):
            if item and b"=" not in item:
                self.args.setdefault(unquote_to_bytes(item), [b""])
        super().process()

    @cached_property
    def accept(self) -> str:
        """The ``Accept`` header."""
        return b",".join(self.requestHeaders.getRawHeaders(b"accept", [])).decode("latin-1")

    @cached_property
    def is_yaml(self) -> bool:
        """True if the response is YAML: as ``Accept`` says, or as a handler of Tables has set it."""
        return prefers_yaml(self.accept)

    @property
    def accepts_gzip(self) -> bool:
        """True if a long response may be compressed."""
        return accepts_gzip(self)

    @property
    def layout(self) -> Callable[[bytes], bytes] | None:
        """The function that lays JSON out for this client: YAML, or ``?pretty=true``."""
        if self.is_yaml:
            return as_yaml
        return indented if self.query.flag("pretty") else None

    def laid_out(self, body: bytes, content_type: str) -> tuple[bytes, str]:
        """As :meth:`Request.laid_out`; a large document remains JSON, which is YAML, too."""
        if not content_type.startswith("application/json"):
            return body, content_type
        if self.keeps_response:
            self.response_body = self.response_body or body
        layout = None if self.is_laid_out or cost_of_json(body) > CHEAP else self.layout
        body = body if layout is None else layout(body)
        return body, YAML if self.is_yaml else content_type


def indented(text: bytes) -> bytes:
    """Indent JSON for people."""
    return json.dumps(json.loads(text), indent=2).encode() + b"\n"


def as_yaml(text: bytes) -> bytes:
    """Convert JSON to YAML."""
    return yaml_bytes(json.loads(text))


async def respond_document(request: APIRequest, code: int, body: bytes, content_type: str) -> None:
    """Send a whole document."""
    body, content_type = request.laid_out(body, content_type)
    request.is_laid_out = True
    await respond_pieces(request, code, iter((body,)), content_type, gzip=request.accepts_gzip)


def request_of(context: RequestContext) -> APIRequest:
    """The request of a context of the API server."""
    return cast(APIRequest, context.request)


def query_of(context: RequestContext) -> Query:
    """The query of a request."""
    return request_of(context).query


def attributes_of(
    user: User, verb: str, target: RequestTarget, field_selector: FieldSelector = EVERYTHING
) -> Attributes:
    """Return the authorization attributes of a verb on a target."""
    resource = target.kind.resource
    # As in Kubernetes, a namespace lies within itself, so its own roles can show it.
    own = target.name if target.kind is NAMESPACES else ""
    return Attributes(
        user=user,
        verb=verb,
        group=resource.group,
        version=resource.version,
        resource=resource.plural,
        subresource=target.subresource,
        namespace=target.namespace or own,
        name=target.name,
        field_selector=field_selector,
    )


class RequestLimits:
    """
    Limits on concurrent requests.

    Short requests are counted apart from watches.

    :param terms: of the selectors of all watches.
    """

    def __init__(
        self,
        short: int = 400,
        long: int = 4000,
        long_per_user: int = 1000,
        short_per_user: int = 200,
        terms: int = 80_000,
        terms_per_user: int = 20_000,
    ) -> None:
        self._short, self._long, self._long_per_user = short, long, long_per_user
        self._short_per_user = short_per_user
        self._terms, self._terms_per_user = terms, terms_per_user
        self._terms_now: Counter[str] = Counter()
        self._short_now: Counter[str] = Counter()
        self._long_now: Counter[str] = Counter()

    @contextmanager
    def short(self, user: User) -> Iterator[None]:
        """
        Count a short request while it is answered.

        :raises TooManyRequests: too many are being answered.
        """
        mine = self._short_now[user.name]
        if self._short_now.total() >= self._short:
            raise TooManyRequests("Too many requests, please try again later.")
        if mine >= self._short_per_user:
            raise TooManyRequests(
                f'Too many requests: user "{user.name}" has {mine} at once, please try again later.'
            )
        with _counted(self._short_now, user):
            yield

    @contextmanager
    def long(self, user: User, terms: int = 0) -> Iterator[None]:
        """
        Count a watch while it runs.

        :raises TooManyRequests: too many run, or they have too many terms.
        """
        mine = self._long_now[user.name]
        if mine >= self._long_per_user or self._long_now.total() >= self._long:
            limit = f"{self._long_per_user} of one user and {self._long} of all are the limit"
            raise TooManyRequests(
                f'Too many watches: user "{user.name}" has {mine}, {limit}: end others, or try again later.',
                retry_after_seconds=10,
            )
        left = min(
            self._terms_per_user - self._terms_now[user.name],
            self._terms - self._terms_now.total(),
        )
        if terms > left:
            raise TooManyRequests(
                f"Too many terms in the selectors of watches: this one has {terms}, and user "
                f'"{user.name}" has {left} left. Select by fewer terms, or end other watches.',
                retry_after_seconds=10,
            )
        with _counted(self._long_now, user), _counted(self._terms_now, user, terms):
            yield


@contextmanager
def _counted(now: Counter[str], user: User, count: int = 1) -> Iterator[None]:
    now[user.name] += count
    try:
        yield
    finally:
        now[user.name] -= count
        if not now[user.name]:
            del now[user.name]
