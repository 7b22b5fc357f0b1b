"""
Steps of users at a shell and at a busy machine, which tests with different browsers share.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from twisted.trial.unittest import TestCase

from tests.flows.deployment import pause
from tests.interop.numbered import Output
from tests.tiers import BROWSER
from twisted_exec.api import kinds

from .deployment import WebDeployment
from .user import User

RECORDINGS = kinds.CONSOLERECORDINGS.resource
VM = "machines/default/vm-1"
FLOOD_BYTES = 400_000
PLAYED = "document.querySelector('.player .ap-term-text, .player .ap-term')?.innerText"
# A cursor of a terminal that has the focus.
HOLLOW = """(() => {
    const {backgroundColor, outlineStyle} = getComputedStyle(document.querySelector('.xterm-cursor.xterm-cursor-block'));
    return backgroundColor === 'rgba(0, 0, 0, 0)' && outlineStyle === 'solid';
})()"""
_NUMBER = re.compile(rb"(?<!\d)\d{15}(?!\d)")


class Steps(TestCase):
    """Steps of tests with a deployment, in which ``vm-1`` is a machine with a shell."""

    starts = BROWSER
    deployment: WebDeployment

    async def open_terminal(self, user: User[Any]) -> None:
        """Find the machine with the shell in the list, and wait until the page knows who is there and who types."""
        await user.page.click(f"a[href='#/{VM}']")
        await user.until_terminal("[#$]$")
        await user.until_page("You can type|Observing")
        await user.page.until("document.querySelector('.viewers')?.textContent")

    async def play_recording(self, user: User[Any]) -> None:
        """Record a line, and seek to it in the player, which shows the screen of that moment."""
        await self.begin_recording(user)
        await user.echo("recorded")
        await self.open_ended_recording(user)
        await self.seek(user, "3600")
        await user.page.until(f"/recorded-42/.test({PLAYED})")

    async def begin_recording(self, user: User[Any]) -> None:
        """Record the console that a user has open."""
        spec = {"machine": "vm-1", "input": "none", "reason": "a <b>test</b>"}
        # The page says so for ten seconds only, and the state of the recording may come later.
        said = await user.watch_page(r"recorded for \S+ \(input: none\)")
        body = {"metadata": {"name": "seen"}, "spec": spec}
        await self.deployment.client.create(RECORDINGS, body, "default")
        await said()
        await self._recording_is("Recording")

    async def open_ended_recording(self, user: User[Any]) -> None:
        """End the recording, and open it in the player."""
        said = await user.watch_page("not recorded any more")
        change = {"spec": {"ended": True}}
        await self.deployment.client.patch(RECORDINGS, "seen", change, "default")
        await said()
        await self._recording_is("Closed")
        await user.open("recordings/default/seen")
        await user.until_page("a <b>test</b>")

    async def seek(self, user: User[Any], position: str) -> None:
        """Type a position of the player."""
        await user.page.focus("input[placeholder='1:30 or 90']")
        await user.page.evaluate("document.activeElement.select()")
        await user.page.type(f"{position}\n")

    async def _recording_is(self, state: str) -> None:
        while True:
            recording = await self.deployment.client.get(RECORDINGS, "seen", "default")
            if recording.get("status", {}).get("phase") == state:
                return
            await pause()

    async def use_commands(self, user: User[Any]) -> None:
        """Keys reach the commands of the page from the terminal, come back to it, and reach the list."""
        await user.until_terminal_focus()
        await user.page.type("echo keys-$((6*7))\n")
        await user.until_terminal("keys-42")
        await user.open_commands()
        await user.page.press("Escape")
        await user.until_terminal_focus()
        await user.open_commands()
        await user.page.press("e")
        await user.until_page("Debug")
        await user.page.press("Enter")
        await user.until_terminal_focus()
        await user.page.type("seq 200\n")
        await user.until_terminal("200\n.*$")
        await user.open_commands()
        await user.page.press("l")
        await user.page.until("/^#\\/machines($|\\?)/.test(location.hash)")
        await user.page.until("document.querySelector('tbody tr')")

    async def cut_and_reload(self, user: User[Any]) -> None:
        """Lose the connection, and load the page again, while a machine prints."""
        await user.until_more_output(FLOOD_BYTES)
        said = await user.watch_page("Reconnected")  # for ten seconds
        self.deployment.near.cut()
        await said()
        await user.until_more_output(FLOOD_BYTES)
        await user.page.reload()
        # The document before it goes on with its output until the new one has arrived.
        await user.until_documents(2)
        await user.until_more_output(FLOOD_BYTES)
        self.assertEqual(len(user.written), 2)

    async def end_output(self, user: User[Any]) -> None:
        """
        Wait for the last line of a busy machine.

        Fail unless each document shows consecutive lines, and goes on before the end of the one before it.
        """
        self.deployment.stop_printing()
        await user.until_terminal("END$")
        documents = [user.pieces(number) for number in range(len(user.written))]
        outputs = [_output(each) for each in documents]
        self.assertTrue(outputs[-1].has_ended)
        for before, after in pairwise(documents):
            self.assertLessEqual(_first_number(after), _last_number(before) + 1)
        print("bytes in each document:", *(each.size for each in outputs))


def _output(pieces: Sequence[bytes]) -> Output:
    """
    Check that pieces of output are consecutive numbered lines.

    :raises WrongBytesError: they are not.
    """
    output = Output()
    for piece in pieces:
        if b"\x1b" not in piece:  # the state of a screen, which precedes the output behind it
            output.add(piece)
    return output


def _first_number(pieces: Sequence[bytes]) -> int:
    """Return the first number that the pieces show."""
    return int(next(match[0] for piece in pieces for match in _NUMBER.finditer(piece)))


def _last_number(pieces: Sequence[bytes]) -> int:
    """Return the number of the last line that the pieces show, which may be incomplete."""
    return int(_NUMBER.findall(b"".join(pieces[-3:]))[-1])
