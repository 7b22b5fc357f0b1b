"""The work of ``kubectl console`` for many machines."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

from twisted.internet.defer import CancelledError, Deferred, DeferredList, FirstError, gatherResults

from twisted_exec.api.display import listed
from twisted_exec.cli.console.connecting import ProgressLine
from twisted_exec.cli.fleet.targets import FleetTarget, Selection
from twisted_exec.cli.messages import say
from twisted_exec.kube.kubeconfig.client_config import ClientConfig

FAILED = 1
WAITING_SECONDS = 1.0
"""Clusters that have not answered after this time are named."""

T = TypeVar("T")


class Stopped(Exception):
    """The program is to end, after a signal or its time limit."""


class Task:
    """
    The work of one run.

    :ivar stopping: fires with the exit code when the program is to end.
    :ivar is_partial: some machines or clusters failed.
    """

    is_partial = False
    _waiting_line: ProgressLine | None = None

    def __init__(self, options: argparse.Namespace, config: ClientConfig, reactor: Any) -> None:
        self.options, self.config, self.reactor = options, config, reactor
        self.stopping: Deferred[int] = Deferred()

    async def work(self) -> int:
        """Do the work; return the exit code."""
        raise NotImplementedError

    async def run(self) -> int:
        """Do the work until its end or a signal."""
        try:
            code = await self.work()
        except Stopped:
            code = await self.stopping
        return code or (FAILED if self.is_partial else 0)

    async def selected(self, found: Callable[[Sequence[FleetTarget]], None]) -> None:
        """
        Select the machines, and name the clusters that fail.

        :param found: called with the machines of a cluster when that has answered.
        :raises SelectionError: there are none.
        :raises Stopped: the program is to end.
        """

        def answered(targets: Sequence[FleetTarget]) -> None:
            self._end_waiting_line()
            found(targets)

        def failed(name: str, why: str) -> None:
            self.is_partial = True
            self.say(f"space {name}: {why}")

        def remind() -> None:
            if selection.waiting:
                self.inform(f"waiting for {listed(selection.waiting, 3)}")

        def waiting(seconds: int) -> str:
            return f"asking {self.config.server} for the machines, {seconds} s"

        selection = Selection(self.options, self.config, self.reactor, answered, failed)
        if not self.options.quiet:
            self._waiting_line = ProgressLine.on_stderr(self.reactor, waiting)
        timer = self.reactor.callLater(WAITING_SECONDS, remind)
        try:
            await self.unless_stopped(Deferred.fromCoroutine(selection.run()))
        finally:
            if timer.active():
                timer.cancel()
            self._end_waiting_line()

    def _end_waiting_line(self) -> None:
        line, self._waiting_line = self._waiting_line, None
        if line is not None:
            line.stop()

    async def follow(
        self, begin: Callable[[Sequence[FleetTarget]], Iterable[Deferred[None]]]
    ) -> None:
        """
        Work on all machines that are selected.

        :param begin: starts the work on the machines of a cluster; what it returns is cancelled at the end.
        :raises SelectionError: there are none.
        :raises Stopped: the program is to end.
        """
        running: list[Deferred[None]] = []
        try:
            await self.selected(lambda targets: running.extend(begin(targets)))
            await self.unless_stopped(gatherResults(running, consumeErrors=True))
        finally:
            leaving = gatherResults(running, consumeErrors=True)
            leaving.addErrback(lambda _: None)
            leaving.cancel()

    async def unless_stopped(self, result: Deferred[T]) -> T:
        """
        Wait for a result.

        :raises Stopped: the program is to end; the result is cancelled.
        """
        racers: list[Deferred[Any]] = [result, self.stopping]
        either = DeferredList(
            racers,
            fireOnOneCallback=True,
            fireOnOneErrback=True,
            consumeErrors=True,
        )
        try:
            value, index = await either
        except FirstError as error:
            error.subFailure.raiseException()
        if index:
            result.addErrback(lambda failure: failure.trap(CancelledError) and None)
            result.cancel()
            raise Stopped
        return cast("T", value)

    def interrupted(self, number: int) -> None:
        """A signal asks the program to end."""
        self.stop(0 if number == signal.SIGINT else 128 + number)

    def stop(self, code: int = 0) -> None:
        """End the program."""
        if not self.stopping.called:
            self.stopping.callback(code)

    def resized(self) -> None:
        """The terminal may have another size."""

    def restore(self) -> None:
        """Undo changes of the terminal."""

    def inform(self, line: str) -> None:
        """Print a message about the progress, unless ``--quiet`` forbids it."""
        if not self.options.quiet:
            self.say(line)

    def say(self, line: str) -> None:
        """Print a message that the user needs."""
        self._end_waiting_line()
        say(line)


def complain(line: str) -> int:
    """Print an error; return the exit code."""
    say(line)
    return FAILED
