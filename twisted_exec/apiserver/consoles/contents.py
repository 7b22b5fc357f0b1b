"""
``consolerecordings/content``: a recording as an asciicast, from the runtime that made it.

It is located like the log of a deleted machine.
"""

from __future__ import annotations

from dataclasses import replace

from twisted_exec.api.kinds import Object
from twisted_exec.api.kinds.policies.consolerecordings import (
    CONTENT_TYPE,
    FAILED,
    PENDING,
    content_path,
    state_of,
)
from twisted_exec.api.status import BadRequest, Conflict, NotImplementedByBackend
from twisted_exec.apiserver.consoles.retained import RetainedTextLocator
from twisted_exec.apiserver.serving.verbs import Target
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.upgrade_server import is_upgrade
from twisted_exec.streaming.interfaces import Location

ANSWER_SECONDS = 12.0
"""How long a poollet may take: the runtime may read the recording from a store."""
_HEADERS = ((b"Content-Type", CONTENT_TYPE.encode()),)


class ContentLocator(RetainedTextLocator):
    """Locates the poollet for ``.../consolerecordings/NAME/content``."""

    def _check_request(self, context: RequestContext) -> None:
        if is_upgrade(context.request):
            raise BadRequest("a recording is read with a plain GET")

    def _check(self, target: Target, obj: Object) -> None:
        state = state_of(obj)
        named = f'{target.kind.resource.qualified} "{target.name}"'
        if state == PENDING:
            raise Conflict(f"{named} has not begun yet: try again in some seconds")
        if state == FAILED and "firstOffset" not in obj["status"]:
            reason = obj["status"].get("message", "it failed")
            raise Conflict(f"{named} has no content: {reason}")

    def _path(self, target: Target) -> str:
        return content_path(target.namespace, target.name)

    def _at(self, location: Location, obj: Object) -> Location:
        unknown = NotImplementedByBackend(
            f'the poollet of pool "{obj["spec"]["pool"]}" does not serve recordings: '
            "it is of an older release, or not an exec-poollet"
        )
        return replace(location, unknown_path=unknown, answer_headers=_HEADERS)
