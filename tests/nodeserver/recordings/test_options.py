"""
Tests for :mod:`twisted_exec.nodeserver.recordings.options`.
"""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.nodeserver.recordings.options import RecordingOptions

from .support import pod


class Options(RecordingOptions):
    """As a program has them."""

    program = "exec-nodeserver"


NEEDED = (
    "--recorder-certificate=/c",
    "--recorder-key=/k",
    "--recording-dir=/d",
    "--recording-store=file:///s",
)


class OptionsTests(SynchronousTestCase):
    """Options of recordings."""

    def read(self, *words: str) -> Options:
        """The options of a command line."""
        options = Options()
        options.parseOptions(list(words))
        return options

    def refused(self, *words: str) -> str:
        """The message for a command line."""
        with self.assertRaises(SystemExit) as caught:
            self.read(*words)
        return str(caught.exception)

    def test_nothing(self) -> None:
        """By default nothing is recorded."""
        self.assertIsNone(self.read().recordings())

    def test_recorded(self) -> None:
        """Namespaces, labels and input are those of the command line."""
        make = self.read(
            *NEEDED,
            "--record-namespaces=a, b",
            "--record-selector=tier=web",
            "--record-input=masked",
            "--recording-required",
        ).recordings()
        assert make is not None
        recordings = make(Clock(), CollectorRegistry())
        self.assertTrue(recordings.selects(pod(namespace="b", tier="web")))
        self.assertFalse(recordings.selects(pod(namespace="c", tier="web")))
        self.assertFalse(recordings.selects(pod(namespace="a")))
        self.assertEqual(recordings.settings.input, "masked")
        self.assertTrue(recordings.is_required)
        self.assertTrue(os.path.isabs(recordings.settings.directory))

    def test_all(self) -> None:
        """A star is every namespace."""
        make = self.read(*NEEDED, "--record-namespaces=*").recordings()
        assert make is not None
        self.assertTrue(make(Clock(), CollectorRegistry()).selects(pod(namespace="any")))

    def test_incomplete(self) -> None:
        """Each option that is missing, or has no use, is named."""
        for word in NEEDED:
            name = word.partition("=")[0]
            others = [each for each in NEEDED if each != word]
            self.assertIn(
                f"--record-namespaces needs {name}", self.refused("--record-namespaces=*", *others)
            )
            self.assertIn(f"{name} needs --record-namespaces", self.refused(word))
        self.assertIn(
            "--recording-required needs --record-namespaces", self.refused("--recording-required")
        )

    def test_wrong(self) -> None:
        """Values that cannot be meant are refused."""
        recorded = (*NEEDED, "--record-namespaces=*")
        self.assertIn(
            "is none of none, masked, all", self.refused(*recorded, "--record-input=some")
        )
        self.assertIn("--record-selector", self.refused(*recorded, "--record-selector=a in ("))
        message = self.refused(*recorded[:3], "--record-namespaces=*", "--recording-store=/srv")
        self.assertIn("--recording-store: give file:///DIRECTORY", message)
