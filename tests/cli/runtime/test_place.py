"""
Tests for :mod:`twisted_exec.cli.runtime.place`.
"""

from __future__ import annotations

import contextlib
import io

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.commands.registry import make_parser
from twisted_exec.cli.runtime.place import NoRuntimeError, RuntimePlace, place

IRI, ORI = "IRI_MACHINE_RUNTIME_ENDPOINT", "ORI_MACHINE_RUNTIME_ENDPOINT"


class PlaceTests(SynchronousTestCase):
    """Tests for :func:`place`."""

    def found(
        self,
        *arguments: str,
        environment: dict[str, str] | None = None,
        sockets: dict[str, str] | None = None,
    ) -> RuntimePlace:
        options = make_parser().parse_args(["iri", "version", *arguments])
        return place(options, environment or {}, sockets or {})

    def test_address(self) -> None:
        """``--address`` takes precedence over the environment."""
        found = self.found("--address", "unix:///a", environment={IRI: "unix:///b"})
        self.assertEqual(found, RuntimePlace("unix:///a", "ironcore"))

    def test_environment(self) -> None:
        """ironcore's variable takes precedence over onmetal's; an empty variable is ignored."""
        both = {IRI: "unix:///i", ORI: "unix:///o"}
        self.assertEqual(self.found(environment=both), RuntimePlace("unix:///i", "ironcore"))
        both[IRI] = ""
        self.assertEqual(self.found(environment=both), RuntimePlace("unix:///o", "onmetal"))

    def test_sockets(self) -> None:
        """The first existing socket is used, and implies the revision."""
        here = self.mktemp()
        with open(here, "w"):
            pass
        sockets = {"/nonexistent/a": "ironcore", here: "spheric", "/": "onmetal"}
        self.assertEqual(self.found(sockets=sockets), RuntimePlace(f"unix://{here}", "spheric"))

    def test_revision(self) -> None:
        """
        ``--revision`` takes precedence over the revision that an environment variable implies.
        """
        found = self.found("--revision", "onmetal-0.1", environment={ORI: "unix:///o"})
        self.assertEqual(found, RuntimePlace("unix:///o", "onmetal-0.1"))

    def test_nowhere(self) -> None:
        """Without any runtime, the error says what to do."""
        with self.assertRaises(NoRuntimeError) as caught:
            self.found()
        self.assertIn("Give --address, or set IRI_MACHINE_RUNTIME_ENDPOINT", str(caught.exception))

    def test_malformed(self) -> None:
        """A malformed address is refused with its option."""
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors), self.assertRaises(SystemExit):
            make_parser().parse_args(["iri", "version", "--address=foo"])
        self.assertIn("argument --address: 'foo' is neither unix:///", errors.getvalue())

    def test_users(self) -> None:
        """
        ``--runtime-uid`` takes a number or a user name; an unknown name is refused with a message.
        """
        parser = make_parser()
        parsed = parser.parse_args(["iri", "version", "--runtime-uid=7", "--runtime-uid=root"])
        self.assertEqual(parsed.runtime_uid, [7, 0])
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors), self.assertRaises(SystemExit):
            parser.parse_args(["iri", "version", "--runtime-uid=nobody-at-all"])
        self.assertIn("there is no user 'nobody-at-all' on this host", errors.getvalue())
