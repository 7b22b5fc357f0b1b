"""
A runtime is replaced by successors, at work, with users of each kind attached to its machines.
"""

from __future__ import annotations

import hashlib
import re
import signal
from pathlib import Path

from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows import kubectls
from tests.flows.programs import terminal
from tests.flows.resuming import Typist
from tests.tiers import PROGRAMS

from .upgrading import ECHO, Keys, UpgradedDeployment, echo

NOTICE = rb"\[twisted-exec: (?:[^\r\n]|\r\n  )*\]"


class UpgradedTests(TestCase):
    """Our client and a stock kubectl of each protocol type all the time."""

    starts = PROGRAMS
    exact = True
    skip = needs.kubectl() or needs.qemu()

    async def setUp(self) -> None:
        self.deployment = UpgradedDeployment(self.mktemp())
        self.addCleanup(self.deployment.stop)
        await self.deployment.start()

    async def attached(self, name: str, machine: str) -> Keys:
        """Attach a kubectl to a machine of its own, and type."""
        await self.deployment.create_machine(machine, ECHO)
        kubeconfig = str(Path(self.deployment.admin).resolve())
        env = {"KUBECONFIG": kubeconfig, "HOME": self.mktemp()}
        program = terminal([kubectls.found()[name], "attach", "-it", machine], **env)
        self.addCleanup(program.stop)
        await program.until(rb"press enter|ok")
        keys = Keys(program)
        self.addCleanup(keys.stop)
        keys.start()
        await program.until(re.escape(echo(bytes(keys.typed[:2]))))
        return keys

    async def typist(self) -> Typist:
        """Open a console by our own client, and type."""
        await self.deployment.create_machine("ours", ECHO)
        user = await Typist.at(self.deployment.admin, "ours")
        self.addCleanup(user.leave)
        user.type_on()
        await user.until(lambda: user.printed_bytes > 100)
        return user

    async def under_load(self, user: Typist) -> None:
        printed = user.printed_bytes
        await user.until(lambda: user.printed_bytes > printed + 500)

    def check(self, name: str, got: bytes, keys: Keys) -> None:
        """Check that each key has reached the machine once, and its echo the user."""
        self.assertEqual(re.findall(NOTICE, got), [], name)
        expected = keys.echo
        digests = [hashlib.sha256(each).hexdigest() for each in (got[: len(expected)], expected)]
        self.assertEqual(*digests, (name, got[-200:]))

    async def test_everybody(self) -> None:
        """No byte is lost in either direction, no machine is restarted, and nobody notices."""
        names = kubectls.some()
        user = await self.typist()
        stock = [await self.attached(name, f"m{n}") for n, name in enumerate(names)]
        emulators = self.deployment.emulators()
        self.assertEqual(len(emulators), len(names) + 1)
        for turn in range(3):
            await self.deployment.upgrade()
            await user.until_resumed(turn + 1)
            await self.under_load(user)
        told = await self.deployment.fail_to_upgrade()
        self.assertIn(b"there is a machine of class 'echo'", told)
        await self.under_load(user)
        await self.deployment.upgrade()
        await user.until_resumed(4)
        await self.under_load(user)
        for name, keys in zip(names, stock, strict=True):
            self.check(name, await keys.until_echoed(), keys)
        user.stop_typing()
        await user.until(lambda: user.printed_bytes >= len(echo(user.sent)) + 2)
        self.assertEqual(user.printed, b"ok" + echo(user.sent))
        self.assertEqual((user.gaps, set(user.uncertain)), ([], {0}))
        self.assertEqual(self.deployment.emulators(), emulators)
        for keys in stock:
            await keys.leave()
        for pid in self.deployment.pids[:-1]:
            await self.deployment.until_ended(pid)

    async def test_killed_poollet(self) -> None:
        """
        Sessions whose poollet has just been killed do not stop the hand-over: those of stock
        clients go on, too.
        """
        name = kubectls.some()[0]
        stock = [await self.attached(name, f"m{number}") for number in range(2)]
        for _ in range(2):
            await self.deployment.poollet.stop(signal.SIGKILL)
            await self.deployment.upgrade()
            await self.deployment.start_poollet()
            for keys in stock:
                await keys.until_echoed()
                keys.start()
        for keys in stock:
            self.check(name, await keys.until_echoed(), keys)
        self.assertNotIn(b"sessions could not be left", self.deployment.runtime.output)
        for keys in stock:
            await keys.leave()
