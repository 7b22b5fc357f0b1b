"""
Tests for ``twisted-exec screen`` against a real server.
"""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.cli.typed import typed
from tests.kube.console_cases import Consoles, ConsolesCase
from twisted_exec.api.screens import ScreenForm, ScreenOptions
from twisted_exec.api.status import APIError, NotFound, ServiceUnavailable
from twisted_exec.cli.commands.registry import make_parser
from twisted_exec.cli.commands.screen import printable, screen_options
from twisted_exec.streaming.http.responses import respond, respond_json
from twisted_exec.streaming.http.site import Request

PATH = b"/namespaces/default/machines/vm/screen"


class Screens(Consoles):
    """
    Serves the screen of the machine ``vm``.

    :ivar problem: refuses requests.
    :ivar text: the screen as text.
    :ivar power: of the machine, if its object can be read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.problem: APIError | None = None
        self.queries: list[bytes] = []
        self.text = b"the text"
        self.power: str | None = None

    async def dispatch(self, request: Request) -> None:
        if request.path.endswith(b"/machines/vm") and self.power is not None:
            respond_json(request, 200, {"metadata": {"name": "vm"}, "spec": {"power": self.power}})
            return
        if not request.path.endswith(b"/screen"):
            await super().dispatch(request)
            return
        self.queries.append(request.uri.partition(b"?")[2])
        if self.problem is not None:
            raise self.problem
        if not request.path.endswith(PATH):
            raise NotFound("machines", "vm", "compute.ironcore.dev")
        types = {b"svg": "image/svg+xml", b"json": "application/json"}
        form = request.args[b"as"][0]
        screen = self.text if form == b"text" else b"the " + form
        respond(request, 200, screen, types.get(form, "text/plain; charset=utf-8"))


class ScreenTests(ConsolesCase):
    """``twisted-exec screen vm``."""

    def setUp(self) -> Any:
        serving = super().setUp()
        self.screens = self.site.resource = Screens()
        return serving

    async def typed(self, *words: str) -> tuple[int, str, str]:
        """Exit code, output and errors."""
        return await typed(self, "screen", "--kubeconfig", self.kubeconfig(), "vm", *words)

    async def test_forms(self) -> None:
        """The screen is printed in the wanted form."""
        self.assertEqual(await self.typed(), (0, "the text", ""))
        self.assertEqual(await self.typed("-o", "json", "--at", "70"), (0, "the json", ""))
        queries = [each for each in self.screens.queries if each]
        self.assertEqual(queries, [b"as=text", b"as=json&at=70"])

    async def test_hostile(self) -> None:
        """Bytes of a server's answer that are no screen do not reach the terminal."""
        self.screens.text = b"a\x1b]0;title\x07\x1b[31mb\x1b[6n\x9b6n\xc2\x9b6n\r\tc\n"
        code, out, _ = await self.typed()
        self.assertEqual((code, out), (0, "a]0;titleb[6n\ufffd6n6n\tc\n"))
        drawn = "\x1b[m\x1b[H\x1b[2J\x1b[1;1H\x1b[0;31mred\x1b[m\x1b[1;4H\x1b[?25h"
        hostile = drawn + "\x1b[6n\x1b]0;t\x07"
        self.assertEqual(printable(hostile.encode(), ScreenForm.ANSI).decode(), drawn + "[6n]0;t")

    async def test_empty(self) -> None:
        """A message tells an empty screen from a command that did nothing."""
        self.screens.text = b"\n"
        message = "twisted-exec screen: the screen is empty"
        why = "the machine had printed nothing by then, or its journal begins later"
        self.assertEqual(await self.typed("--at", "30d"), (0, "\n", f"{message}: {why}\n"))
        message += "; twisted-exec doctor vm -n default says whether the machine is on\n"
        self.assertEqual(await self.typed(), (0, "\n", message))

    async def test_powered_off(self) -> None:
        """A message tells the last screen of a machine that is powered off from the screen of a running machine."""
        line = "twisted-exec screen: vm is powered off; this is its last screen\n"
        for power, told in (("Off", line), ("On", "")):
            self.screens.power = power
            self.assertEqual(await self.typed(), (0, "the text", told))
            self.assertEqual(await self.typed("--at", "70"), (0, "the text", ""))

    async def test_file(self) -> None:
        """A picture is written to a file."""
        path = Path(self.mktemp())
        self.assertEqual(await self.typed("--svg", str(path)), (0, "", ""))
        self.assertEqual(path.read_bytes(), b"the svg")
        code, _, told = await self.typed("--svg", "/nonexistent/x.svg")
        message = "cannot write /nonexistent/x.svg: No such file or directory"
        self.assertEqual((code, told), (1, f"twisted-exec screen: {message}\n"))

    async def test_refused(self) -> None:
        """A refusal of the server is one line."""
        self.screens.problem = ServiceUnavailable("the terminal emulator failed")
        self.assertEqual(
            await self.typed(), (1, "", "twisted-exec screen: the terminal emulator failed\n")
        )


class OptionTests(SynchronousTestCase):
    """Options."""

    def options(self, *words: str) -> ScreenOptions:
        return screen_options(make_parser().parse_args(["screen", "vm", *words]))

    def test_at(self) -> None:
        """An offset, a time, or a duration before now."""
        self.assertEqual(self.options(), ScreenOptions())
        self.assertEqual(self.options("--at", "0").at_offset, 0)
        night = self.options("--at", "2023-11-14T22:13:20Z", "--svg", "x.svg")
        self.assertEqual(night, ScreenOptions(None, 1_700_000_000 * 10**9, ScreenForm.SVG))
        self.assertIsNotNone(self.options("--at", "10m").at_nanoseconds)

    def test_future(self) -> None:
        """A time that is still to come has no screen."""
        stderr = io.StringIO()
        with redirect_stderr(stderr), self.assertRaises(SystemExit):
            self.options("--at", "2999-01-01T00:00:00Z")
        self.assertIn(
            '"2999-01-01T00:00:00Z" is in the future by the clock of this host', stderr.getvalue()
        )
