"""
Subresources of machines and of deleted machines: their permissions, and the options of requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from twisted_exec.api import logs, screens
from twisted_exec.api.kinds.consolerecordings import CONTENT, CONTENT_TYPE
from twisted_exec.api.status import BadRequest
from twisted_exec.auth.console_rights import ConsoleAccess, ScreenAccess
from twisted_exec.auth.rules import CONSOLE
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_server import requested_protocol
from twisted_exec.streaming.location import Location
from twisted_exec.streaming.remotecommand.carriers import require_upgrade
from twisted_exec.wire.session_terms import Right


@dataclass(frozen=True)
class SubresourceOptions:
    """The options of one request for a subresource."""

    log: logs.LogOptions | None = None
    query: bytes = b""
    answer_headers: Sequence[tuple[bytes, bytes]] = ()

    def at(self, location: Location) -> Location:
        """Return a location with these options, which its maker does not know."""
        return replace(location, log=self.log, path=location.path_with(self.query))


@dataclass(frozen=True)
class Subresource:
    """
    A subresource of machines, or of what is left of them.

    :param verb: that its users need; opening a console is a create whatever the HTTP method
        (k8s#78741).
    :param permission: the subresource on which they need it.
    :param is_stream: users may type.
    """

    name: str
    verb: str
    permission: str
    options: Callable[[Request, str], SubresourceOptions]
    access: type[ConsoleAccess] | None = None
    is_stream: bool = False
    lacking: str = ""


def _stream_options(request: Request, machine: str) -> SubresourceOptions:
    require_upgrade(request)
    return SubresourceOptions()


def _log_options(request: Request, machine: str) -> SubresourceOptions:
    return SubresourceOptions(log=logs.parse(request.args, machine))


def _screen_options(request: Request, machine: str) -> SubresourceOptions:
    options = screens.parse(request.args, machine)
    if requested_protocol(request):
        raise BadRequest("a screen is read with a plain GET")
    # A picture that a browser opens by itself is a document, and its text comes from a machine.
    policy = (b"Content-Security-Policy", b"default-src 'none'; sandbox")
    content_type = (b"Content-Type", options.content_type.encode())
    return SubresourceOptions(query=options.query(), answer_headers=[content_type, policy])


def _recording_options(request: Request, machine: str) -> SubresourceOptions:
    if requested_protocol(request):
        raise BadRequest("a recording is read with a plain GET")
    return SubresourceOptions(answer_headers=[(b"Content-Type", CONTENT_TYPE.encode())])


_OTHER = "it is not an exec-poollet"

EXEC = Subresource("exec", "create", "exec", _stream_options, ConsoleAccess, is_stream=True)

# ironcore's own poollet serves consoles only.
LOG = Subresource("log", "get", "log", _log_options, lacking=f"logs: {_OTHER}")

SCREEN = Subresource(
    "screen",
    Right.OBSERVE.verb,
    CONSOLE,
    _screen_options,
    ScreenAccess,
    lacking=f"screens: {_OTHER}",
)

DELETED_LOG = replace(LOG, lacking=f"logs of deleted machines: {_OTHER}")

RECORDING = Subresource(
    CONTENT, "get", CONTENT, _recording_options, lacking=f"recordings: {_OTHER}"
)
