"""
``kubectl console`` with many machines: the process, and its task.
"""

from __future__ import annotations

import argparse
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from twisted_exec.cli.console.process import collect_garbage, start_log, the_reactor
from twisted_exec.cli.console.terminal import Signals, Terminal
from twisted_exec.cli.fleet.targets import MOST_SPACES
from twisted_exec.cli.fleet.task import FAILED, Task, complain
from twisted_exec.cli.messages import say
from twisted_exec.cli.options import config_of
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.program.descriptors import raise_descriptor_limit
from twisted_exec.tls.fast.loop import use_monotonic_clock


def run(options: argparse.Namespace) -> int:
    """Run the task that the options select; return the exit code."""
    try:
        config = config_of(options)
    except KubeConfigError as error:
        return complain(str(error))
    start_log()
    reactor = the_reactor()
    use_monotonic_clock(reactor)
    # Threads look names up: one whose DNS is silent must not hold up the others.
    reactor.suggestThreadPoolSize(MOST_SPACES)
    raise_descriptor_limit()
    if config.needs_plugin:
        from twisted_exec.cli.console.credential_plugin import notice_ends

        notice_ends(reactor)
    collect_garbage()
    with Terminal(0) as terminal:
        task = _fleet_task(options, config, reactor, terminal)
        codes: list[int] = []

        def begin() -> None:
            running = Deferred.fromCoroutine(task.run())
            running.addErrback(crashed).addCallback(codes.append)
            running.addBoth(lambda _: reactor.stop())

        def crashed(failure: Failure) -> int:
            error = failure.value
            return complain(f"internal error: {type(error).__name__}: {failure.getErrorMessage()}")

        def deadly(number: int) -> None:
            reactor.callFromThread(task.interrupted, number)

        def resized() -> None:
            reactor.callFromThread(task.resized)

        with Signals(terminal, resized, deadly):
            reactor.callWhenRunning(begin)
            try:
                reactor.run(installSignalHandlers=False)
            finally:
                terminal.restore()
                task.restore()
    return codes[0] if codes else FAILED


def _fleet_task(
    options: argparse.Namespace, config: ClientConfig, reactor: Any, terminal: Terminal
) -> Task:
    if options.tiled:
        from twisted_exec.cli.fleet.tiled import Tiled

        return Tiled(options, config, reactor, terminal)
    if options.script_command is not None:
        from twisted_exec.cli.console.script import NOT_READ
        from twisted_exec.cli.fleet.run import RunTask

        if terminal.has_data and not options.quiet:
            say(NOT_READ)
        return RunTask(options, config, reactor)
    from twisted_exec.cli.fleet.prefixed import Prefixed

    return Prefixed(options, config, reactor)
