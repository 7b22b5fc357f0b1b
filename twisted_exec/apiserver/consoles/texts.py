"""
Locate texts of consoles: logs, screens, and contents of recordings.

The texts are ``machines/log``, ``deletedconsoles/log``, ``machines/screen`` and
``consolerecordings/content``. Some of them outlive their machines, so their objects name the pool.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from zope.interface import implementer

from twisted_exec.api.kinds import Object
from twisted_exec.api.kinds.consolerecordings import (
    CONTENT_TYPE,
    FAILED,
    PENDING,
    content_path,
    state_of,
)
from twisted_exec.api.kinds.sessions import log_path as deleted_log_path
from twisted_exec.api.logs import parse
from twisted_exec.api.status import BadRequest, Conflict, NotImplementedByBackend
from twisted_exec.apiserver.consoles.connect import MachineLocator
from twisted_exec.apiserver.consoles.poollets import forwarded_headers
from twisted_exec.apiserver.serving.filters import RequestLimits, attributes_of
from twisted_exec.apiserver.serving.verbs import RequestTarget
from twisted_exec.auth.console_rights import CONSOLE, ConsoleAccess, ScreenAccess
from twisted_exec.auth.gate import Gate
from twisted_exec.program.tasks import as_deferred
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.upgrade_server import is_upgrade
from twisted_exec.streaming.interfaces import IStreamLocator, Location
from twisted_exec.streaming.text.stream import screen_options
from twisted_exec.wire.session_terms import Right


@implementer(IStreamLocator)
class RetainedTextLocator:
    """
    Base of the locators of texts that may outlive their machines; needs ``get``.

    :param machines: locate the machines, one for each dialect.
    """

    def __init__(
        self,
        gate: Gate,
        storage: IStorage,
        machines: Iterable[MachineLocator],
        limits: RequestLimits,
    ) -> None:
        self._gate, self._storage, self._limits = gate, storage, limits
        self._machines = {each.workload: each for each in machines}

    # Implemented by subclasses.

    def _check_request(self, context: RequestContext) -> None:
        """:raises APIError: the request is invalid."""
        raise NotImplementedError

    def _check(self, target: RequestTarget, obj: Object) -> None:
        """:raises APIError: the object has no text."""

    def _path(self, target: RequestTarget) -> str:
        """Return the path on the poollet."""
        raise NotImplementedError

    def _at(self, location: Location, obj: Object) -> Location:
        """Return the location with more facts."""
        return location

    @as_deferred
    async def locate(self, context: RequestContext) -> Location:
        """As :meth:`IStreamLocator.locate`; the target is the object."""
        with self._limits.short(context.user):
            return await self._locate_target(context, context.target)

    async def _locate_target(self, context: RequestContext, target: RequestTarget) -> Location:
        await self._gate.authorize_session(context, attributes_of(context.user, "get", target))
        headers = forwarded_headers(context.user)
        self._check_request(context)
        obj = await self._storage.get(target.kind.resource, target.namespace, target.name)
        spec = obj["spec"]
        context.learn(uid=spec["machineUID"], pool=spec["pool"])
        self._check(target, obj)
        machines = self._machines.get(spec["machineResource"])
        if machines is None:
            raise NotImplementedByBackend(
                f"this server does not serve {spec['machineResource']} any more"
            )
        pool = await machines.poollets.pool(spec["machine"], spec["pool"])
        location = machines.poollet(pool, context, self._path(target))
        return self._at(replace(location, headers=headers), obj)


LOG = "log"


class LogLocator(MachineLocator):
    """
    Locates the poollet for ``.../machines/NAME/log``, or for ``/log`` of a machine's Pod.

    The text is the output of the console, for ``kubectl logs``.

    It is located like its console, and needs ``get`` on ``machines/log``: reading a machine does
    not include reading its console.  The log of a machine that is powered off is available too.
    """

    subresource: ClassVar[str] = LOG
    verb: ClassVar[str] = "get"
    needs_power: ClassVar[bool] = False
    resumes: ClassVar[bool] = False

    async def _authorize(
        self, context: RequestContext, target: RequestTarget
    ) -> tuple[None, Right]:
        permission = attributes_of(context.user, self.verb, target)
        await self._gate.authorize_session(context, permission)
        return None, Right.OBSERVE

    def _check_query(self, context: RequestContext) -> None:
        parse(context.request.args, context.target.name)

    def poollet(self, pool: Object, context: RequestContext, path: str) -> Location:
        """See :meth:`MachineLocator.poollet`."""
        # ironcore's own poollet serves consoles only: Go's plain 404 for every other path.
        unknown = NotImplementedByBackend(
            f'the poollet of pool "{pool["metadata"]["name"]}" does not serve logs: '
            "it is not an exec-poollet"
        )
        options = parse(context.request.args, context.target.name)
        return replace(super().poollet(pool, context, path), unknown_path=unknown, log=options)


class DeletedLogLocator(RetainedTextLocator):
    """
    Locates the poollet for ``.../deletedconsoles/NAME/log``: the output of a deleted machine.

    The locators of machines are :class:`LogLocator`.
    """

    def _check_request(self, context: RequestContext) -> None:
        parse(context.request.args, context.target.name)

    def _path(self, target: RequestTarget) -> str:
        return deleted_log_path(target.namespace, target.name)

    def _at(self, location: Location, obj: Object) -> Location:
        unknown = NotImplementedByBackend(
            f'the poollet of pool "{obj["spec"]["pool"]}" does not serve logs of deleted machines: '
            "it is of an older release, or not an exec-poollet"
        )
        return replace(location, unknown_path=unknown)


SCREEN = "screen"
SCREEN_SECONDS = 12.0
"""How long a poollet may take: it waits 10 s for the runtime, which renders within 8."""

_SCREEN_HEADERS = (
    # A picture that a browser opens by itself is a document, and its text comes from a machine.
    (b"Content-Security-Policy", b"default-src 'none'; sandbox"),
)


class ScreenLocator(MachineLocator):
    """
    Locates the poollet for ``.../machines/NAME/screen``.

    The text is what a terminal would show of the machine's console.

    It is located like the log, but needs ``observe`` on ``machines/console``, and ConsolePolicies
    apply: a user who may watch a console may see its screen.
    """

    subresource: ClassVar[str] = SCREEN
    verb: ClassVar[str] = Right.OBSERVE.verb
    needs_power: ClassVar[bool] = False
    resumes: ClassVar[bool] = False
    is_recorded: ClassVar[bool] = False

    async def _authorize(
        self, context: RequestContext, target: RequestTarget
    ) -> tuple[ConsoleAccess, Right]:
        context.options = replace(context.options, read_only=True, force=False)
        permission = attributes_of(context.user, self.verb, replace(target, subresource=CONSOLE))
        access = ScreenAccess.of(permission, context.options, strict=self._strict_verbs)
        await self._gate.authorize_console(context, access)
        return access, Right.OBSERVE  # so that a policy does not use up an approval to type

    def _check_query(self, context: RequestContext) -> None:
        screen_options(context.request, context.target.name)

    def poollet(self, pool: Object, context: RequestContext, path: str) -> Location:
        """See :meth:`MachineLocator.poollet`."""
        unknown = NotImplementedByBackend(
            f'the poollet of pool "{pool["metadata"]["name"]}" does not serve screens: '
            "it is of an older release, or not an exec-poollet"
        )
        options = screen_options(context.request, context.target.name)
        location = super().poollet(pool, context, path)
        return replace(
            location,
            path=location.path_with(options.query()),
            unknown_path=unknown,
            answer_headers=[(b"Content-Type", options.content_type.encode()), *_SCREEN_HEADERS],
        )


CONTENT_SECONDS = 12.0
"""How long a poollet may take: the runtime may read the recording from a store."""
_CONTENT_HEADERS = ((b"Content-Type", CONTENT_TYPE.encode()),)


class ContentLocator(RetainedTextLocator):
    """
    Locates the poollet for ``.../consolerecordings/NAME/content``.

    The text is a recording as an asciicast, from the runtime that made it.

    It is located like the log of a deleted machine.
    """

    def _check_request(self, context: RequestContext) -> None:
        if is_upgrade(context.request):
            raise BadRequest("a recording is read with a plain GET")

    def _check(self, target: RequestTarget, obj: Object) -> None:
        state = state_of(obj)
        named = f'{target.kind.resource.qualified} "{target.name}"'
        if state == PENDING:
            raise Conflict(f"{named} has not begun yet: try again in some seconds")
        if state == FAILED and "firstOffset" not in obj["status"]:
            reason = obj["status"].get("message", "it failed")
            raise Conflict(f"{named} has no content: {reason}")

    def _path(self, target: RequestTarget) -> str:
        return content_path(target.namespace, target.name)

    def _at(self, location: Location, obj: Object) -> Location:
        unknown = NotImplementedByBackend(
            f'the poollet of pool "{obj["spec"]["pool"]}" does not serve recordings: '
            "it is of an older release, or not an exec-poollet"
        )
        return replace(location, unknown_path=unknown, answer_headers=_CONTENT_HEADERS)
