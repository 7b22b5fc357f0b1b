"""
Tests for :mod:`twisted_exec.cli.runner`, in processes of their own: each has one reactor.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
from contextlib import redirect_stderr
from textwrap import dedent
from typing import Any

from twisted.internet import reactor
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.heard import hear_signals
from tests.tiers import PROGRAMS
from twisted_exec.api.status import APIError, Forbidden, Unauthorized
from twisted_exec.cli.options import add_cluster_options
from twisted_exec.cli.runner import ask_server


class AskOnceTests(SynchronousTestCase):
    """Tests for :func:`run_in_reactor`."""

    starts = PROGRAMS

    def setUp(self) -> None:
        hear_signals(self)

    def ends(self, asking: str, code: int, told: str, more: str = "") -> None:
        """Run a program that prints nothing; check its exit code and its standard error."""
        program = f"import os, signal\nfrom twisted_exec.cli.runner import run_in_reactor\n{dedent(asking)}"
        program += f"raise SystemExit(run_in_reactor('x', ask{more}))\n"
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        self.assertEqual((done.returncode, done.stdout, done.stderr), (code, "", told))

    def test_answer(self) -> None:
        """The exit code is the return value of the coroutine."""
        self.ends("async def ask(reactor):\n    return 7\n", 7, "")

    def test_crash(self) -> None:
        """An unexpected exception is printed as one line."""
        asking = "async def ask(reactor):\n    raise KeyError('a\\nb')\n"
        self.ends(asking, 1, "twisted-exec x: internal error: KeyError: 'a\\nb'\n")

    def test_closed_output(self) -> None:
        """A command whose output nobody reads any more ends without a word, as in ``... | head``."""
        asking = """
        async def ask(reactor):
            reader, writer = os.pipe()
            os.close(reader)
            os.write(writer, b"x")
        """
        self.ends(asking, 1, "")

    def test_interrupted(self) -> None:
        """An interrupted command exits with code 130 and prints nothing."""
        asking = """
        async def ask(reactor):
            from twisted.internet.defer import Deferred
            reactor.callLater(0, os.kill, os.getpid(), signal.SIGINT)
            await Deferred()
        """
        self.ends(asking, 130, "")

    def test_interrupted_request(self) -> None:
        """The connections that an interrupt closes are no error of the command."""
        asking = """
        async def ask(reactor):
            from twisted.internet.endpoints import TCP4ClientEndpoint, TCP4ServerEndpoint
            from twisted.internet.protocol import Factory, Protocol
            from twisted.internet.defer import Deferred
            from twisted_exec.cli.failures import failed

            class Request(Protocol):
                def connectionLost(self, reason):
                    lost.callback(None)

            lost = Deferred()
            silent = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(
                Factory.forProtocol(Protocol)
            )
            server = TCP4ClientEndpoint(reactor, "127.0.0.1", silent.getHost().port)
            await server.connect(Factory.forProtocol(Request))
            os.kill(os.getpid(), signal.SIGINT)
            await lost
            print("not healthy")
            return failed("x", "the server closed the connection")
        """
        self.ends(asking, 130, "")

    def test_interrupted_change(self) -> None:
        """A command that is not quiet ends its work when it is interrupted, and says what is undone."""
        asking = """
        async def ask(reactor):
            from twisted.internet.defer import CancelledError, Deferred
            from twisted.internet.task import deferLater
            from twisted_exec.cli.failures import failed

            reactor.callLater(0, os.kill, os.getpid(), signal.SIGINT)
            try:
                await Deferred()
            except CancelledError:
                await deferLater(reactor, 0.01)
                return failed("x", "not complete")
        """
        self.ends(asking, 130, "twisted-exec x: not complete\n", ", quiet=False")


class AskServerTests(TestCase):
    """Tests for :func:`ask_server`."""

    async def test_refusals(self) -> None:
        """A refusal is explained as by ``kubectl console``: the bare word of the server says little."""
        parser = argparse.ArgumentParser()
        add_cluster_options(parser)
        options = parser.parse_args(["--kubeconfig=/dev/null", "--server=http://127.0.0.1:1"])
        options.namespace = None
        for refusal, message in (
            (
                Unauthorized(),
                "http://127.0.0.1:1 needs credentials, and /dev/null has none: Unauthorized; get new "
                "credentials, or check --context and --user",
            ),
            (Forbidden("ann may not"), "forbidden: ann may not"),
        ):

            async def ask(client: Any, options: Any, refusal: APIError = refusal) -> str:
                raise refusal

            output = io.StringIO()
            with redirect_stderr(output):
                self.assertEqual(await ask_server("x", ask, options, reactor), 1)
            self.assertEqual(output.getvalue(), f"twisted-exec x: {message}\n")
