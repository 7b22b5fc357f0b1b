"""
What the runtime holds of one BMC: its session, its lock file, and the machine that has claimed it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, gatherResults, succeed
from twisted.logger import Logger

from twisted_exec.runtimes.interfaces import CannotStart, MachineFacts
from twisted_exec.runtimes.lines.device_lock import DeviceLock
from twisted_exec.runtimes.lines.redfish.claim import Claim
from twisted_exec.runtimes.lines.redfish.client import Client
from twisted_exec.runtimes.lines.redfish.line_mark import LineMark
from twisted_exec.runtimes.lines.redfish.options import BASIC, RedfishLine
from twisted_exec.runtimes.lines.redfish.sessions import Credentials, SessionFile, Sessions

IN_USE = "BMCInUse"
"""Reason of the machine's condition: another runtime of this host has the BMC, or another machine."""


def _address(line: RedfishLine) -> str:
    return f"{line.host.lower()}:{line.port}"


def kept_path(directory: str, address: str, suffix: str) -> str:
    """
    Return the path of what is kept of a BMC; empty without a directory.

    :param address: ``HOST:PORT``.
    :param suffix: ``session``, or ``line`` for the note of an open console.
    """
    key = hashlib.sha256(address.encode()).hexdigest()[:32]
    return os.path.join(directory, f"{key}.{suffix}") if directory else ""


class BMC:
    """
    One BMC; its session goes on while one machine after the other claims it.

    :param line: has the address and the credentials. Its system is that of a claim.
    :param directory: for the session and the mark; empty to keep nothing.
    """

    def __init__(self, line: RedfishLine, directory: str, reactor: Any) -> None:
        self._reactor = reactor
        self.address = _address(line)
        self.mark = LineMark(kept_path(directory, self.address, "line"))
        self.client = Client(line.host, line.port, line.trust, reactor)
        self.sessions = Sessions(
            self.client,
            Credentials(line.user, line.password_file),
            SessionFile(kept_path(directory, self.address, "session")),
            reactor,
            basic=line.login == BASIC,
        )
        self._lock = DeviceLock(f"/dev/redfish-{self.address.replace('/', '_')}")
        self._is_locked = False
        self._claim: Claim | None = None

    def claim(self, name: str, line: RedfishLine, facts: MachineFacts) -> Claim:
        """
        Reserve the BMC for a machine, until :meth:`release`.

        :param name: of the line, whose address is that of the BMC.
        :return: the claim that the machine has already, unless that has ended or has another system.
        :raises CannotStart: another runtime of this host, or another machine, has the BMC.
        """
        claim = self._claim
        if claim is not None and claim.facts.id != facts.id:
            raise CannotStart(
                IN_USE,
                f'line "{name}": machine "{claim.facts.label}" still has the BMC {line.host}; '
                "wait until it is off, or delete it",
            )
        if not self._is_locked:
            try:
                self._lock.take()
            except OSError:
                raise CannotStart(
                    IN_USE,
                    f'line "{name}": another runtime of this host has the BMC {line.host} '
                    f"({self._lock.path}); remove the line from one of them",
                ) from None
            self._is_locked = True
        self.sessions.open()
        if claim is not None:
            if claim.line == line and not claim.has_ended:
                return claim
            claim.end()
        self._claim = Claim(line, facts, self.sessions, self.mark, self._reactor)
        return self._claim

    @property
    def is_free(self) -> bool:
        """True if neither a machine nor anything of the past needs this object."""
        return not self._is_locked and self._claim is None and not self.sessions.is_waiting

    async def release(self) -> None:
        """Delete the session, unless a machine claims the BMC meanwhile; bounded by the times of requests."""
        claim, self._claim = self._claim, None
        if claim is not None:
            claim.end()
        try:
            await self.sessions.close()
        finally:
            if self._is_locked and self._claim is None:
                self._is_locked = False
                self._lock.release()


class BMCs:
    """
    The BMCs of a class, by their addresses, and the claims of machines on them.

    A row of a list that changes uses the BMC of its address again, so that there is never a second session.
    """

    _log = Logger()

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._directory = ""
        self._bmcs: dict[str, BMC] = {}
        self._past: set[BMC] = set()  # left by machines, but their logins must wait
        self._claims: dict[str, tuple[BMC, Claim]] = {}  # by the ids of machines
        self._endings: dict[str, Deferred[None]] = {}  # by the ids, while a session is deleted

    def use_directory(self, directory: str, lines: Iterable[RedfishLine]) -> list[BMC]:
        """
        Keep sessions in a directory.

        :return: the BMCs of the lines with which an earlier runtime has left a session there.
        """
        self._directory = directory
        left = set(os.listdir(directory))
        for line in lines:
            if os.path.basename(kept_path(directory, _address(line), "session")) in left:
                self._bmcs[_address(line)] = BMC(line, directory, self._reactor)
        return list(self._bmcs.values())

    def claim(self, name: str, line: RedfishLine, facts: MachineFacts) -> tuple[BMC, Claim]:
        """
        Claim the BMC of a machine's line, and release the one that the machine has had, if that is another one.

        :raises CannotStart: see :meth:`BMC.claim`.
        """
        address = _address(line)
        if facts.id in self._claims and self._claims[facts.id][0].address != address:
            self.release(facts)
        bmc = self._bmcs.get(address) or BMC(line, self._directory, self._reactor)
        claim = bmc.claim(name, line, facts)
        self._bmcs[address] = bmc
        self._claims[facts.id] = bmc, claim
        return bmc, claim

    def changed(self, facts: MachineFacts, line: RedfishLine | None, reason: str, why: str) -> None:
        """
        End a machine's claim, because its row has changed.

        :param line: the line that it has now; with the same BMC, the session goes on.
        :param reason: with ``why``, for the machine's condition.
        """
        bmc, claim = self._claims.get(facts.id, (None, None))
        if bmc is not None and claim is not None and claim.line != line:
            claim.end(reason, why)
            if line is None or _address(line) != bmc.address:
                self.release(facts)

    def release(self, facts: MachineFacts) -> Deferred[None] | None:
        """
        Give back the BMC of a machine.

        :return: ``None`` if it has none, and has left all that it had; otherwise fires when these have answered, or
            not in time.
        """
        bmc, _ = self._claims.pop(facts.id, (None, None))
        if bmc is not None:
            # A list may change again before the BMC that the machine has left answers.
            both = gatherResults([self._endings.get(facts.id, succeed(None)), self.end(bmc)])
            ending = self._endings[facts.id] = both.addCallback(lambda _: None)
            ending.addCallback(lambda _: self._ended(facts.id, ending))
        return self._endings.get(facts.id)

    def _ended(self, id: str, ending: Deferred[None]) -> None:
        if self._endings.get(id) is ending:
            del self._endings[id]

    def end(self, bmc: BMC) -> Deferred[None]:
        """Delete the session with a BMC that no machine has; see :meth:`BMC.release`."""
        releasing = Deferred.fromCoroutine(bmc.release())
        releasing.addErrback(lambda failure: failure.trap(CancelledError) and None)
        releasing.addErrback(lambda failure: self._log.failure("a BMC", failure=failure))
        return releasing.addCallback(lambda _: self._forget(bmc))

    def _forget(self, bmc: BMC) -> None:
        # Lists change for years: the addresses of the past are not kept.
        self._past.add(bmc)
        for each in [each for each in self._past if each.is_free]:
            self._past.discard(each)
            if self._bmcs.get(each.address) is each:
                del self._bmcs[each.address]
