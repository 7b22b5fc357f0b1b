"""
A deletion: a MachineNote goes when its machine is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from note_plan import machine_of

from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import Conflict, NotFound
from twisted_exec.apiserver.serving.query import MANAGER, WriteOptions
from twisted_exec.apiserver.serving.target import RequestTarget
from twisted_exec.apiserver.serving.verbs import OURSELVES, Verbs
from twisted_exec.kube.informers import key_of
from twisted_exec.storage.interfaces import IStorage


async def delete_without_machine(
    storage: IStorage, verbs: Verbs, notes: Kind, machines: Sequence[Resource], note: Object
) -> None:
    """Delete a note whose machine is gone; call it for each change of the note or the machine."""
    metadata = note["metadata"]
    if "deletionTimestamp" in metadata:
        return  # it is deleted already, and waits for a finalizer
    for resource in machines:
        with suppress(NotFound):
            # Not stale: another server may just have created the machine.
            await storage.get(resource, *machine_of(note))
            return
    unchanged = {key: metadata[key] for key in ("uid", "resourceVersion")}
    with suppress(Conflict, NotFound):  # the note has changed, and that change queues it again
        await verbs.delete(
            OURSELVES,
            RequestTarget(notes, *key_of(note)),
            WriteOptions(manager=MANAGER),
            unchanged,
        )
