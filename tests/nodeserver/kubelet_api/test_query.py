"""Tests for :mod:`twisted_exec.nodeserver.kubelet_api.query`."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote_from_bytes, quote_plus

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import APIError, BadRequest
from twisted_exec.nodeserver.kubelet_api.query import (
    MAX_PORTS,
    MAX_QUERY_BYTES,
    attach_query,
    exec_query,
    forward_query,
    parse,
    run_query,
)
from twisted_exec.nodeserver.kubelet_api.routes import KubeletTarget, path

ARGUMENTS = st.lists(st.binary(max_size=20), min_size=1, max_size=6)


class WantedTests(SynchronousTestCase):
    """Tests for :class:`KubeletTarget`."""

    def test_of(self) -> None:
        """A UID comes before the container, and last if there is none."""
        for segments, expected in (
            ("exec ns p c", KubeletTarget("exec", "ns", "p", "c")),
            ("exec ns p uid c", KubeletTarget("exec", "ns", "p", "c", "uid")),
            ("containerLogs ns p c", KubeletTarget("containerLogs", "ns", "p", "c")),
            ("run ns p uid c", KubeletTarget("run", "ns", "p", "c", "uid")),
            ("portForward ns p", KubeletTarget("portForward", "ns", "p")),
            ("portForward ns p uid", KubeletTarget("portForward", "ns", "p", uid="uid")),
        ):
            self.assertEqual(KubeletTarget.of(segments.split()), expected, segments)

    def test_last_slash(self) -> None:
        """A slash at the end is no segment: it makes neither a UID of a container nor none of one."""
        for segments, expected in (
            ("exec ns p c", KubeletTarget("exec", "ns", "p", "c")),
            ("containerLogs ns p uid c", KubeletTarget("containerLogs", "ns", "p", "c", "uid")),
            ("portForward ns p", KubeletTarget("portForward", "ns", "p")),
            ("portForward ns p uid", KubeletTarget("portForward", "ns", "p", uid="uid")),
        ):
            self.assertEqual(KubeletTarget.of([*segments.split(), ""]), expected, segments)


class ExecTests(SynchronousTestCase):
    """Tests for :func:`exec_query` and :func:`attach_query`."""

    def test_recorded(self) -> None:
        """Requests of a real kube-apiserver to a kubelet, translated for an API server."""
        for query, expected in (
            (
                b"command=sh&command=-c&command=exit+7&error=1&output=1",
                b"command=sh&command=-c&command=exit+7&container=c&stdout=true&stderr=true",
            ),
            (
                b"command=bash&input=1&output=1&tty=1",
                b"command=bash&container=c&stdin=true&stdout=true&tty=true",
            ),
            (b"output=1&command=ls", b"command=ls&container=c&stdout=true"),
        ):
            self.assertEqual(exec_query(query, "c"), expected)

    @given(ARGUMENTS)
    def test_any_command(self, command: list[bytes]) -> None:
        """Every argument arrives as it was, empty ones and any bytes too, in the same order."""
        query = "&".join(f"command={quote_plus(each)}" for each in command).encode()
        got = parse_qsl(
            exec_query(query + b"&output=1", "c").decode("ascii"),
            keep_blank_values=True,
            encoding="latin-1",
        )
        arguments = [value.encode("latin-1") for name, value in got if name == "command"]
        self.assertEqual(arguments, command)

    @given(ARGUMENTS)
    def test_other_spelling(self, command: list[bytes]) -> None:
        """The root's way of encoding does not matter."""
        query = "&".join(f"command={quote_from_bytes(each)}" for each in command).encode()
        plus = "&".join(f"command={quote_plus(each)}" for each in command).encode()
        self.assertEqual(
            exec_query(query + b"&output=1", "c"), exec_query(b"output=1&" + plus, "c")
        )

    def test_only_one_is_true(self) -> None:
        """Of an API server's words, or of anything but a literal 1, a kubelet knows nothing."""
        for query in (b"input=true", b"input=0", b"input=", b"input", b"stdin=1", b"input=1x"):
            with self.assertRaises(BadRequest):
                attach_query(query, "c")
            self.assertEqual(attach_query(query + b"&output=1", "c"), b"container=c&stdout=true")

    def test_first_counts(self) -> None:
        """Of repeated stream options the first counts."""
        self.assertEqual(
            attach_query(b"input=0&input=1&output=1&output=0", "c"), b"container=c&stdout=true"
        )

    def test_tty_has_no_stderr(self) -> None:
        """A terminal's errors are its output: asked for both, a kubelet drops the errors."""
        self.assertEqual(
            attach_query(b"tty=1&error=1&output=1", "c"), b"container=c&stdout=true&tty=true"
        )
        with self.assertRaises(BadRequest):
            attach_query(b"tty=1&error=1", "c")

    def test_no_streams(self) -> None:
        """The kubelet's own words."""
        with self.assertRaises(BadRequest) as caught:
            exec_query(b"command=ls&tty=1", "c")
        self.assertEqual(
            str(caught.exception), "you must specify at least 1 of stdin, stdout, stderr"
        )

    def test_no_command(self) -> None:
        """Nothing would be run."""
        for query in (b"output=1", b"", b"output=1&Command=ls"):
            with self.assertRaises(BadRequest) as caught:
                exec_query(query, "c")
            self.assertIn("you must specify a command", str(caught.exception))

    def test_nothing_else_passes(self) -> None:
        """The path names the container; unknown options do not get through."""
        query = b"output=1&container=other&command=ls&dryRun=All&x&=y"
        self.assertEqual(exec_query(query, "c"), b"command=ls&container=c&stdout=true")
        self.assertEqual(attach_query(query, "c"), b"container=c&stdout=true")

    def test_undecodable(self) -> None:
        """A command that lost an argument would be another command."""
        for query in (b"command=%zz", b"command=a%", b"command=a;b", b"%g1=x"):
            with self.assertRaises(BadRequest):
                exec_query(query + b"&command=ls&output=1", "c")

    def test_too_long(self) -> None:
        """An excessive query is refused before it is parsed."""
        with self.assertRaises(APIError) as caught:
            exec_query(b"output=1&command=" + b"x" * MAX_QUERY_BYTES, "c")
        self.assertEqual(caught.exception.code, 414)


class ForwardTests(SynchronousTestCase):
    """Tests for :func:`forward_query`."""

    def test_ports(self) -> None:
        """Ports of a WebSocket, in any form, keep their order: it numbers the channels."""
        self.assertEqual(forward_query(b"port=80,443", needs_ports=True), b"ports=80&ports=443")
        self.assertEqual(
            forward_query(b"port=9&port=8%2C7&x=1", needs_ports=True), b"ports=9&ports=8&ports=7"
        )

    def test_spdy(self) -> None:
        """SPDY's streams name theirs."""
        self.assertEqual(forward_query(b"", needs_ports=False), b"")
        self.assertEqual(forward_query(b"port=80", needs_ports=False), b"")

    def test_wrong(self) -> None:
        """Requests that a kubelet refuses are refused."""
        for query in (b"", b"port=", b"port=80,", b"port=0", b"port=65536", b"port=x", b"port=-1"):
            with self.assertRaises(BadRequest):
                forward_query(query, needs_ports=True)
        with self.assertRaises(BadRequest):
            forward_query(b"port=80" + b",80" * MAX_PORTS, needs_ports=True)


class RunTests(SynchronousTestCase):
    """Tests for :func:`run_query`."""

    def test_split(self) -> None:
        """A command is split at single spaces and at nothing else, as a kubelet does it."""
        for cmd, expected in (
            (b"cmd=ls", b"command=ls"),
            (b"cmd=ls+-l", b"command=ls&command=-l"),
            (b"cmd=a++b", b"command=a&command=&command=b"),
            (b"cmd=sh%20-c%09x", b"command=sh&command=-c%09x"),
            (b"cmd=one&cmd=two", b"command=one"),
        ):
            self.assertEqual(
                run_query(cmd, "c"), expected + b"&container=c&stdout=true&stderr=true", cmd
            )

    def test_no_command(self) -> None:
        """Nothing would be run."""
        for query in (b"", b"cmd=", b"command=ls"):
            with self.assertRaises(BadRequest):
                run_query(query, "c")


class ParseTests(SynchronousTestCase):
    """Tests for :func:`parse`."""

    @given(st.binary(max_size=200))
    def test_any_bytes(self, raw: bytes) -> None:
        """Whatever comes is read or refused."""
        try:
            pairs = parse(raw)
        except APIError as error:
            self.assertEqual(error.code, 400)
        else:
            self.assertLessEqual(sum(len(name) + len(value) for name, value in pairs), len(raw))


class PathTests(SynchronousTestCase):
    """Tests for :func:`path`."""

    def test_path(self) -> None:
        """Whatever a name holds is one segment."""
        self.assertEqual(path("ns", "p", "exec"), "/api/v1/namespaces/ns/pods/p/exec")
        self.assertEqual(path("n/s", "p ?", "log"), "/api/v1/namespaces/n%2Fs/pods/p%20%3F/log")
