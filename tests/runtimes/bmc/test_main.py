"""Tests for ``python -m tests.runtimes.bmc``."""

from __future__ import annotations

import argparse
import io
import os
import socket
import sys

from twisted.trial.unittest import SynchronousTestCase

from tests.runtimes.bmc.__main__ import kind_of, main


class PortTests(SynchronousTestCase):
    """``--port``."""

    def test_used(self) -> None:
        """A port that another program has is a mistake of the command line."""
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            self.patch(sys, "argv", ["bmc", "--port", str(port)])
            told = io.StringIO()
            self.patch(sys, "stderr", told)
            self.assertEqual(self.assertRaises(SystemExit, main).code, 2)
        self.assertIn(f"port {port} cannot be used: ", told.getvalue())


class KindTests(SynchronousTestCase):
    """``--kind``."""

    def test_file(self) -> None:
        """The name of a file is taken with and without its ending."""
        self.assertEqual((kind_of("openbmc"), kind_of("openbmc.json")), ("openbmc", "openbmc"))

    def test_directory(self) -> None:
        """The path of a mockup's directory is taken as it is."""
        path = os.path.abspath(self.mktemp())
        os.makedirs(f"{path}/redfish/v1")
        with open(f"{path}/redfish/v1/index.json", "w") as file:
            file.write("{}")
        self.assertEqual(kind_of(path), path)

    def test_mistakes(self) -> None:
        """Another word is refused with the names of all kinds; another directory with the file that it lacks."""
        for text, why in (
            ("ilo", "it is none of bluefield, dell, hpe, "),
            ("./nowhere", "./nowhere/redfish/v1/index.json is missing"),
        ):
            with self.assertRaises(argparse.ArgumentTypeError) as caught:
                kind_of(text)
            self.assertIn(why, str(caught.exception))
