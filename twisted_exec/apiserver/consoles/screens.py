"""
``machines/screen``: what a terminal would show of a machine's console.

It is located like the log, but needs ``observe`` on ``machines/console``, and ConsolePolicies apply:
a user who may watch a console may see its screen.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from twisted_exec.api.kinds import Object
from twisted_exec.api.status import NotImplementedByBackend
from twisted_exec.apiserver.consoles.connect import MachineLocator
from twisted_exec.apiserver.serving.filters import attributes_of
from twisted_exec.apiserver.serving.verbs import Target
from twisted_exec.auth.console_rights import CONSOLE, ConsoleAccess, ScreenAccess
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.interfaces import Location
from twisted_exec.streaming.text.screens import screen_options
from twisted_exec.wire.session_terms import Right

SCREEN = "screen"
ANSWER_SECONDS = 12.0
"""How long a poollet may take: it waits 10 s for the runtime, which renders within 8."""

_HEADERS = (
    # A picture that a browser opens by itself is a document, and its text comes from a machine.
    (b"Content-Security-Policy", b"default-src 'none'; sandbox"),
)


class ScreenLocator(MachineLocator):
    """Locates the poollet for ``.../machines/NAME/screen``."""

    subresource: ClassVar[str] = SCREEN
    verb: ClassVar[str] = Right.OBSERVE.verb
    needs_power: ClassVar[bool] = False
    resumes: ClassVar[bool] = False
    is_recorded: ClassVar[bool] = False

    async def _authorize(
        self, context: RequestContext, target: Target
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
            answer_headers=[(b"Content-Type", options.content_type.encode()), *_HEADERS],
        )
