"""
Tests for import paths of earlier releases.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

from twisted.trial.unittest import SynchronousTestCase

from tests.tiers import PROGRAMS

OLD_PATHS = {
    "api.kinds.common.schemas": "strings",
    "api.kinds.common.validation": "claim",
    "api.kinds.shapes": "strings",
    "api.meta": "Resource",
    "auth.groups": "MASTERS",
    "console.journal": "Journal",
    "console.session": "LineEnded",
    "kube.consoles.endpoint": "ConsoleEndpoint",
    "kube.exec": "ConsoleEndpoint open_console",
    "kube.following": "FollowedConfig FollowedFiles",
    "kube.informers.reflector": "Reflector",
    "kube.watch": "Reflector Backoff IStore key_of",
    "observe.audit": "JSONLinesAudit",
    "program.clock": "TURN_EVENTS shorten_turns use_monotonic_clock",
    "program.loop": "shorten_turns",
    "runtimes.lines.claims": "Lines",
    "runtimes.lines.serial_port": "SerialEndpoint",
    "runtimes.serial_port": "SerialEndpoint",
    "runtimes.stream_server": "StreamServer TokenServer",
    "testing.attachment": "EchoAttachment",
    "testing.flow": "RecordingProducer",
    "testing.http": "MemoryServer",
    "tls.descriptor": "LINGER_SECONDS RECORD_BYTES TLSClient TLSConnecting TLSServer accept_tls",
    "tls.pki.directory": "open_pki create_pki",
    "tls.transport": (
        "Connecting KEEP_ALIVE StreamTLS StreamTLSFactory TCPClient TCPConnector TCPServer TURN_ACCEPTS "
        "UNIXClient UNIXServer accept_as accept_unbuffered socket_transport unbuffered_connector"
    ),
    "wire.com_port": "Event",
}
"""Modules that pages of earlier releases name, and names in them."""


class MovedTests(SynchronousTestCase):
    """Programs that were written with the pages of an earlier release find what they import."""

    starts = PROGRAMS

    def test_names(self) -> None:
        """Each path can be imported; each name comes with a warning that names its new path."""
        for path, names in OLD_PATHS.items():
            module = import_module(f"twisted_exec.{path}")
            for name in names.split():
                found = getattr(module, name)
                (warning,) = self.flushWarnings()
                self.assertIs(warning["category"], DeprecationWarning)
                old, is_now, new, *_ = warning["message"].split()
                self.assertEqual((old, is_now), (f"twisted_exec.{path}.{name}", "is"))
                new_module, _, new_name = new.rpartition(".")
                self.assertIs(getattr(import_module(new_module), new_name), found)

    def test_line(self) -> None:
        """The warning is about the line of the import."""
        text = "import sys\nfrom twisted_exec.tls.pki.directory import open_pki\n"
        ran = subprocess.run([sys.executable, "-Wd", "-c", text], capture_output=True, text=True)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual(ran.stderr.count("DeprecationWarning"), 1)
        self.assertIn(
            "<string>:2: DeprecationWarning: "
            "twisted_exec.tls.pki.directory.open_pki is twisted_exec.tls.pki.open_pki since 0.2.0",
            ran.stderr,
        )

    def test_unknown(self) -> None:
        """Other modules and names do not exist, as before."""
        self.assertRaises(ModuleNotFoundError, import_module, "twisted_exec.kube.consoles.other")
        for path in ("observe.audit", "observe"):
            module = import_module(f"twisted_exec.{path}")
            self.assertRaises(AttributeError, getattr, module, "unknown")
