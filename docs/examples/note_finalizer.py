"""
A finalizer: the machine of a MachineNote has an annotation until the note is deleted.
"""

from __future__ import annotations

from typing import Any

from twisted_exec.api.kinds import Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import Conflict, NotFound
from twisted_exec.control.queue import Again
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.kube.recorder import Recorder

FINALIZER = "notes.example.org/machine"
ANNOTATION = "notes.example.org/text"


async def reconcile(
    client: IKubeClient, notes: Resource, machines: Resource, recorder: Recorder, note: Object
) -> None:
    """Write what is missing about one note; call it again for each change of the note."""
    metadata, spec = note["metadata"], note["spec"]
    is_deleted = "deletionTimestamp" in metadata
    finalizers = metadata.get("finalizers", [])
    if not is_deleted and FINALIZER not in finalizers:  # first: a deletion must not come between
        await patch(client, notes, note, {"finalizers": [*finalizers, FINALIZER]})
    elif not is_deleted or FINALIZER in finalizers:
        text = None if is_deleted else spec["text"]  # in a merge patch, null removes the key
        try:
            machine = await client.get(machines, spec["machine"], metadata["namespace"])
        except NotFound:
            machine = None
        if (
            machine is not None
            and machine["metadata"].get("annotations", {}).get(ANNOTATION) != text
        ):
            await patch(client, machines, machine, {"annotations": {ANNOTATION: text}})
            message = f'annotated for the note "{metadata["name"]}"'
            recorder.record(machine, "Normal", "Annotated", message, resource=machines)
        if is_deleted:  # last: the server removes the note with its last finalizer
            rest = [each for each in finalizers if each != FINALIZER]
            await patch(client, notes, note, {"finalizers": rest})


async def patch(
    client: IKubeClient, resource: Resource, obj: Object, changes: dict[str, Any]
) -> Object:
    """Change the metadata of an object, unless the object has changed since it was read."""
    metadata = obj["metadata"]
    changes = {"resourceVersion": metadata["resourceVersion"], **changes}
    try:
        return await client.patch(
            resource, metadata["name"], {"metadata": changes}, metadata["namespace"]
        )
    except Conflict:
        raise Again(longest_seconds=1) from None  # the queue calls again, with what is there then
