"""
The plan for one Pod; :mod:`.worker` carries it out.

The order is a kubelet's: a deleted Pod of the root goes after its Pod in the leaf, if a syncer
created that.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.syncer.leaf_pods import (
    APPLIED,
    OWN_LABELS,
    desired_metadata,
    images,
    is_excluded,
)
from twisted_exec.nodeserver.syncer.status import (
    desired_status,
    has_run,
    is_over,
    is_status_current,
    lost_status,
)

_EPHEMERAL = "ephemeralContainers"


@dataclass(frozen=True)
class CreateInLeaf:
    """Create the leaf's Pod and the objects that it names."""


@dataclass(frozen=True)
class DeleteInLeaf:
    """
    Delete the leaf's Pod.

    :param grace_seconds: ``None`` for the Pod's own.
    """

    grace_seconds: int | None = None


@dataclass(frozen=True)
class DeleteInRoot:
    """Delete the root's Pod, as its kubelet would."""


@dataclass(frozen=True)
class UpdateInLeaf:
    """
    Write labels, annotations and images of the leaf's Pod.

    :param labels: ``None`` as value removes a label.
    """

    labels: tuple[tuple[str, str | None], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    images: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class AddEphemeral:
    """Add ephemeral containers, by name."""

    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class WriteStatus:
    """Write the status of the root's Pod; ``None`` as value removes a field."""

    status: Object


Step = CreateInLeaf | DeleteInLeaf | DeleteInRoot | UpdateInLeaf | AddEphemeral | WriteStatus


def plan(root: Object, pod: Object | None, marks: Object, leaf: str, now: str) -> list[Step]:
    """
    Return the steps, in order.

    :param pod: the leaf's Pod, certainly ours; ``None`` if there certainly is none.
    """
    ending = bool(root["metadata"].get("deletionTimestamp"))
    if pod is None or (ending and not is_created_by_syncer(pod)):
        return _without_leaf_pod(root, ending, leaf, now)
    steps: list[Step] = []
    if ending:
        steps += _ended(root, pod)
    elif is_created_by_syncer(pod) and not pod["metadata"].get("deletionTimestamp"):
        steps += _changes(root, pod, marks)
    status = desired_status(root, pod)
    if not is_status_current(root, status):
        steps.append(WriteStatus(status))
    return steps


def is_created_by_syncer(pod: Object) -> bool:
    """Return whether a syncer created the leaf's Pod."""
    return APPLIED in (pod["metadata"].get("annotations") or {})


def _without_leaf_pod(root: Object, ending: bool, leaf: str, now: str) -> list[Step]:
    if ending:
        return [DeleteInRoot()]
    if is_excluded(root) or is_over(root):
        return []
    if has_run(root):
        return [WriteStatus(lost_status(root, leaf, now))]
    return [CreateInLeaf()]


def _ended(root: Object, pod: Object) -> list[Step]:
    grace = root["metadata"].get("deletionGracePeriodSeconds")
    if grace is not None:
        # 0 would force the deletion in the leaf while its kubelet still runs the containers.
        grace = max(grace, 1)
    under_way = pod["metadata"].get("deletionTimestamp")
    left = pod["metadata"].get("deletionGracePeriodSeconds")
    if under_way and (grace is None or left is None or grace >= left):
        return []
    return [DeleteInLeaf(grace)]


def _changes(root: Object, pod: Object, marks: Object) -> list[Step]:
    steps: list[Step] = []
    update = _update(root, pod, marks)
    if update != UpdateInLeaf():
        steps.append(update)
    existing = {each["name"] for each in pod["spec"].get(_EPHEMERAL) or []}
    names = [each["name"] for each in root["spec"].get(_EPHEMERAL) or []]
    missing = tuple(name for name in names if name not in existing)
    if missing and not is_over(pod):
        steps.append(AddEphemeral(missing))
    return steps


def _update(root: Object, pod: Object, marks: Object) -> UpdateInLeaf:
    labels = pod["metadata"].get("labels") or {}
    annotations = pod["metadata"].get("annotations") or {}
    desired = desired_metadata(root, marks)
    if annotations[APPLIED] == desired["annotations"][APPLIED]:
        return UpdateInLeaf()
    set_before = filter(None, annotations.get(OWN_LABELS, "").split(","))
    removed = [(key, None) for key in set_before if key in labels and key not in desired["labels"]]
    existing = images(pod)
    return UpdateInLeaf(
        (*_differences(desired["labels"], labels), *removed),
        _differences(desired["annotations"], annotations),
        tuple(pair for pair in _differences(images(root), existing) if pair[0] in existing),
    )


def _differences(desired: Object, existing: Object) -> tuple[tuple[str, str], ...]:
    return tuple((key, value) for key, value in desired.items() if existing.get(key) != value)
