"""Tests for :mod:`twisted_exec.cli.fleet.tiled`: the view."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.dialects import DEFAULT
from twisted_exec.cli.console.options import parse_options
from twisted_exec.cli.fleet import tiled
from twisted_exec.cli.fleet.screens import QUIET_SECONDS
from twisted_exec.cli.fleet.targets import Cluster, FleetTarget
from twisted_exec.cli.fleet.tiled import DRAW_SECONDS, View
from twisted_exec.kube.kubeconfig.client_config import ClientConfig

CONFIG = ClientConfig("http://127.0.0.1:1")


class Terminal:
    """A terminal."""

    unsent = 0

    def __init__(self) -> None:
        self.text = ""

    def write(self, data: bytes) -> None:
        self.text += data.decode()


class ViewTests(SynchronousTestCase):
    """Tiles whose machines are not all there at the beginning."""

    def setUp(self) -> None:
        self.read: list[str] = []
        self.clock, self.terminal = Clock(), Terminal()
        self.patch(tiled, "read_screen", self.read_screen)
        task: Any = SimpleNamespace(
            options=parse_options(["--all", "--tiled"]), reactor=self.clock, stop=lambda: None
        )
        targets = [self.target("lab-1", "a")]
        self.view = View(task, targets, self.terminal, (160, 50))  # type: ignore[arg-type]

    def read_screen(self, config: Any, namespace: str, name: str, *_: Any, **more: Any) -> Any:
        self.read.append(name)
        self.answer: Deferred[bytes] = Deferred()
        return self.answer

    def target(self, cluster: str, name: str) -> FleetTarget:
        label = f"{cluster}/{name}"
        return FleetTarget(Cluster(cluster, CONFIG), DEFAULT, "default", name, label, label)

    def drawn(self) -> str:
        self.clock.advance(DRAW_SECONDS)
        text, self.terminal.text = self.terminal.text, ""
        return text

    def test_more(self) -> None:
        """Machines of a cluster that answers later are shown behind the others; marks stay."""
        self.view.typed(b" ")
        self.assertIn("1 machine, page 1 of 1, 1 marked", self.drawn())
        self.view.add([self.target("lab-0", "b")])
        text = self.drawn()
        self.assertIn(">*lab-1/a", text)
        self.assertIn("  lab-0/b", text)
        self.assertIn("2 machines, page 1 of 1, 1 marked", text)
        self.assertEqual(self.read, ["a", "b"])

    def states(self, *states: str) -> None:
        """Set the states that the machine has one after the other."""
        left = list(states)

        class Client:
            def __init__(self, *_: Any, **more: Any) -> None: ...

            def get(self, resource: Any, name: str, namespace: str) -> Any:
                return succeed({"status": {"state": left.pop(0)}})

            def close(self) -> Any:
                return succeed(None)

        self.patch(tiled, "CommandClient", Client)

    def show(self, text: str, offset: int) -> str:
        """Answer the look at the screen, and return what is drawn; the next look follows."""
        cursor = {"row": 0, "column": 0, "visible": True}
        screen = {"epoch": "0", "offset": offset, "cursor": cursor, "lines": [{"text": text}]}
        self.answer.callback(json.dumps(screen).encode())
        drawn = self.drawn()
        self.clock.advance(QUIET_SECONDS)
        return drawn

    def test_blank(self) -> None:
        """A tile without text says that its machine does not run, or has printed nothing yet."""
        self.states("Shutdown", "Running")
        self.assertIn("the machine does not run: Shutdown", self.show("  ", 0))
        self.assertIn("nothing was printed yet", self.show("  ", 0))

    def test_off(self) -> None:
        """A tile whose screen stays the same says that its machine does not run, until the machine runs again."""
        self.states("Running", "Shutdown", "Running")
        off = "the machine does not run: Shutdown"
        self.assertNotIn(off, self.show("login:", 5))
        self.assertIn(off, self.show("login:", 5))
        self.assertNotIn(off, self.show("booting", 12))
        self.assertNotIn("nothing was printed", self.show("booting", 12))

    def test_message(self) -> None:
        """A message about a cluster is one line, and leaves a question in place."""
        self.view.tell("space bad: \x1b[2J no")
        self.assertIn("| space bad: ?[2J no", self.drawn())
        self.view.typed(b" t")
        self.view.tell("space worse: no")
        text = self.drawn()
        self.assertIn("type to 1 machine? y or n | lab-1/a", text)
        self.assertNotIn("worse", text)
