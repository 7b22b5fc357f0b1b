"""
Tests for :mod:`twisted_exec.racks.options` and :mod:`twisted_exec.racks.tap`.
"""

from __future__ import annotations

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.nodeserver.test_tap import KUBECONFIG
from tests.taps import assert_required, refusal
from twisted_exec.api.dialects import SPHERIC
from twisted_exec.program.service import ServiceWithCleanup
from twisted_exec.racks.options import Options
from twisted_exec.racks.plan import Target
from twisted_exec.racks.service import Racks
from twisted_exec.racks.tap import makeService

REQUIRED = ("--list=rack.csv", "--namespace=lab", "--machine-class=server", "--machine-pool=r7")


class OptionsTests(SynchronousTestCase):
    """The command line."""

    def options(self, *more: str) -> Options:
        options = Options()
        options.parseOptions([*REQUIRED, *more])
        return options

    def test_settings(self) -> None:
        """The options become settings; the path becomes absolute."""
        settings = self.options(
            "--machine-power=on", "--dialect=spheric", "--server-selector=rack=r7,!spare"
        ).settings()
        self.assertEqual(settings.target, Target(SPHERIC, "lab", "server", "r7", "on"))
        self.assertEqual(settings.list_path, os.path.abspath("rack.csv"))
        self.assertEqual(settings.selector, "rack=r7,!spare")
        self.assertEqual(self.options().settings().target.power, "observed")

    def test_mistakes(self) -> None:
        """Each mistake has a message with the option."""
        for option, why in (
            ("--list=rack.yaml", "--list: .* must end with .csv"),
            ("--namespace=A", "--namespace: 'A' is not a name"),
            ("--machine-class=x y", "--machine-class: 'x y' is not a name"),
            ("--machine-pool=_", "--machine-pool: '_' is not a name"),
            ("--machine-power=off", "neither observed nor on"),
            ("--server-selector=a b", "--server-selector: "),
            ("--dialect=german", "--dialect: there is no dialect"),
        ):
            with self.assertRaisesRegex(SystemExit, why):
                self.options(option)
        assert_required(self, Options, REQUIRED)

    def test_service(self) -> None:
        """makeService returns the program, and writes nothing; a missing kubeconfig is one line."""
        path = Path(self.mktemp()).absolute()
        path.write_text(KUBECONFIG)
        program = makeService(self.options(f"--kubeconfig={path}"))
        assert isinstance(program, ServiceWithCleanup)
        self.assertIsInstance(program.served, Racks)
        self.assertFalse(os.path.exists("rack.csv"))
        told = refusal(
            self,
            "exec-racks",
            lambda: makeService(
                self.options(f"--kubeconfig={path}", "--machine-kubeconfig=/nonexistent")
            ),
        )
        self.assertIn("/nonexistent", told)
