"""``--run`` for many machines: one command in the shell of each."""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from twisted.internet.defer import (
    CancelledError,
    Deferred,
    DeferredList,
    DeferredSemaphore,
)

from twisted_exec.api.display import listed
from twisted_exec.cli.console.patience import patiently
from twisted_exec.cli.console.script import ScriptSink, scripted_outcome
from twisted_exec.cli.console.session import ConsoleSession, Outcome
from twisted_exec.cli.console.shell_run import Remedies, ShellRun
from twisted_exec.cli.explanations import explain
from twisted_exec.cli.fleet.results import Result, report
from twisted_exec.cli.fleet.targets import FleetTarget, SelectionError, open_target
from twisted_exec.cli.fleet.task import Task, complain

CONCURRENT_RUNS = 50
SECONDS = 60.0
"""Time limit of each machine without ``--timeout``."""
OUTPUT_BYTES = 256 << 10
"""Most output of one machine that is kept."""
_PROGRESS_SECONDS = 1.0
_INTERRUPTED_CODE = 130
_INTERRUPTED = "interrupted"
_REMEDIES = Remedies(stop="--tiled sends Ctrl-C to many machines")


class RunTask(Task):
    """
    Runs the command on all selected machines, and prints the results.

    :cvar output: the descriptor of the results.
    """

    output = 1

    async def work(self) -> int:
        targets: list[FleetTarget] = []
        self._results: dict[FleetTarget, Result] = {}
        self._active: set[MachineRun] = set()
        self._recorded: dict[str, str] = {}  # messages that are not printed yet, by machine

        def begin(those: Sequence[FleetTarget]) -> Iterable[Deferred[None]]:
            # Of this cluster: one that is slow does not hold up the others.
            turns = DeferredSemaphore(CONCURRENT_RUNS)
            targets.extend(those)
            return [turns.run(self._run_on, target) for target in those]

        self._informed = (0, 0)
        is_complete = False
        self._inform_later(targets)
        try:
            await self.follow(begin)
            is_complete = True
        except SelectionError as problem:
            return complain(str(problem))
        finally:
            self._timer.cancel()
            self._inform_recorded()
            if is_complete and self._informed != (0, 0):  # a quick run needs no progress
                self._inform_done(targets)
            # The servers would keep the sessions of a program that is gone for a while.
            await DeferredList([run.left() for run in self._active])
            results = [
                self._results.get(target)
                or Result(target.label, _INTERRUPTED_CODE, b"", problem=_INTERRUPTED)
                for target in sorted(targets, key=lambda target: target.label)
            ]
            self.is_partial |= not is_complete or any(result.code for result in results)
            if results:
                self._print(report(results, for_terminal=os.isatty(self.output)))
        return 0

    def _print(self, text: bytes) -> None:
        try:
            while text:  # the program has nothing else to do any more
                text = text[os.write(self.output, text) :]
        except BrokenPipeError:
            pass
        except OSError as error:
            complain(f"cannot write output: {error.strerror}")
            self.is_partial = True

    def _inform_later(self, targets: Sequence[FleetTarget]) -> None:
        def inform() -> None:
            self._inform_recorded()
            if os.isatty(2):
                self._inform_done(targets)
            self._timer = self.reactor.callLater(_PROGRESS_SECONDS, inform)

        self._timer = self.reactor.callLater(_PROGRESS_SECONDS, inform)

    def _inform_done(self, targets: Sequence[FleetTarget]) -> None:
        if self._informed != (now := (len(self._results), len(targets))):
            self._informed = now
            self.inform(f"{now[0]} of {now[1]} machines are done")

    def _inform_recorded(self) -> None:
        recorded, self._recorded = self._recorded, {}
        for news in dict.fromkeys(recorded.values()):
            names = listed((label for label, each in recorded.items() if each == news), 3)
            self.inform(f"{names}: {news}")

    def _run_on(self, target: FleetTarget) -> Deferred[None]:
        def recorded(news: str) -> None:
            self._recorded[target.label] = news

        run = MachineRun(self.options, target, self.reactor, recorded)
        self._active.add(run)

        def left(outcome: Outcome) -> Outcome:
            self._active.remove(run)
            return outcome

        def done(result: Result) -> None:
            self._results[target] = result

        run.left().addCallback(left)
        return run.start().addCallback(done)


class MachineRun:
    """
    The command on one machine.

    :param recorded: gets messages about recordings of the console.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        target: FleetTarget,
        reactor: Any,
        recorded: Callable[[str], None],
    ) -> None:
        self._options, self._target, self._reactor = options, target, reactor
        self._script = script = ShellRun(
            reactor, options.script_command, force=options.force, remedies=_REMEDIES
        )
        self._session = session = ConsoleSession(
            reactor,
            interactive=False,
            script=script,
            limited=False,
            quiet=True,
            tell_recorded=recorded,
        )
        self._output = _Collected(lambda: reactor.callLater(0, session.output_lost, None))

    def start(self) -> Deferred[Result]:
        """Run the command; cancelling ends the session, and not the command: the result so far."""
        options, session, script = self._options, self._session, self._script
        script.drive(session)
        limit = SECONDS if options.timeout is None else options.timeout
        session.start(script, ScriptSink(script, self._output), timeout_seconds=limit or None)
        attempt = patiently(lambda: self._open(session), self._reactor, lambda line: None)
        session.connecting(attempt)
        attempt.addErrback(self._refused)

        def end(code: int, problem: str) -> None:
            result.callback(self._output.result(self._target.label, code, problem))

        def leave(_: Deferred[Result]) -> None:
            if (outcome := script.outcome) is not None:  # only the session has not ended yet
                end(outcome.exit_code, scripted_outcome(script, outcome).line)
            else:
                problem = scripted_outcome(script, Outcome(signal=signal.SIGINT)).line
                end(_INTERRUPTED_CODE, problem or _INTERRUPTED)
            session.conclude(Outcome(_INTERRUPTED_CODE))

        result: Deferred[Result] = Deferred(leave)

        def finished(outcome: Outcome) -> Outcome:
            if not result.called:
                final = scripted_outcome(script, outcome)
                end(final.exit_code, final.line)
            return outcome

        session.finished.addCallback(finished)
        return result

    def left(self) -> Deferred[Any]:
        """Fire when the session is over; a cancelled one takes some seconds at most."""
        return self._session.finished

    def _open(self, session: ConsoleSession) -> Any:
        return open_target(self._target, session, self._reactor, self._options)

    def _refused(self, failure: Any) -> None:
        if not failure.check(CancelledError):
            self._session.failed(explain(failure.value, self._target.namespace))


class _Collected:
    """Keeps the first part of an output, and its digest."""

    def __init__(self, closed: Callable[[], object]) -> None:
        self._closed = closed
        self._kept, self._size = bytearray(), 0
        self._digest = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self._size += len(data)
        self._digest.update(data)
        self._kept += data[: OUTPUT_BYTES - len(self._kept)]

    def registerProducer(self, producer: object, streaming: bool) -> None:
        """Nothing here is slow."""

    def unregisterProducer(self) -> None:
        """See :meth:`registerProducer`."""

    def loseConnection(self) -> None:
        self._closed()

    def result(self, label: str, code: int, problem: str) -> Result:
        rest = self._size - len(self._kept)
        return Result(label, code, bytes(self._kept), rest, self._digest.digest(), problem)
