"""
The work of the controller of MachineNotes: it writes what ``note_plan.py`` decides, and Events.

This part does not know where it runs: ``note_controller.py`` puts it into the API server, and
``note_program.py`` into a program of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from note_plan import NOT_FOUND, due_at, machine_of, plan
from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.kinds import Object
from twisted_exec.api.status import Conflict, GatewayTimeout, NotFound
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.control.queue import Again, WorkQueue
from twisted_exec.control.runs import readable
from twisted_exec.kube.informers import Key, key_of

COMPONENT = "note-controller"
FAILED = "NotUpdated"
LONGEST_SECONDS = 60.0
"""For one note, more than a client allows for a request, whose error says more."""
RECHECK_SECONDS = 300.0
"""The longest pause until a dueTime is compared again: the wall clock may be set meanwhile."""


class NoteQueue:
    """The work on notes, wherever it runs: each note is a key of a queue."""

    _log = Logger()

    def __init__(
        self, clock: IReactorTime, now: Callable[[], float], metrics: WorkQueueMetrics = UNREAD
    ) -> None:
        self._clock, self._now = clock, now
        self._notes: dict[Key, Object] = {}
        self._by_machine: dict[Key, set[Key]] = {}
        self._problems: dict[Key, str] = {}
        """The failures that are reported already."""
        self.queue: WorkQueue[Key] = WorkQueue(self._look, clock, metrics=metrics.of("notes"))

    async def exists(self, machine: Key) -> bool:
        raise NotImplementedError

    async def write(self, note: Object) -> None:
        raise NotImplementedError

    async def tell(self, note: Object, reason: str, message: str) -> None:
        raise NotImplementedError

    def note_changed(self, note: Object) -> None:
        key = key_of(note)
        self._notes[key] = note
        self._by_machine.setdefault(machine_of(note), set()).add(key)
        self.queue.add(key)

    def note_gone(self, note: Object) -> None:
        key, machine = key_of(note), machine_of(note)
        self._notes.pop(key, None)
        self._problems.pop(key, None)
        self.queue.forget(key)
        notes = self._by_machine.get(machine, set())
        notes.discard(key)
        if not notes:
            self._by_machine.pop(machine, None)

    def machine_changed(self, machine: Key) -> None:
        for key in list(self._by_machine.get(machine, ())):  # the worker may begin at once
            self.queue.hurry(key)

    async def _look(self, key: Key) -> float | None:
        note = self._notes.get(key)
        if note is None:
            return None
        now = self._now()  # once: a dueTime between two readings would be missed
        try:
            await self._in_time(note, now)
            self._problems.pop(key, None)
        except (Conflict, NotFound):
            pass  # it has changed meanwhile, and that change queues it again
        except (Again, CancelledError):
            raise
        except Exception as error:
            message = readable(error).message
            if self._problems.get(key) != message:
                self._problems[key] = message
                self._log.warn("note {name} waits: {why}", name="/".join(key), why=message)
                await self.tell(note, FAILED, message)
            raise  # the queue tries again, with back-off
        # If the note changes meanwhile, the queue does not wait for the end of this pause.
        due = due_at(note)
        return None if due is None or due <= now else min(due - now, RECHECK_SECONDS)

    async def _in_time(self, note: Object, now: float) -> None:
        # A worker that waits for ever would hold one of the queue's places, and nobody would know.
        work = Deferred.fromCoroutine(self._reconcile(note, now))
        try:
            await work.addTimeout(LONGEST_SECONDS, self._clock)
        except TimeoutError:
            raise GatewayTimeout(f"no answer in {LONGEST_SECONDS:.0f} s") from None

    async def _reconcile(self, note: Object, now: float) -> None:
        found = await self.exists(machine_of(note))
        changed = plan(note, found, now)
        if changed is not None:
            await self.write(changed)
            if not found:
                await self.tell(note, NOT_FOUND, f'there is no machine "{note["spec"]["machine"]}"')
