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
from twisted_exec.cli.fleet.screens import CHANGING_SECONDS
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

    def test_blank(self) -> None:
        """A tile without text says that its machine does not run, or has printed nothing yet."""
        states = ["Shutdown", "Running"]

        class Client:
            def __init__(self, *_: Any, **more: Any) -> None: ...

            def get(self, resource: Any, name: str, namespace: str) -> Any:
                return succeed({"status": {"state": states.pop(0)}})

            def close(self) -> Any:
                return succeed(None)

        self.patch(tiled, "CommandClient", Client)
        cursor = {"row": 0, "column": 0, "visible": True}
        screen = {"epoch": "0", "offset": 0, "cursor": cursor, "lines": [{"text": "  "}]}
        for note in ("the machine does not run: Shutdown", "nothing was printed yet"):
            self.answer.callback(json.dumps(screen).encode())
            self.assertIn(note, self.drawn())
            self.clock.advance(CHANGING_SECONDS)

    def test_message(self) -> None:
        """A message about a cluster is one line, and leaves a question in place."""
        self.view.tell("space bad: \x1b[2J no")
        self.assertIn("| space bad: ?[2J no", self.drawn())
        self.view.typed(b" t")
        self.view.tell("space worse: no")
        text = self.drawn()
        self.assertIn("type to 1 machine (lab-1/a)? y or n", text)
        self.assertNotIn("worse", text)
