"""
What the runtime holds of one BMC: its session, the facts on its server, and the claim on its console.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from typing import Any

from twisted.internet.defer import Deferred

from twisted_exec.control.loop import PokedLoop
from twisted_exec.runtimes.interfaces import CannotStart, MachineFacts
from twisted_exec.runtimes.lines.device_lock import DeviceLock
from twisted_exec.runtimes.lines.redfish.client import Client
from twisted_exec.runtimes.lines.redfish.discovery import Server, discover
from twisted_exec.runtimes.lines.redfish.documents import text
from twisted_exec.runtimes.lines.redfish.options import BASIC, RedfishLine
from twisted_exec.runtimes.lines.redfish.power import OFF, PowerWatch
from twisted_exec.runtimes.lines.redfish.sessions import Credentials, SessionFile, Sessions
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.private_files import write_private

IN_USE = "BMCInUse"
"""Reason of the machine's condition: another runtime of this host has the BMC."""

CLOSED = "Closed"

LOOK_SECONDS = 30.0
"""Longest time between looks at the power state."""

_SHARE_OF_SESSION = 0.4  # looks keep the session, which must be used before half of its timeout
_RECENT_SECONDS = 600.0


class LineMark:
    """
    The note on disk that this runtime has opened a console that its BMC has only once.

    It is renewed while the console is open: a BMC ends a session that its client has left, so an
    old note says nothing of who has the console now.

    :param path: empty to keep nothing.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def is_recent(self) -> bool:
        """Return whether this runtime, or one before it, had the console some minutes ago."""
        try:
            return abs(time.time() - os.stat(self._path).st_mtime) < _RECENT_SECONDS
        except OSError:
            return False

    def write(self) -> None:
        """Write the note, or renew it."""
        if not self._path:
            return
        try:
            os.utime(self._path)
        except FileNotFoundError:
            with contextlib.suppress(TLSConfigError):  # what is left behind then needs steal
                write_private(self._path, b"")
        except OSError:
            pass

    def remove(self) -> None:
        try:
            os.unlink(self._path)
        except OSError:
            pass


class BMC:
    """
    One BMC; made at the first use of its line, and used again after each :meth:`release`.

    :param directory: for the session and the mark; empty to keep nothing.
    """

    def __init__(self, line: RedfishLine, directory: str, reactor: Any) -> None:
        self.line, self._reactor = line, reactor
        address = f"{line.host.lower()}:{line.port}"
        key = hashlib.sha256(address.encode()).hexdigest()[:32]
        path = os.path.join(directory, key) if directory else ""
        self._session_path = f"{path}.session" if path else ""
        self.mark = LineMark(f"{path}.line" if path else "")
        self.client = Client(line.host, line.port, line.trust, reactor)
        self.sessions = Sessions(
            self.client,
            Credentials(line.user, line.password_file),
            SessionFile(self._session_path),
            reactor,
            basic=line.login == BASIC,
        )
        self._lock = DeviceLock(f"/dev/redfish-{address.replace('/', '_')}")
        self._is_locked = False
        self._server: Server | None = None
        self._facts: MachineFacts | None = None
        self.watch: PowerWatch | None = None
        self._looks: PokedLoop | None = None
        self.has_line = False
        self._description = self._told = ("", "", "")

    @property
    def has_left_session(self) -> bool:
        """True if an earlier runtime has left a session on disk."""
        return os.path.exists(self._session_path)

    def claim(self, name: str, facts: MachineFacts) -> None:
        """
        Reserve the BMC for a machine.

        :param name: of the line.
        :raises CannotStart: another runtime of this host, or another machine, has it.
        """
        if self._facts is not None and self._facts.id != facts.id:
            raise CannotStart(
                IN_USE,
                f'line "{name}": machine "{self._facts.label}" still has the BMC {self.line.host}',
            )
        if not self._is_locked:
            try:
                self._lock.take()
            except OSError:
                raise CannotStart(
                    IN_USE,
                    f'line "{name}": another runtime of this host has the BMC {self.line.host} '
                    f"({self._lock.path}); remove the line from one of them",
                ) from None
            self._is_locked = True
        if self._facts is None:
            self._facts, self.watch = facts, PowerWatch(facts)
            self._told = ("", "", "")

    def release_from(self, facts: MachineFacts) -> Deferred[None] | None:
        """Give the BMC back if this machine has it; see :meth:`release`."""
        if self._facts is None or self._facts.id != facts.id:
            return None
        return self.release()

    def release(self) -> Deferred[None]:
        """Give the BMC back: delete the session; fires when the BMC has answered, or not in time."""
        return Deferred.fromCoroutine(self._release())

    async def _release(self) -> None:
        if self._description[0] == "True":
            self.describe("False", CLOSED, "the console is closed")
        self._facts = self.watch = self._server = None
        looks, self._looks = self._looks, None
        if looks is not None:
            await looks.stop()
        self.closed()
        try:
            await self.sessions.close()
        finally:
            # A machine may have claimed the BMC while a session of an earlier runtime was deleted.
            if self._is_locked and self._facts is None:
                self._is_locked = False
                self._lock.release()

    # Facts on the server.

    async def server(self) -> Server:
        """
        Return the facts on the server, from the BMC if they are not known.

        :raises APIError: see :func:`.discover`.
        """
        if self._server is None:
            server = await discover(self.sessions.get, self.line.system)
            self._server = server
            self.note_power(server.power_state)
            if self._looks is None and self._facts is not None:
                seconds = min(LOOK_SECONDS, _SHARE_OF_SESSION * server.session_seconds)
                self._looks = PokedLoop(self._look, self._reactor, seconds)
                self._looks.start(seconds)
        return self._server

    def forget_server(self) -> None:
        """Read the facts anew next time, such as after a change of firmware."""
        self._server = None

    async def _look(self) -> None:
        """Use the session, follow the power state, and renew the mark."""
        if self.has_line:
            self.mark.write()
        if self._server is None:
            return  # the BMC does not answer, or is being asked
        state = text(await self.sessions.get(self._server.system), "PowerState")
        self.note_power(state)

    def note_power(self, state: str) -> None:
        """Note a power state that the BMC reports."""
        if self.watch is not None:
            self.watch.note(state)
            self._describe_again()

    # The console.

    def opened(self, is_exclusive: bool) -> None:
        """Note that the console is open."""
        self.has_line = is_exclusive
        if is_exclusive:
            self.mark.write()

    def closed(self) -> None:
        """Note that the console is closed in the way that its BMC expects."""
        if self.has_line:
            self.has_line = False
            self.mark.remove()

    def describe(self, status: str, reason: str, message: str) -> None:
        """Set the condition ``ConsoleLine`` of the machine."""
        self._description = (status, reason, message)
        self._describe_again()

    def _describe_again(self) -> None:
        status, reason, message = self._description
        if self._facts is None or not reason:
            return
        if self.watch is not None and self.watch.state == OFF:
            message += "; the server is off"
        if (status, reason, message) != self._told:
            self._told = (status, reason, message)
            self._facts.described(self._told)
