"""
Tests for :mod:`twisted_exec.sshd.service`.
"""

from __future__ import annotations

from typing import Any

from twisted_exec.api.status import Unauthorized
from twisted_exec.testing.console import EchoAttachment

from .support import DoorCase


class ServiceTests(DoorCase):
    """The door as a program."""

    async def console(self) -> Any:
        process = self.gate("-tt", "vm@gate")
        await process.until(rb"Connected to vm\.")
        return process

    async def test_stop(self) -> None:
        """A door that stops ends its sessions with the reason."""
        self.serve(EchoAttachment(b"$ "))
        process = await self.console()
        await self.door.stopService()
        self.assertNotEqual(await process.ended, 0)
        self.assertIn(b"exec-sshd is restarting", process.stdout + process.stderr)

    async def test_metrics(self) -> None:
        """The metrics count connections, sessions and logins."""
        self.serve(EchoAttachment(b"$ "))
        process = await self.console()

        def value(name: str, **labels: str) -> float | None:
            return self.door.registry.get_sample_value(f"twisted_exec_sshd_{name}", labels)

        self.assertEqual(value("connections", state="logged_in"), 1)
        self.assertEqual(value("connections", state="before_login"), 0)
        self.assertEqual((value("sessions"), value("logins_total")), (1, 1))
        process.signal(9)
        while self.door.door.connections or value("sessions"):  # which ends behind its connection
            await self.tick()
        self.assertEqual(value("connections", state="logged_in"), 0)

    async def test_unusable_users(self) -> None:
        """While the files of users cannot be used, the probe says so, and passes: open sessions go on."""
        attachment = self.serve(EchoAttachment(b"$ "))
        process = await self.console()
        self.users(more="nonsense: 1\n")
        await self.people.look()
        [result] = [each for each in await self.door.health.check() if each.name == "users"]
        self.assertIsNone(result.error)
        self.assertIn("nobody can log in: the files of users cannot be used", result.limit)
        refused = self.gate("vm@gate", "list")
        self.assertEqual(await refused.ended, 255)
        self.assertIn(b"nobody can log in for now", refused.stderr)
        process.type(b"hello")
        await process.until(b"hello")
        attachment.transport.end(attachment.ending)
        await process.ended
        self.users()
        await self.people.look()
        results = {each.name: each.limit for each in await self.door.health.check()}
        self.assertEqual(results["users"], "")

    async def test_health(self) -> None:
        """The door is ready when it listens, and the API server accepts its login."""
        results = {each.name: each.error for each in await self.door.health.check()}
        self.assertIsNone(results["ssh"])
        self.consoles.tokens = set()
        results = {each.name: each.error for each in await self.door.health.check()}
        self.assertIn(Unauthorized().message, str(results["apiserver"]))
        await self.door.stopService()
        results = {each.name: each.error for each in await self.door.health.check()}
        self.assertEqual(results["ssh"], "not listening")
