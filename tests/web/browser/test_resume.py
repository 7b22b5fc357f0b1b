"""
A console in a real browser loses no byte of a busy machine: over a reload, a lost connection and a
killed API server.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.flows.deployment import pause
from tests.flows.resuming import BUSY
from tests.interop.numbered import Output

from .base import WebTestCase
from .user import User

FLOOD_BYTES = 400_000
_NUMBER = re.compile(rb"(?<!\d)\d{15}(?!\d)")


class ResumeTests(WebTestCase):
    """A machine that prints numbered lines, and a user who watches it."""

    async def setUp(self) -> None:
        await super().setUp()
        await self.deployment.create_machine("busy-1", BUSY)

    async def test_flood(self) -> None:
        """
        The terminal gets each byte once while the connection is cut and the API server is killed; a
        reloaded page goes on before the last byte that the page before it has shown.  The machine gets
        all keys, also those that were typed before the console was open.
        """
        user = await self.user()
        await user.page.delay(300)
        await user.open("machines/default/busy-1")
        await user.focus_terminal()
        await user.page.type("early")
        await user.page.delay(0)
        await self.more(user)
        self.deployment.near.cut()
        await user.until_page("reconnected")
        await self.more(user)
        await user.page.reload()
        await self.more(user)
        self.assertEqual(len(user.written), 2)
        await self.deployment.end("api")
        await user.until_page("connection lost")
        shown = await user.text()
        self.assertRegex(shown, r"\d{15}\n")
        await self.deployment.start_api()
        await user.until_page("reconnected")
        await self.more(user)
        await user.page.type("typed")
        self.deployment.stop_printing()
        await user.until_terminal("END$")
        before, after = (check(pieces) for pieces in (user.pieces(0), user.pieces(1)))
        self.assertTrue(after.has_ended)
        self.assertLessEqual(first_number(user.pieces(1)), last_number(user.pieces(0)) + 1)
        print(f"{before.size} bytes before the reload, {after.size} after it")
        self.assertEqual(self.deployment.typed, b"earlytyped")
        self.check_faults()

    async def more(self, user: User) -> None:
        """Wait until the terminals have got much more output."""
        size = user.written_bytes + FLOOD_BYTES
        while user.written_bytes < size:
            await pause()


def check(pieces: Sequence[bytes]) -> Output:
    """
    Check that pieces of output are consecutive numbered lines.

    :raises WrongBytesError: they are not.
    """
    output = Output()
    for piece in pieces:
        if b"\x1b" not in piece:  # the state of a screen, which precedes the output behind it
            output.add(piece)
    return output


def first_number(pieces: Sequence[bytes]) -> int:
    """Return the first number that the pieces show."""
    return int(next(match[0] for piece in pieces for match in _NUMBER.finditer(piece)))


def last_number(pieces: Sequence[bytes]) -> int:
    """Return the number of the last line that the pieces show, which may be incomplete."""
    return int(_NUMBER.findall(b"".join(pieces[-3:]))[-1])
