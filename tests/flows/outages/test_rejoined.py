"""
Sessions of stock kubectls go on when a hop behind their API server dies or stops.
"""

from __future__ import annotations

import hashlib
import json
import re
import signal
from pathlib import Path
from typing import Any

from tests import needs
from tests.flows import kubectls
from tests.flows.deployment import pause
from tests.flows.kubectl.test_pods_view import PodsTestCase
from tests.flows.programs import Program

LINES = 3000


class RejoinedTests(PodsTestCase):
    """The poollet is lost, at work, while a kubectl of each protocol is attached."""

    exact = True
    skip = needs.kubectl()

    async def attached(self, name: str) -> Program:
        program = self.in_terminal(name, "attach", "-it", "sh")
        await program.until(rb"press enter|[$#] ")
        # Earlier output is shown again, with its prompts: each kubectl waits for words of its own, which may
        # follow the prompt of a shell that has just started.
        program.type(b"stty -echo; PS1=; echo re''ady-%b\n" % name.encode())
        await program.until(rb"ready-%b\r\n" % re.escape(name.encode()))
        return program

    async def lose_poollet(self, number: int) -> None:
        await self.deployment.poollet.stop(number)
        await self.deployment.start_poollet()

    async def test_killed(self) -> None:
        """Each byte of output arrives once, and each key, although the poollet is killed."""
        for name in kubectls.some():
            program = await self.attached(name)
            start = len(program.stdout)
            # Output and keys are on their way in both directions when the poollet dies.
            program.type(
                b"i=0; while [ $i -lt %d ]; do echo line-$i; i=$((i+1)); done; " % LINES
                + b"while read w; do echo got-$w; [ $w = last ] && break; done; echo over\n"
            )
            await program.until(rb"line-40\r\n", start=start)
            for word in range(20):
                program.type(b"w%d\n" % word)
            await self.lose_poollet(signal.SIGKILL)
            program.type(b"last\n")
            await program.until(rb"\nover\r\n", start=start)
            lines = [b"line-%d" % number for number in range(LINES)]
            lines += [b"got-w%d" % word for word in range(20)] + [b"got-last", b"over"]
            expected = b"".join(line + b"\r\n" for line in lines)
            got = program.stdout[start:]
            got = got[got.index(b"line-0") : got.index(b"\nover\r\n") + len(b"\nover\r\n")]
            digests = [hashlib.sha256(each).hexdigest() for each in (got, expected)]
            self.assertEqual(*digests, (name, got[-200:]))
            program.type(b"exit 3\n")
            self.assertEqual(await program.ended, 3, name)

    async def test_stopped(self) -> None:
        """A poollet that stops does not end the sessions that go on through its successor."""
        program = await self.attached("kubectl")
        await self.lose_poollet(signal.SIGTERM)
        program.type(b"echo st''ill\n")
        await program.until(rb"\nstill\r\n")
        program.type(b"exit 3\n")
        self.assertEqual(await program.ended, 3)
        while not (ends := self.ends("runtime")):
            await pause()
        self.assertEqual([each["reason"] for each in ends], ["Completed"])

    async def test_killed_client(self) -> None:
        """A kubectl that is killed leaves nothing behind: nobody waits for it."""
        program = await self.attached("kubectl")
        await program.stop(signal.SIGKILL)
        while not self.ends("runtime"):
            await pause()

    def ends(self, hop: str) -> list[dict[str, Any]]:
        """Return the audit records of ended sessions of a hop."""
        text = Path(self.deployment.path(f"{hop}.audit")).read_text()
        return [each for each in map(json.loads, text.splitlines()) if each["event"] == "end"]
