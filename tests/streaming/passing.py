"""
A dispatcher's handling of a session request, without a gate.
"""

from __future__ import annotations

from twisted_exec.streaming.context import RequestContext, on_record
from twisted_exec.streaming.http.routes import WrongMethod, split_path
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.text.relay import Relay


async def carry(carrier: Proxy | Relay, request: Request) -> None:
    """Let a proxy or a relay answer a request."""
    context = RequestContext(request, segments=split_path(request.path))
    if isinstance(carrier, Proxy) and carrier.caller_of is not None:
        changes = {b"DELETE": carrier.end, b"PATCH": carrier.limit}
        if request.method in changes:
            await changes[request.method](context)
            return
    try:
        with on_record(carrier.sessions, context):
            await carrier.handle(context)
    except WrongMethod as error:
        request.setHeader(b"Allow", error.allowed)
        raise
