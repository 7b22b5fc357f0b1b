"""
The lines of many machines in one output, each with the name of its machine.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Sequence
from typing import Any

from twisted.internet.defer import (
    Deferred,
    DeferredSemaphore,
    TimeoutError,
    succeed,
)
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import LoopingCall
from twisted.internet.threads import deferToThread

from twisted_exec.cli.console.options import DEFAULT_TAIL
from twisted_exec.cli.console.terminal import TerminalOutput, nonblocking
from twisted_exec.cli.fleet.follower import Follower, Lost, start
from twisted_exec.cli.fleet.output import FairOutput
from twisted_exec.cli.fleet.prefixed_lines import PrefixedLines
from twisted_exec.cli.fleet.progress import FleetProgress
from twisted_exec.cli.fleet.state_file import SavedPosition, StateFile, StateFileError
from twisted_exec.cli.fleet.targets import FleetTarget, SelectionError
from twisted_exec.cli.fleet.task import FAILED, Task, complain
from twisted_exec.kube.downloads import MachineLog
from twisted_exec.kube.machine_requests import TIMEOUT_SECONDS

CONCURRENT_OPENINGS = 16
SAVE_SECONDS = 1.0
_FAREWELL_SECONDS = 1.0
_WIDEST = 40


class Prefixed(Task):
    """
    Prints the lines of all selected machines.

    :cvar output: the descriptor.
    """

    output = 1

    async def work(self) -> int:
        try:
            state = self._load_state()
            with nonblocking(self.output, os.O_WRONLY) as descriptor:
                await _Printing(self, state, descriptor).run()
        except (SelectionError, StateFileError) as problem:
            return complain(str(problem))
        return 0

    def interrupted(self, number: int) -> None:
        if number == signal.SIGINT and os.isatty(0):
            self.inform("")  # the terminal has shown ^C; the shell's prompt follows on its own line
        super().interrupted(number)

    def _load_state(self) -> StateFile | None:
        if self.options.state is None:
            return None
        state = StateFile(self.options.state)
        state.load()
        return state


class _Printing:
    def __init__(self, task: Task, state: StateFile | None, descriptor: int) -> None:
        self._task, self._state = task, state
        self._options, self._reactor = task.options, task.reactor
        self._is_terminal = os.isatty(descriptor)
        self._lost: Deferred[None] = Deferred()
        self._is_lost = False
        self._saved = b""
        self._saving: Deferred[None] = succeed(None)
        self._sink = TerminalOutput(descriptor, self._output_lost, self._reactor)
        self._output = FairOutput(self._sink, self._reactor, is_terminal=self._is_terminal)
        self._progress = FleetProgress(self._reactor, task.say, task.inform)
        self._lines: list[tuple[str, PrefixedLines]] = []
        self._followers: list[Follower] = []
        self._timer: IDelayedCall | None = None

    async def run(self) -> None:
        # Not a PokedLoop: positions that cannot be saved end the command.
        saver = LoopingCall(self._save)
        saver.clock = self._reactor
        if self._state is not None:
            saver.start(SAVE_SECONDS, now=False).addErrback(self._cannot_save)
        try:
            await self._task.follow(self._begin)
            printed: Deferred[None] = Deferred()
            self._output.finish(lambda: printed.callback(None))
            await self._task.unless_stopped(printed)
        finally:
            failed = any(each.is_failed for each in self._followers)
            if self._timer is not None and self._timer.active():
                self._timer.cancel()
            if saver.running:
                saver.stop()
            self._progress.close()
            await self._leave()
            self._task.is_partial |= failed or self._is_lost

    def _begin(self, targets: Sequence[FleetTarget]) -> Iterable[Deferred[None]]:
        if self._timer is None and self._options.timeout:
            self._timer = self._reactor.callLater(self._options.timeout, self._task.stop)
        # Of this cluster: one that is slow does not hold up the others.
        turns = DeferredSemaphore(CONCURRENT_OPENINGS)
        followers = [self._follower(target, turns) for target in targets]
        if self._is_terminal:
            self._align()
        self._followers += followers
        self._progress.add(followers)
        return [start(each) for each in followers]

    def _align(self) -> None:
        widest = max(len(label) for label, _ in self._lines)
        for label, lines in self._lines:
            lines.rename(label.ljust(min(widest, _WIDEST)))

    def _follower(self, target: FleetTarget, turns: DeferredSemaphore) -> Follower:
        printed = self._state.machines.get(target.uid) if self._state is not None else None
        tail = self._options.tail
        lines = PrefixedLines(
            target.label,
            keeps_colours=self._options.colours,
            for_terminal=self._is_terminal,
            inside_line=printed is not None and printed.inside_line,
        )
        self._lines.append((target.label, lines))
        return Follower(
            target,
            self._output.lane(lines),
            self._open_log,
            self._reactor,
            position=printed.position if printed is not None else None,
            tail_lines=DEFAULT_TAIL if tail is None else tail,
            turns=turns,
            changed=self._progress.changed,
            needs_position=self._state is not None,
        )

    def _open_log(self, target: FleetTarget, lost: Lost) -> MachineLog:
        return MachineLog(
            target.cluster.config,
            target.namespace,
            target.name,
            self._reactor,
            timeout_seconds=self._options.request_timeout or TIMEOUT_SECONDS,
            among=(target.dialect,),
            agent=target.cluster.agent,
            lost=lost,
        )

    # The state.

    def _save(self) -> Deferred[None]:
        def written(_: None) -> Deferred[None]:
            content = self._progress_made()
            self._saving = deferToThread(self._write, content)
            return self._saving

        return self._sent().addCallback(written)

    def _sent(self) -> Deferred[None]:
        """Fire when everything is written that was printed so far, before more is printed."""
        sent: Deferred[None] = Deferred()
        self._output.when_sent(lambda: sent.callback(None))
        return sent

    def _progress_made(self) -> bytes:
        assert self._state is not None
        for each in self._followers:
            position = each.lane.settle_position()
            if position is not None:
                self._state.machines[each.target.uid] = SavedPosition(
                    each.target.label, position, each.lane.is_inside_line
                )
        return self._state.encoded()

    def _write(self, content: bytes) -> None:
        assert self._state is not None
        if content != self._saved:
            self._state.write(content)
            self._saved = content

    def _cannot_save(self, failure: Any) -> None:
        failure.trap(StateFileError)
        self._task.say(str(failure.value))
        self._task.stop(FAILED)

    # The end.

    def _output_lost(self, error: OSError | None) -> None:
        self._is_lost = error is not None
        if error is not None:
            self._task.say(f"cannot write output: {error.strerror}")
        self._lost.callback(None)
        self._task.stop()

    async def _leave(self) -> None:
        content = None
        if not self._lost.called:
            content = await _within(
                self._sent().addCallback(lambda _: self._final()), self._reactor
            )
        self._output.close()
        if content is not None:
            try:
                await self._saving
                self._write(content)
            except StateFileError as problem:
                self._task.say(str(problem))
                self._is_lost = True
        if not self._lost.called:
            self._sink.loseConnection()
            await _within(self._lost, self._reactor)

    def _final(self) -> bytes | None:
        return None if self._state is None or self._lost.called else self._progress_made()


def _within(result: Deferred[Any], clock: IReactorTime) -> Deferred[Any]:
    return result.addTimeout(_FAREWELL_SECONDS, clock).addErrback(
        lambda failure: failure.trap(TimeoutError) and None
    )
