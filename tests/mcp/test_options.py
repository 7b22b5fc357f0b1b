"""Tests for :mod:`twisted_exec.mcp.options`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.taps import assert_required
from twisted_exec.mcp.options import Options

REQUIRED = [
    "--resource-url=https://mcp.example.org/mcp",
    "--tls-cert-file=/c",
    "--tls-private-key-file=/k",
    "--authentication-config=/a",
]


class OptionTests(SynchronousTestCase):
    """The command line."""

    def parsed(self, *words: str) -> Options:
        options = Options()
        options.parseOptions([*REQUIRED, *words])
        return options

    def test_settings(self) -> None:
        """The settings of a command line."""
        settings = self.parsed("--max-sessions=5", "--listen=tcp:1").settings()
        self.assertEqual((settings.limits.sessions, settings.listen), (5, "tcp:1"))
        self.assertEqual(settings.url, "https://mcp.example.org/mcp")

    def test_required(self) -> None:
        """Each of the required options is named when it is missing."""
        assert_required(self, Options, REQUIRED)

    def test_url(self) -> None:
        """Clients must be able to use the URL, and nobody may read their tokens."""
        for url in (
            "http://mcp.example.org/mcp",
            "https://mcp.example.org",
            "mcp",
            "https://a/b?c",
            "https://u@a/b",
        ):
            self.assertRaises(SystemExit, self.parsed, f"--resource-url={url}")
        self.parsed("--resource-url=http://127.0.0.1:8443/mcp")
