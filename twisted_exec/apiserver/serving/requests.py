"""
Requests to the API server: their queries, and the layout of responses.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from typing import cast
from urllib.parse import unquote_to_bytes

from twisted_exec.api.kinds import Object
from twisted_exec.api.yaml_text import yaml_bytes
from twisted_exec.apiserver.serving.costs import CHEAP, cost_of_json
from twisted_exec.apiserver.serving.query import YAML, Query, prefers_yaml
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
