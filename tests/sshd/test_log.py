"""
Tests for the log and the metrics of :mod:`twisted_exec.sshd.door`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from twisted.logger import capturedLogs, formatEvent

from twisted_exec.api.status import APIError, Forbidden
from twisted_exec.streaming.interfaces import REVOKED, Ending
from twisted_exec.testing.console import EchoAttachment

from .files import write
from .support import SIZE, DoorCase


class LogTests(DoorCase):
    """What the operator reads."""

    @contextmanager
    def logs(self, *patterns: str) -> Iterator[None]:
        """Expect a line for each pattern, in this order, and nothing else of these patterns."""
        with capturedLogs() as events:
            yield
        lines = [str(formatEvent(each)) for each in events]
        found = [each for each in lines if any(re.fullmatch(one, each) for one in patterns)]
        self.assertEqual(len(found), len(patterns), lines)

    def failures(self, reason: str) -> float | None:
        name = "twisted_exec_sshd_login_failures_total"
        return self.door.registry.get_sample_value(name, {"reason": reason})

    async def over(self) -> None:
        while self.door.door.connections:
            await self.tick()

    async def test_refused(self) -> None:
        """The refusal of a known certificate names it, its user, the key and the address."""
        self.certify("ada", "-V", "-2h:-1h")
        with self.logs(
            r"ssh login from 127\.0\.0\.1 refused: your ssh certificate has expired; get a new one "
            r"\(the key SHA256:\S{43} and the certificate ada@laptop \(serial 7\) of ada\)"
        ):
            process = self.gate("vm@gate", "list")
            self.assertEqual(await process.ended, 255)
            await self.over()
        self.assertEqual((self.failures("refused"), self.failures("unknown_key")), (1, 0))

    async def test_refused_key(self) -> None:
        """So is that of a plain key, whose user the file says."""
        write(Path(self.path("revoked")), Path(self.path("bob.pub")).read_text())
        self.users(more="revoked: revoked\n")
        await self.people.look()
        with self.logs(
            r"ssh login from 127\.0\.0\.1 refused: your ssh key or certificate is revoked; get a new one "
            r"\(the key SHA256:\S{43} of bob\)"
        ):
            process = self.gate("vm@gate", "list", key="bob")
            self.assertEqual(await process.ended, 255)
            await self.over()

    async def test_unknown(self) -> None:
        """A connection with an unknown key alone has one line."""
        with self.logs(
            r"ssh login from 127\.0\.0\.1 refused: nobody has this key \(the key SHA256:\S{43}\)"
        ):
            process = self.gate("vm@gate", "list", key="eve")
            self.assertEqual(await process.ended, 255)
            await self.over()
        self.assertEqual((self.failures("refused"), self.failures("unknown_key")), (0, 1))

    async def test_several_keys(self) -> None:
        """A user whose agent has other keys, too, has failed nothing."""
        process = self.gate("-i", self.path("eve"), "vm@gate", "log", "--help", key="bob")
        with self.logs("bob has logged in .*", r"the connection of bob from 127\.0\.0\.1 is over"):
            self.assertEqual(await process.ended, 0, process.stderr)
            await self.over()
        self.assertEqual((self.failures("refused"), self.failures("unknown_key")), (0, 0))

    async def test_door(self) -> None:
        """What the API server refuses to the door is there, with its user."""
        for error, line in (
            (
                Forbidden('User "door" cannot impersonate resource "users"'),
                "ada: the ssh door may not act as you, .*: User .door. cannot impersonate .*",
            ),
            (
                APIError("it has expired", code=401, reason="Unauthorized"),
                "ada: the API server does not accept the login of the ssh door.*: it has expired",
            ),
        ):
            self.consoles.machines["default/vm"] = error
            with self.logs(line):
                process = self.gate("vm@gate", "run", "true")
                self.assertEqual(await process.ended, 125)

    async def test_withdrawn(self) -> None:
        """So is a session that the API server ends."""
        attachment = self.serve(EchoAttachment(b"$ "))
        process = self.gate("vm@gate", size=SIZE)
        await process.until(rb"Connected to vm\.")
        with self.logs("ada: the API server has ended a session: no more"):
            attachment.transport.end(Ending(REVOKED, "no more"))
            await self.ends_on_terminal(process)
