"""
The console of one machine, held open for an agent between its calls.

So people see one visit and not one for each call, and an approval for one session is not used up by the first call.
The scripts of ``kubectl console --run`` and ``--expect`` drive it, one at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.task import deferLater

from twisted_exec.api.status import APIError, BadGateway
from twisted_exec.cli.console.script import Script, scripted_outcome
from twisted_exec.cli.console.session import NOT_SENT, TIMED_OUT_CODE, Outcome
from twisted_exec.cli.console.shell_run import new_nonce
from twisted_exec.cli.mcp.refusals import MAY_ONLY_OBSERVE, TOOLS_ADVICE
from twisted_exec.cli.messages import FAILED_CODE
from twisted_exec.console.notices import GETS_INPUT, LINE_BACK, WAIT, with_kind
from twisted_exec.kube.console import ConsoleOptions, open_console
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.streaming.remotecommand.stream import ConsoleStream, ConsoleUser
from twisted_exec.wire.endings import Ending
from twisted_exec.wire.marks import At, Notice, NoticeKind, NoticeRole
from twisted_exec.wire.notices import TELL_AGAIN_SECONDS
from twisted_exec.wire.resize import Break, Role
from twisted_exec.wire.resume import Position

AGENT = "twisted-exec mcp"
"""The people at a console read this beside the user."""
MOST_CONSOLES = 4
"""Consoles of one session of MCP at the same time."""
HINT = "(wait until that user has left, or ask)"
"""In place of the option that takes over: that is for people."""
IDLE_SECONDS = 120.0
"""A console without a call for this time is left."""
GIVE_UP_SECONDS = 60.0
"""Time to resume the session after a loss of the connection."""
SETTLED_SECONDS = 5.0
"""Time for the server to confirm what was typed."""
STOP_LATER = "in another session, send with keys ctrl-c stops it"
"""How to stop a command whose session is over."""
_LEFT = "it was left"
_RESTED = f"no send or run for {IDLE_SECONDS:.0f} s"
_FLOOR_SECONDS = 3.0
_LOOK_SECONDS = 0.05
_RECENT_BYTES = 8 << 10


class HeldConsole(ConsoleUser):
    """
    A session at a console.

    :param where: namespace and name.
    :param gone: called once, when the session is over.
    :ivar nonce: of all commands that it runs: a probe that one of them has left is no other user's.
    :ivar ending: why it is over, unless the agent has left.
    :ivar first: where the output begins that is not from before the session; ``None`` if unknown.
    """

    def __init__(
        self,
        config: ClientConfig,
        where: tuple[str, str],
        reactor: Any,
        gone: Callable[[HeldConsole], None],
    ) -> None:
        self._config, self._where, self._reactor, self._gone = config, where, reactor, gone
        self.nonce = new_nonce()
        self.first: Position | None = None
        self._stream: ConsoleStream | None = None
        self._script: Script | None = None
        self._printed: Callable[[bytes], None] = lambda _: None
        self._typed_at: Position | None = None
        self._shown_at: Position | None = None
        self._recent = b""  # output before the next script, which looks at the last line
        self._role: Notice | None = None
        self._has_floor = False  # since it typed, or was told so
        self._taken_by = ""  # a user about whom the agent has not read yet
        self._blocked, self._blocked_until = "", 0.0
        self._ending = ""
        self._server_ending: Ending | None = None
        self._over: Deferred[Outcome] | None = None
        self._lock = DeferredLock()
        self._idle: Any = None
        self.is_gone = False
        self.ending = ""

    async def open(self, reason: str) -> None:
        """
        Open the session.

        :raises APIError: the server refuses, or cannot be reached.
        """
        namespace, name = self._where
        await open_console(
            self._config,
            namespace,
            name,
            self,
            self._reactor,
            ConsoleOptions(
                agent=AGENT,
                reason=reason,
                give_up_seconds=GIVE_UP_SECONDS,
            ),
        )
        self._put_off()

    @property
    def stream(self) -> ConsoleStream:
        """
        The stream.

        :raises APIError: the session is over.
        """
        if self._stream is None:
            raise BadGateway(f"the session at the console is over: {self._ending or _LEFT}")
        return self._stream

    @property
    def position(self) -> Position | None:
        """
        Where the output goes on; ``None`` if unknown, as before the server has said it.

        Output from before the session, which its stream begins with, does not count.

        :raises APIError: the session is over.
        """
        first, position = self.first, self.stream.position
        if first is None or position is None or position.epoch != first.epoch:
            return position
        return Position(first.epoch, max(first.offset, position.offset))

    @property
    def began(self) -> Position | None:
        """
        Where the output begins that the newest script has passed on, or that followed its typing if it passed none on.

        ``None`` if unknown, or if it has not typed.
        """
        return self._shown_at or self._typed_at

    @property
    def waiting_keys(self) -> int:
        """Number of keys and requests that the server has not confirmed; 0 when the session is over."""
        return 0 if self._stream is None else self._stream.waiting_keys

    async def drive(
        self, script: Script, printed: Callable[[bytes], None], timeout_seconds: float
    ) -> Outcome:
        """
        Let a script drive the session; other calls wait.

        :param printed: gets the output that the script passes on.
        :raises APIError: the session is over before the script begins.
        """
        await self._lock.acquire()
        try:
            await self._take_floor()
            takeover = self._past_takeover()
            if self._not_writer() is None and (why := takeover or self.blocked):
                return Outcome(FAILED_CODE, f"{NOT_SENT}: {why}")
            return await self._drive(script, printed, timeout_seconds)
        finally:
            self._lock.release()
            self._put_off()

    async def send_break(self) -> None:
        """
        Send BREAK.

        :raises APIError: the session is over, or may not.
        """
        await self._lock.acquire()
        try:
            await self._take_floor()
            takeover = self._past_takeover()
            if (problem := self._not_writer()) is not None:
                raise _no_break(problem)
            attendance = self.stream.attendance
            if attendance is not None and not attendance.has_break:
                raise _no_break("this console has none")
            if not takeover and not self.blocked:
                self.stream.wish(Break())
                await self.settled()
            if why := takeover or self.blocked:
                raise _no_break(why)
        finally:
            self._lock.release()
            self._put_off()

    async def settled(self) -> bool:
        """Wait until the server has confirmed what was typed; return whether it has, in limited time."""
        end = self._reactor.seconds() + SETTLED_SECONDS
        while self.waiting_keys:
            if self._reactor.seconds() >= end:
                return False
            await deferLater(self._reactor, _LOOK_SECONDS)
        return True

    @property
    def blocked(self) -> str:
        """
        Why the machine gets no input of this session at present; empty if it does, as far as is known.

        The server says once why it discards input, and says so again after a while if there is more. So this
        lasts until the server says that input arrives again, or would say the reason again.
        """
        return self._blocked if self._reactor.seconds() < self._blocked_until else ""

    def _follow_input(self, notice: Notice) -> None:
        if notice.kind is NoticeKind.INTERRUPTED:
            self._blocked, self._blocked_until = notice.why or notice.text, math.inf
        elif notice.kind is NoticeKind.DISCARDED and notice.role is None and not notice.keys:
            self._blocked = notice.why or notice.text
            self._blocked_until = self._reactor.seconds() + TELL_AGAIN_SECONDS
        elif (
            notice.kind is NoticeKind.RESTARTED
            or notice.role is NoticeRole.WRITER
            or notice.text in (GETS_INPUT, LINE_BACK)
        ):
            self._blocked = ""

    def _past_takeover(self) -> str:
        """Return, once, that a user has taken this console over since the last call, and left it; or empty."""
        name, self._taken_by = self._taken_by, ""
        if not name:
            return ""
        return (
            f"{name} took this console over since your last call, and has left it again; look at what happened, "
            "and call again only if your work still stands"
        )

    def _not_writer(self) -> str | None:
        role = self._role
        if role is None or role.role is NoticeRole.WRITER:
            return None
        return MAY_ONLY_OBSERVE if role.role is NoticeRole.DENIED else role.text

    async def _take_floor(self) -> None:
        """Ask for the floor, which another user may have left meanwhile; a writer is not asked to go."""
        stream = self.stream
        if self._not_writer() is None or stream.attendance is None or stream.attendance.writer:
            return
        stream.wish(Role.WRITER)
        end = self._reactor.seconds() + _FLOOR_SECONDS
        while self._not_writer() is not None and self._reactor.seconds() < end:
            await deferLater(self._reactor, _LOOK_SECONDS)

    async def _drive(
        self, script: Script, printed: Callable[[bytes], None], timeout_seconds: float
    ) -> Outcome:
        stream = self.stream
        over: Deferred[Outcome] = Deferred()
        self._over, self._script, self._printed = over, script, printed
        self._typed_at = self._shown_at = None
        late = self._reactor.callLater(timeout_seconds, self._late, timeout_seconds)
        try:
            script.drive(self)
            if self._role is not None:
                script.noticed(self._role)
            script.received(self._recent)
            if stream is self._stream:
                script.resumeProducing()
            return scripted_outcome(script, await over)
        finally:
            if late.active():
                late.cancel()
            script.stop()
            self._over = self._script = None
            self._printed = lambda _: None

    def _late(self, seconds: float) -> None:
        self.conclude(Outcome(TIMED_OUT_CODE, f"timed out after {seconds:g} s"))

    def close(self, why: str = _LEFT) -> None:
        """Leave the console."""
        if self._stream is not None:
            self._stream.leave()
        self._ended(why)

    # The session, as the script sees it.

    @property
    def viewers(self) -> int:
        attendance = self._stream.attendance if self._stream is not None else None
        return 0 if attendance is None else attendance.viewers

    def typed(self, data: bytes) -> None:
        if self._stream is not None:
            self._has_floor = True
            self._typed_at = self._typed_at or self.position
            self._stream.write(data)

    def input_ended(self) -> None:
        self.conclude(Outcome())

    def conclude(self, outcome: Outcome) -> None:
        over, self._over = self._over, None
        if over is not None:
            over.callback(outcome)

    # The stream's events.

    def attached(self, stream: ConsoleStream) -> None:
        if self.is_gone:
            stream.abort()
            return
        self._stream = stream

    def data_received(self, data: bytes) -> None:
        self._recent = (self._recent + data)[-_RECENT_BYTES:]
        if self._script is not None and (printed := self._script.received(data)):
            self._pass_on(printed, len(data))

    def _pass_on(self, printed: bytes, size: int) -> None:
        """Pass on what the script makes of the newest output, unless that is from before the session."""
        first, after = self.first, None if self._stream is None else self._stream.position
        if after is not None:
            begin = after.offset - size
            if first is not None and first.epoch == after.epoch:
                if after.offset <= first.offset:
                    return
                begin = max(begin, first.offset)
            self._shown_at = self._shown_at or Position(after.epoch, begin)
        self._printed(printed)

    def notice(self, notice: Notice) -> None:
        notice = _for_agent(with_kind(notice))
        if notice.role is not None:
            self._follow_role(notice)
        self._follow_input(notice)
        if self._script is not None:
            self._script.noticed(notice)

    def _follow_role(self, notice: Notice) -> None:
        self._role = notice
        had_floor, self._has_floor = self._has_floor, notice.role is NoticeRole.WRITER
        is_told = self._script is not None and not self._script.is_over
        if had_floor and notice.role is NoticeRole.OBSERVER and not is_told:
            self._taken_by = notice.writer or "another user"

    def placed(self, mark: At) -> None:
        if self.first is None:
            position = mark.position
            self.first = Position(position.epoch, max(position.offset, mark.end or 0))

    def skipped(self, count: int | None) -> None:
        if self._script is not None:
            self._script.skipped("unknown" if count is None else f"{count} bytes")

    def outage(self, reason: str) -> None:
        if self._script is not None:
            self._script.outage()

    def resumed(self, seconds: float, uncertain: int, unsent: int) -> None:
        if self._script is not None:
            self._script.resumed()
            if uncertain:
                line = "the connection was lost, and a part of the input with it"
                self.conclude(Outcome(1, line))

    def ended(self, ending: Ending) -> None:
        self._server_ending = replace(ending, message=TOOLS_ADVICE.refused(ending.message))

    def detached(self, reason: str) -> None:
        self._stream = None
        ending = self._server_ending
        self._ended(reason if ending is None else ending.message or ending.reason)

    def _ended(self, why: str) -> None:
        if self.is_gone:
            return
        self.is_gone, self._ending = True, why
        self.ending = why if why != _LEFT else ""
        if self._idle is not None and self._idle.active():
            self._idle.cancel()
        self._gone(self)  # first: a call that ends now may be followed by another one at once
        if self._script is not None:
            self._script.remedy = STOP_LATER
        line = f"the session at the console ended: {why}"
        self.conclude(Outcome(1, line, ending=self._server_ending))

    def _put_off(self) -> None:
        if self.is_gone:
            return
        if self._idle is not None and self._idle.active():
            self._idle.reset(IDLE_SECONDS)
        else:
            self._idle = self._reactor.callLater(IDLE_SECONDS, self._rest)

    def _rest(self) -> None:
        if self._lock.locked:
            self._put_off()
        else:
            self.close(_RESTED)


def _no_break(why: str) -> APIError:
    return APIError(f"BREAK was not sent: {why}", code=409, reason="Conflict")


def _for_agent(notice: Notice) -> Notice:
    """Return a notice with the remedy of agents: they take over from nobody, whatever role they have."""
    text = notice.hinted(HINT)
    if text.endswith(WAIT):
        text = text.removesuffix(WAIT) + HINT
    return replace(notice, text=text, hint="")


class Consoles:
    """
    The consoles that one agent holds.

    :ivar endings: why the last session at a console ended, by namespace and name; unless the agent has left, or knows.
    :ivar requests: names of the newest ConsoleRequests of the agent, by namespace and name of the machine.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._held: dict[tuple[str, str], HeldConsole] = {}
        self.endings: dict[tuple[str, str], str] = {}
        self.requests: dict[tuple[str, str], list[str]] = {}
        self._lock = DeferredLock()  # so that a machine has one session

    async def at(self, config: ClientConfig, where: tuple[str, str], reason: str) -> HeldConsole:
        """
        Return the console of a machine, opened if it is not held.

        :param config: the server, and the agent's identity.
        :param where: namespace and name.
        :raises APIError: the server refuses, or too many are held.
        """
        await self._lock.acquire()
        try:
            if (held := self._held.get(where)) is not None:
                return held
            if len(self._held) >= MOST_CONSOLES:
                names = ", ".join(sorted(name for _, name in self._held))
                raise APIError(
                    f"{MOST_CONSOLES} consoles are open ({names}): leave one with leave_console",
                    code=429,
                )
            console = HeldConsole(config, where, self._reactor, self._left)
            await console.open(reason)
            self.endings.pop(where, None)
            if not console.is_gone:
                self._held[where] = console
            return console
        finally:
            self._lock.release()

    def open_at(self, where: tuple[str, str]) -> HeldConsole | None:
        """Return the console of a machine, if it is held."""
        return self._held.get(where)

    def _left(self, console: HeldConsole) -> None:
        for where, each in list(self._held.items()):
            if each is console:
                del self._held[where]
                if console.ending:
                    self.endings[where] = console.ending
                    while len(self.endings) > MOST_CONSOLES:
                        del self.endings[next(iter(self.endings))]

    def close(self) -> None:
        """Leave all consoles."""
        for console in list(self._held.values()):
            console.close()
