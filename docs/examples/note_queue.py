"""
A complete controller: the condition MachineFound of each MachineNote, and an Event when it is False.

This part does not know where it runs: ``note_controller.py`` puts it into the API server, and
``note_program.py`` into a program of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.conditions import with_conditions
from twisted_exec.api.kinds import Object
from twisted_exec.api.status import Conflict, NotFound
from twisted_exec.api.times import timestamp
from twisted_exec.control.queue import WorkQueue
from twisted_exec.control.runs import readable
from twisted_exec.kube.informers import Key, key_of

COMPONENT = "note-controller"
FOUND, NOT_FOUND, FAILED = "MachineFound", "MachineNotFound", "NotUpdated"


def plan(note: Object, found: bool, now: str) -> Object | None:
    """Return the note with its new status; ``None`` if nothing changes."""
    status, machine = note.get("status", {}), note["spec"]["machine"]
    value = ("True", "Found", "the machine exists")
    if not found:
        value = ("False", NOT_FOUND, f'there is no machine "{machine}"')
    conditions = with_conditions(status.get("conditions", []), {FOUND: value}, now)
    if conditions == status.get("conditions"):
        return None
    return {**note, "status": {**status, "conditions": conditions}}


def machine_of(note: Object) -> Key:
    """Return the key of the machine that a note is about."""
    return note["metadata"]["namespace"], note["spec"]["machine"]


class NoteQueue:
    """The work on notes, wherever it runs: each note is a key of a queue."""

    _log = Logger()

    def __init__(self, clock: IReactorTime, now: Callable[[], float]) -> None:
        self._now = now
        self._notes: dict[Key, Object] = {}
        self._by_machine: dict[Key, set[Key]] = {}
        self._problems: dict[Key, str] = {}
        """The failures that are reported already."""
        self.queue: WorkQueue[Key] = WorkQueue(self._look, clock)

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
        notes = self._by_machine.get(machine, set())
        notes.discard(key)
        if not notes:
            self._by_machine.pop(machine, None)

    def machine_changed(self, machine: Key) -> None:
        for key in self._by_machine.get(machine, ()):
            self.queue.hurry(key)

    async def _look(self, key: Key) -> None:
        note = self._notes.get(key)
        if note is None:
            return
        try:
            await self._reconcile(note)
            self._problems.pop(key, None)
        except (Conflict, NotFound):
            pass  # it has changed meanwhile, and that change queues it again
        except CancelledError:
            raise
        except Exception as error:
            message = readable(error).message
            if self._problems.get(key) != message:
                self._problems[key] = message
                self._log.warn("note {name} waits: {why}", name="/".join(key), why=message)
                await self.tell(note, FAILED, message)
            raise  # the queue tries again, with back-off

    async def _reconcile(self, note: Object) -> None:
        found = await self.exists(machine_of(note))
        changed = plan(note, found, timestamp(self._now()))
        if changed is not None:
            await self.write(changed)
            if not found:
                await self.tell(note, NOT_FOUND, f'there is no machine "{note["spec"]["machine"]}"')
