"""
Running programs that tests use one after another: most tests take less time than their start and stop.

Each process that runs tests keeps at most one set of programs of each class.  Between tests the programs run,
but the reactor has neither their output nor a connection, because trial wants it empty.  After each test,
the class removes what the test has created.  If anything else differs from the start, or the test has
failed, the programs are stopped, and the next test starts others.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from twisted.internet import reactor
from twisted.internet.task import deferLater
from twisted.python import log
from twisted.trial.unittest import TestCase

from tests import procfs
from tests.flows.programs import Program

ENDS_WITH_PARENT = ("setpriv", "--pdeathsig=KILL") if sys.platform.startswith("linux") else ()
"""Before a command: Linux kills it when the thread that has started it ends, also if that is killed."""
STOP_SECONDS = 10.0


class SharedPrograms(ABC):
    """
    Programs, and their state after the start.

    :ivar programs: by name.
    :ivar pids: of the programs, which are children of this process.
    :ivar in_use: a test has them.
    :ivar differences: why they were stopped after a test; empty while they are kept.
    """

    restore_seconds = 20.0

    def __init__(self) -> None:
        self.programs: dict[str, Program] = {}
        self.pids: dict[str, int] = {}
        self.differences: list[str] = []
        self.in_use = True
        self._printed: dict[str, int] = {}
        self._sockets: dict[str, int] = {}

    @abstractmethod
    async def start(self) -> None:
        """Start the programs; call :meth:`started` when they have settled."""

    @abstractmethod
    async def restore(self) -> list[str]:
        """Remove what the test has created; return all other differences from the start."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop the programs and remove their files, also if :meth:`start` has failed."""

    @abstractmethod
    def remove_files(self) -> None:
        """Remove what remains when this process has ended the programs."""

    def started(self, programs: dict[str, Program]) -> None:
        """Note the state to which :meth:`restore` returns."""
        self.programs = programs
        self.pids = {name: program.pid for name, program in programs.items()}
        self._sockets = {name: procfs.open_sockets(pid) for name, pid in self.pids.items()}
        self._printed = {name: len(program.output) for name, program in programs.items()}

    def printed(self, name: str) -> bytes:
        """Return what a program has printed since the start."""
        return self.programs[name].output[self._printed[name] :]

    def connected(self) -> list[str]:
        """Return the names of programs that have more sockets than after the start."""
        return [
            name
            for name, pid in self.pids.items()
            if procfs.open_sockets(pid) > self._sockets[name]
        ]

    async def until(self, condition: Callable[[], object]) -> bool:
        """Fires with whether the condition holds before :attr:`restore_seconds` have passed."""
        deadline = reactor.seconds() + self.restore_seconds
        while not condition():
            if reactor.seconds() > deadline:
                return False
            await deferLater(reactor, 0.01)
        return True

    def resume(self) -> None:
        """Begin a test's use: show the programs' output as after the start."""
        self.in_use = True
        for name, program in self.programs.items():
            program.resume(self._printed[name])

    async def give_back(self, passed: bool) -> None:
        """End a test's use: keep the programs if they are as after the start, or else stop them."""
        self.in_use = False
        self.differences = await self.restore() if passed else ["the test failed"]
        if self.differences:
            log.msg(f"shared programs are stopped: {'; '.join(self.differences)}")
            await self.stop()
            return
        for program in self.programs.values():
            program.pause()
        _kept.append(self)


_kept: list[SharedPrograms] = []
_Kind = TypeVar("_Kind", bound=SharedPrograms)


async def take(kind: type[_Kind], make: Callable[[], _Kind]) -> _Kind:
    """Return this process's programs of a class, all of them alive."""
    sys.audit("tests.program", kind.__name__)
    for found in [each for each in _kept if isinstance(each, kind)]:
        _kept.remove(found)
        found.resume()
        if all(map(procfs.is_alive, found.pids.values())):
            return found
        found.in_use = False
        await found.stop()
    new = make()
    try:
        await new.start()
    except BaseException:
        await new.stop()
        raise
    new.resume()
    return new


async def use(test: TestCase, kind: type[_Kind], make: Callable[[], _Kind]) -> _Kind:
    """
    Return running programs for a test, which may do with them whatever it likes.

    Call this first in ``setUp``, because cleanups run in reverse order.
    """
    shared = await take(kind, make)

    async def give_back() -> None:
        await shared.give_back(test._passed)

    test.addCleanup(give_back)
    return shared


@atexit.register
def _stop() -> None:
    """Stop the programs at the end of this process, whose reactor does not run any more."""
    for shared in _kept:
        for pid in shared.pids.values():
            _end(pid)
        shared.remove_files()


def _end(pid: int) -> None:
    deadline = time.monotonic() + STOP_SECONDS
    with suppress(ChildProcessError):  # it has ended, and another process may have its id
        if os.waitpid(pid, os.WNOHANG) == (0, 0):
            os.kill(pid, signal.SIGTERM)
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)  # wait: the reactor does not run any more
