"""
What to do next about one Pod: pure, of how it is in the root and in its leaf.

Nothing is remembered: the plan of a syncer that was killed between any two steps is that of the one
that takes its place.  The order is a kubelet's.  A Pod of the root that is deleted goes there only when
its Pod in the leaf is gone; one whose Pod in the leaf goes by itself has failed, if it ever ran, and is
made once more if it did not.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.syncer.form import (
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
    is_told,
    lost_status,
)

_EPHEMERAL = "ephemeralContainers"


@dataclass(frozen=True)
class CreateInLeaf:
    """Make the leaf's Pod, and what it names."""


@dataclass(frozen=True)
class DeleteInLeaf:
    """
    Ask the leaf to end its Pod.

    :param grace_seconds: ``None`` for its own.
    """

    grace_seconds: int | None = None


@dataclass(frozen=True)
class DeleteInRoot:
    """Say that a Pod is gone, as its kubelet would."""


@dataclass(frozen=True)
class UpdateInLeaf:
    """
    Write into the leaf's Pod what may change in one.

    :param labels: ``None`` for one to be taken away; likewise ``annotations``.
    :param images: by the containers' names.
    """

    labels: tuple[tuple[str, str | None], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    images: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class AddEphemeral:
    """Add containers for debugging, by their names."""

    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class WriteStatus:
    """Tell the root; ``None`` for what is to be taken away."""

    status: Object


Step = CreateInLeaf | DeleteInLeaf | DeleteInRoot | UpdateInLeaf | AddEphemeral | WriteStatus


def plan(root: Object, pod: Object | None, marks: Object, leaf: str, now: str) -> list[Step]:
    """
    What is to be done now, in this order; nothing when all is as it should be.

    :param pod: the leaf's, that is ours for sure; ``None`` for sure when there is none.
    :param marks: see :meth:`.ILeaf.marks`.
    :param leaf: the leaf's name.
    :param now: the time, for conditions.
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
    if not is_told(root, status):
        steps.append(WriteStatus(status))
    return steps


def is_created_by_syncer(pod: Object) -> bool:
    """A syncer has made a leaf's Pod: whoever else did looks after it, and ends it."""
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
    """Once, or again when it is to be sooner."""
    grace = root["metadata"].get("deletionGracePeriodSeconds")
    if grace is not None:
        # Who does not wait in the root does not ask the leaf's kubelet to leave anything running.
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
    there = {each["name"] for each in pod["spec"].get(_EPHEMERAL) or []}
    names = [each["name"] for each in root["spec"].get(_EPHEMERAL) or []]
    missing = tuple(name for name in names if name not in there)
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
    there = images(pod)
    return UpdateInLeaf(
        (*_differences(desired["labels"], labels), *removed),
        _differences(desired["annotations"], annotations),
        tuple(pair for pair in _differences(images(root), there) if pair[0] in there),
    )


def _differences(desired: Object, there: Object) -> tuple[tuple[str, str], ...]:
    return tuple((key, value) for key, value in desired.items() if there.get(key) != value)
