"""Commands that send requests in a reactor of their own."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.logger import globalLogBeginner
from twisted.python.failure import Failure

from twisted_exec.api.status import APIError
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.explanations import explain
from twisted_exec.cli.failures import InputError, crashed, failed
from twisted_exec.cli.machine_options import possible_dialects
from twisted_exec.cli.messages import say
from twisted_exec.cli.options import add_cluster_options, config_of
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.program.maker import stop_on_interrupt
from twisted_exec.tls.errors import TLSConfigError

_INTERRUPTED = 130

Ask = Callable[[CommandClient, argparse.Namespace], Awaitable[str]]
"""Asks an API server as the options say, and returns what to print."""

Asking = Callable[[Any], Coroutine[Any, Any, int]]
"""Runs a command with a reactor; returns the exit code."""


def server_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    command: str,
    name: str,
    description: str,
    ask: Ask,
) -> argparse.ArgumentParser:
    """Add a command that uses an API server."""
    whole = f"{command} {name}"

    def run(options: argparse.Namespace) -> int:
        return run_in_reactor(whole, lambda reactor: ask_server(whole, ask, options, reactor))

    parser = commands.add_parser(
        name, help=description, description=f"{description[0].upper()}{description[1:]}."
    )
    parser.set_defaults(run=run, namespace=None)
    add_cluster_options(parser)
    return parser


async def ask_server(command: str, ask: Ask, options: argparse.Namespace, reactor: Any) -> int:
    """
    Run a command with a client, print its answer or one message, and return the exit code.

    :param options: those of :func:`~twisted_exec.cli.options.add_cluster_options`; the command also
        finds the reactor in them.
    """
    options.reactor = reactor
    try:
        client = CommandClient(
            config_of(options),
            reactor,
            timeout_seconds=options.request_timeout or 30.0,
            agent="twisted-exec",
        )
    except KubeConfigError as problem:
        return failed(command, str(problem))
    try:
        sys.stdout.write(await ask(client, options))
    except (InputError, KubeConfigError, TLSConfigError) as problem:
        return failed(command, str(problem))
    except APIError as refusal:
        return failed(command, explain(refusal, config=client.config))
    finally:
        await client.close()
    return 0


def nothing_found(what: str, namespace: str = "", hint: str = "") -> str:
    """
    Say on standard error, as kubectl does, that a list is empty; return no output.

    :param hint: why, if that is known.
    """
    line = f"No {what} found in {namespace} namespace." if namespace else f"No {what} found"
    say(f"{line} {hint}".rstrip())
    return ""


def run_in_reactor(command: str, asking: Asking, error_code: int = 1, *, quiet: bool = True) -> int:
    """
    Run a reactor until the command has finished.

    :param quiet: an interrupted command prints nothing more; else it is cancelled, and says what is undone.
    :return: the exit code: that of ``asking``, ``error_code``, or 130 after SIGINT.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing to clean up during the imports
    from twisted.internet import reactor

    globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)
    codes: list[int] = []
    begun: list[Deferred[Any]] = []

    def report(failure: Failure) -> int:
        assert failure.value is not None
        if failure.check(BrokenPipeError):  # twisted-exec ... | head
            return error_code
        return crashed(command, failure.value, error_code)

    def begin() -> None:
        answering: Deferred[Any] = Deferred.fromCoroutine(asking(reactor)).addErrback(report)
        begun.append(answering)
        answering.addCallback(codes.append)
        answering.addBoth(lambda _: reactor.stop())

    with ExitStack() as silence:

        def stopping() -> Deferred[Any] | None:
            if codes:
                return None
            codes.append(_INTERRUPTED)
            if quiet:
                # The stop closes connections, which the command would report as an error.
                nowhere = silence.enter_context(open(os.devnull, "w", encoding="utf-8"))
                silence.enter_context(redirect_stdout(nowhere))
                silence.enter_context(redirect_stderr(nowhere))
                return None
            for answering in begun:
                answering.cancel()
            return gatherResults(begun, consumeErrors=True)  # connections stay until then

        reactor.addSystemEventTrigger("before", "shutdown", stopping)
        reactor.callWhenRunning(begin)
        stop_on_interrupt(reactor)
        reactor.run()
    return codes[0]


def run_with_machine(
    name: str,
    options: argparse.Namespace,
    main: Callable[[argparse.Namespace, Any], Coroutine[Any, Any, int]],
    error_code: int = 1,
) -> int:
    """
    Run a command with :func:`.add_machine_options` in a reactor; return the exit code.

    :param main: gets the options, with ``among`` (the possible dialects), and the reactor.
    """
    try:
        options.among = possible_dialects(options)
    except ValueError as problem:
        return failed(name, str(problem), error_code)
    return run_in_reactor(name, lambda reactor: main(options, reactor), error_code)
