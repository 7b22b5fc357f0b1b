"""
Tests for :mod:`twisted_exec.cli.console.program`: the command line and the words.

Whole sessions are in ``test_console_process``.
"""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.dialects import DIALECTS
from twisted_exec.api.status import (
    BadGateway,
    Forbidden,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from twisted_exec.cli.console.program import explain, one_line, parse_options, patiently
from twisted_exec.kube.kubeconfig.loader import KubeConfigError


class ParseOptionsTests(SynchronousTestCase):
    """Tests for :func:`parse_options`."""

    def test_defaults(self) -> None:
        """The name alone is enough; all options have defaults."""
        options = parse_options(["vm"])
        self.assertEqual(options.name, "vm")
        self.assertEqual(str(options.escape), "Ctrl-] leaves, ~? helps")
        for unset in (options.namespace, options.kubeconfig, options.context):
            self.assertIsNone(unset)
        self.assertIsNone(options.linger)
        self.assertIsNone(options.timeout)

    def test_kind(self) -> None:
        """A name may have the form of ``kubectl get -o name``; any other path is refused."""
        for text in ("machine/vm", "machines/vm", "machine.compute.ironcore.dev/vm"):
            self.assertEqual(parse_options([text]).name, "vm")
        self.assertEqual(parse_options(["machine"]).name, "machine")
        self.assertEqual(parse_options(["instances/vm"]).name, "vm")
        for text in ("pod/vm", "machine/", "machine/a/b", "machine/..", "/vm"):
            stderr = io.StringIO()
            with redirect_stderr(stderr), self.assertRaises(SystemExit):
                parse_options([text])
            self.assertIn("is no name", stderr.getvalue())

    def test_among(self) -> None:
        """The kind narrows the possible dialects, and ``--dialect`` selects one."""
        for arguments, names in (
            (["vm"], [each.name for each in DIALECTS]),
            (["machine/vm"], ["ironcore", "onmetal", "spheric-machines"]),
            (["machines.compute.api.onmetal.de/vm"], ["onmetal"]),
            (["machines.v1alpha1.core.spheric.cloud/vm"], ["spheric-machines"]),
            (["instance/vm"], ["spheric"]),
            (["vm", "--dialect", "onmetal"], ["onmetal"]),
            (["machine/vm", "--dialect=spheric-machines"], ["spheric-machines"]),
        ):
            among = parse_options(arguments).among
            self.assertEqual([each.name for each in among], names, arguments)
        stderr = io.StringIO()
        with redirect_stderr(stderr), self.assertRaises(SystemExit) as caught:
            parse_options(["instance/vm", "--dialect=ironcore"])
        self.assertEqual(caught.exception.code, 1)
        self.assertIn("dialect ironcore has no instance", stderr.getvalue())

    def test_all(self) -> None:
        """Options may come before and after the name."""
        options = parse_options(
            [
                "-n",
                "space",
                "--kubeconfig",
                "f",
                "vm",
                "--context",
                "c",
                "--escape",
                "none",
                "--linger",
                "2",
                "--timeout",
                "0.5",
            ]
        )
        self.assertEqual((options.name, options.namespace), ("vm", "space"))
        self.assertEqual((options.kubeconfig, options.context), ("f", "c"))
        self.assertIsNone(options.escape)
        self.assertEqual((options.linger, options.timeout), (2, 0.5))

    def test_times(self) -> None:
        """Times are written as for kubectl, or as seconds; a time limit of 0 is none."""
        for text, seconds in (("5s", 5), ("1m30s", 90), ("0.5", 0.5), ("500ms", 0.5), ("0", 0)):
            options = parse_options(["vm", "--linger", text, "--timeout", text])
            self.assertEqual((options.linger, options.timeout), (seconds, seconds), text)

    def test_mistakes(self) -> None:
        """A mistake on the command line is one line that names it, and exit code 1."""
        for arguments, word in (
            ([], "NAME"),
            (["vm", "--linger", "soon"], "'soon' is no duration such as 30, 5s or 1m30s"),
            (["vm", "--linger", "-1"], "'-1'"),
            (["vm", "--timeout", "inf"], "'inf'"),
            (["vm", "--timeout", "nan"], "'nan'"),
            (["vm", "--escape", "x"], "'x'"),
            (["vm", "--name-space", "x"], "--name-space"),
            (["vm", "other"], "other"),
        ):
            stderr = io.StringIO()
            with redirect_stderr(stderr), self.assertRaises(SystemExit) as caught:
                parse_options(arguments)
            self.assertEqual(caught.exception.code, 1)
            self.assertEqual(len(stderr.getvalue().splitlines()), 1)
            self.assertIn(word, stderr.getvalue())

    def test_reason(self) -> None:
        """A reason has no control characters, and a request needs the cluster's own kubeconfig."""
        self.assertEqual(parse_options(["vm", "--reason", " OPS-1 "]).reason, "OPS-1")
        for words in (["--reason", "a\x1b[2J"], ["--request", "--space", "s"]):
            with self.assertRaises(SystemExit):
                parse_options(["vm", *words])

    def test_help(self) -> None:
        """Help goes to standard output and is a success."""
        stdout = io.StringIO()
        with redirect_stdout(stdout), self.assertRaises(SystemExit) as caught:
            parse_options(["--help"])
        self.assertEqual(caught.exception.code, 0)
        self.assertIn("kubectl console [-h]", stdout.getvalue())


class ExplainTests(SynchronousTestCase):
    """Tests for :func:`explain`."""

    def test_refusals(self) -> None:
        """Errors of an API server are explained in the user's terms."""
        self.assertEqual(explain(NotFound("machines", "vm")), 'machine "vm" not found')
        for plural, group in (
            ("machines", "compute.ironcore.dev"),
            ("instances", "core.spheric.cloud"),
        ):
            self.assertEqual(
                explain(NotFound(plural, "vm", group), "lab"),
                f'{plural[:-1]} "vm" not found in namespace "lab"',
            )
        pool = NotFound("machinepools", "p", "compute.ironcore.dev")
        self.assertEqual(explain(pool, "lab"), 'machinepool "p" not found')
        lost = NotFound("pools", "p", "x.y", 'pools.x.y "p" not found: machine vm was in it')
        self.assertEqual(explain(lost), 'pool "p" not found: machine vm was in it')
        self.assertEqual(explain(Forbidden("user ann may not")), "forbidden: user ann may not")
        self.assertEqual(
            explain(Unauthorized()), "the server does not accept these credentials: Unauthorized"
        )
        self.assertEqual(
            explain(TooManyRequests("runtime full", 3)), "runtime full; try again in 3 s"
        )
        self.assertEqual(explain(BadGateway("poollet down")), "poollet down")

    def test_others(self) -> None:
        """A kubeconfig error is shown as it is; an unexpected exception is an internal error."""
        self.assertEqual(explain(KubeConfigError("f: not YAML")), "f: not YAML")
        self.assertEqual(explain(ValueError("x")), "internal error: ValueError: x")


class OneLineTests(SynchronousTestCase):
    """Tests for :func:`one_line`."""

    def test_safe_for_a_terminal(self) -> None:
        """A server cannot move the cursor or add lines."""
        self.assertEqual(one_line("größe\r\n\x1b[2J ok\x07"), "größe ?[2J ok?")


class PatienceTests(SynchronousTestCase):
    """Tests for :func:`patiently`."""

    def setUp(self) -> None:
        self.clock, self.answers, self.said = Clock(), [], []
        self.asked = 0

    answers: list[Any]
    said: list[str]

    def ask(self) -> Deferred[Any]:
        self.asked += 1
        answer = self.answers.pop(0)
        return fail(answer) if isinstance(answer, Exception) else succeed(answer)

    def opening(self, *answers: Any) -> Deferred[Any]:
        self.answers = list(answers)
        return patiently(self.ask, self.clock, self.said.append)

    def test_comes_again(self) -> None:
        """
        A refusal is retried after the delay that the server gives, and the user gets a message.
        """
        opening = self.opening(
            TooManyRequests("full", 3), ServiceUnavailable("starting", retry_after_seconds=1), "ok"
        )
        self.clock.advance(2.9)
        self.assertEqual((self.asked, self.said), (1, ["full; trying again in 3 s"]))
        self.clock.advance(1.1)
        self.assertEqual(self.asked, 2)
        self.clock.advance(2)
        self.assertEqual(self.successResultOf(opening), "ok")
        self.assertEqual(self.said[1:], ["starting; trying again in 1 s"])

    def test_not_for_ever(self) -> None:
        """
        After a minute of retries the last refusal is returned; a longer Retry-After fails at once.
        """
        opening = self.opening(*[TooManyRequests("full", 10)] * 9)
        self.clock.pump([1.0] * 70)
        self.failureResultOf(opening, TooManyRequests)
        self.assertIn(self.asked, (6, 7))
        opening = self.opening(TooManyRequests("full", 3600))
        self.failureResultOf(opening, TooManyRequests)

    def test_other_refusals(self) -> None:
        """Refusals that a retry would not help fail at once."""
        for refusal in (NotFound("machines", "vm"), TooManyRequests("full"), BadGateway("no")):
            refusal.retry_after_seconds = None if refusal.code == 429 else 1
            self.failureResultOf(self.opening(refusal), type(refusal))
        self.assertEqual((self.said, self.clock.getDelayedCalls()), ([], []))

    def test_cancelled(self) -> None:
        """Cancelling ends the wait."""
        opening = self.opening(TooManyRequests("full", 3), "ok")
        opening.cancel()
        self.failureResultOf(opening, CancelledError)
        self.assertEqual(self.clock.getDelayedCalls(), [])
