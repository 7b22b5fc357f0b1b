"""
Tests for :mod:`twisted_exec.spacemanager.spaces.plan`: whatever is there, nothing is done that
cannot be answered for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api import spaces
from twisted_exec.api.status import BadGateway
from twisted_exec.spacemanager.interfaces import (
    BROKEN,
    BUILDING,
    GOING,
    USABLE,
    Access,
    Physical,
    ProviderCondition,
    SpaceInfo,
)
from twisted_exec.spacemanager.spaces import observation as acts
from twisted_exec.spacemanager.spaces.observation import (
    ABSENT,
    Absent,
    ProbeResult,
    Provider,
    RefusedStep,
    SpaceObservation,
)
from twisted_exec.spacemanager.spaces.plan import plan
from twisted_exec.spacemanager.spaces.secrets import form, secret_content
from twisted_exec.spacemanager.spaces.status import phase, status_of
from twisted_exec.spacemanager.spaces.verdicts import ANSWERS, VALID
from twisted_exec.spaces.kubeconfigs import minimal

UID = "uid-of-the-space"
KUBECONFIG = b"""{"clusters": [{"name": "c", "cluster": {"server": "https://h:1"}}], "current-context": "x",
"users": [{"name": "u", "user": {"token": "t"}}], "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}]}"""


@st.composite
def seens(draw: Any) -> SpaceObservation:
    """Anything that may be seen of a Space."""
    metadata: dict[str, Any] = {"name": "one", "namespace": "spaceprovider-p", "uid": UID}
    metadata["finalizers"] = draw(
        st.lists(st.sampled_from([spaces.FINALIZER, spaces.OLD_FINALIZER, "x/y"]), unique=True)
    )
    if draw(st.booleans()):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if draw(st.booleans()):
        metadata["labels"] = {spaces.MANAGED_BY: spaces.MANAGER}
    if draw(st.booleans()):
        metadata["annotations"] = {spaces.ROTATE: "1"}
    type = draw(st.sampled_from([spaces.MANAGED, spaces.UNMANAGED]))
    space = {"metadata": metadata, "spec": {"Type": type, "SpaceProviderDescName": "p"}}
    physical = draw(st.sampled_from([None, {"name": "one"}, {"name": "one", "found": True}]))
    if physical:
        told = draw(st.sampled_from(["", *("Initializing", "Ready", "NotReady")]))
        space["status"] = {"physicalSpace": physical, "Phase": told}
    info = SpaceInfo(
        Physical("one"),
        draw(st.sampled_from([BUILDING, USABLE, BROKEN, GOING])),
        owner=draw(st.sampled_from([UID, "another", "", None])),
        access=draw(st.sampled_from([{}, {"External": Access(KUBECONFIG)}])),
    )
    there = draw(st.booleans())
    usable = there and draw(st.booleans())
    provider = Provider(
        "p",
        is_there=there,
        is_usable=usable,
        reachable=ProviderCondition("True" if usable else "False", "X", ""),
        passes=draw(st.booleans()),
        is_gone=draw(st.booleans()),
        rotates=draw(st.booleans()),
    )
    answer = draw(st.sampled_from([None, ABSENT, info])) if usable else None
    narrow = secret_content(Access(minimal(KUBECONFIG, "", "one")), "External", "one")
    mine = form(narrow, "External", space, None, 0.0)
    foreign = {"metadata": {"name": "external-one", "uid": "x"}, "data": {}}
    secret = draw(st.sampled_from([None, mine, foreign]))
    probed = draw(
        st.sampled_from(
            [None, ProbeResult("", VALID, ANSWERS), ProbeResult("", ("False", "R", ""), ANSWERS)]
        )
    )
    done = draw(st.frozensets(st.sampled_from([acts.Create, acts.Delete, acts.Rotate])))
    return SpaceObservation(
        space, provider, answer, {"External": secret}, probed, None, done, now=1_800_000_000.0
    )


class PlanTests(SynchronousTestCase):
    """What holds of every plan."""

    @given(seen=seens())
    def test_only_ours(self, seen: SpaceObservation) -> None:
        """Nothing is deleted that is not ours, nor concluded from silence."""
        planned = plan(seen)
        kinds = {type(step) for step in planned.steps}
        info = seen.answer if isinstance(seen.answer, SpaceInfo) else None
        if acts.Delete in kinds:
            assert info is not None
            self.assertTrue(seen.is_managed and seen.is_going and info.owner in (UID, None))
        if acts.DeleteSpace in kinds:
            self.assertFalse(seen.is_managed)
            self.assertIn("labels", seen.space["metadata"])
            self.assertTrue(seen.provider.is_gone or not seen.provider.passes or seen.rival)
        if acts.DeleteSecret in kinds:
            secret = seen.secrets["External"]
            assert secret is not None
            self.assertIn("ownerReferences", secret["metadata"])
        for step in planned.steps:
            if isinstance(step, acts.SetFinalizers):
                known = seen.space["metadata"]["finalizers"]
                self.assertEqual("x/y" in step.finalizers, "x/y" in known)

    @given(seen=seens())
    def test_in_order(self, seen: SpaceObservation) -> None:
        """What is made is held by a finalizer, and written down, before."""
        planned = plan(seen)
        kinds = [type(step) for step in planned.steps]
        if acts.Create in kinds:
            self.assertTrue(seen.is_managed and not seen.is_going)
            self.assertIn(spaces.FINALIZER, seen.space["metadata"]["finalizers"])
            intends = kinds.index(acts.Intend) if acts.Intend in kinds else -1
            recorded = "physicalSpace" in seen.space.get("status", {})
            self.assertTrue(recorded or intends >= 0)
            self.assertLess(intends, kinds.index(acts.Create))

    @given(seen=seens())
    def test_let_go(self, seen: SpaceObservation) -> None:
        """A managed Space goes only when nothing of it can be left, and its Secrets before it."""
        if not seen.is_managed or not seen.is_going:
            return
        planned = plan(seen)
        off = [step for step in planned.steps if isinstance(step, acts.SetFinalizers)]
        if not off or spaces.FINALIZER not in seen.space["metadata"]["finalizers"]:
            return
        never = "physicalSpace" not in seen.space.get("status", {})
        absent = isinstance(seen.answer, Absent)
        another = isinstance(seen.answer, SpaceInfo) and seen.answer.owner in ("another", "")
        self.assertTrue(never or absent or another)
        secret = seen.secrets["External"]
        self.assertTrue(secret is None or "ownerReferences" not in secret["metadata"])

    @given(seen=seens())
    def test_one_failure_at_a_time(self, seen: SpaceObservation) -> None:
        """Behind a step that was refused none is taken, and it is said."""
        planned = plan(seen)
        for step in planned.steps:
            refused = RefusedStep(step, BadGateway("it is down"))
            after = plan(replace(seen, refused=refused))
            self.assertEqual(after.steps, ())
            self.assertEqual((after.synced[0], after.synced[2]), ("False", "it is down"))

    @given(seen=seens())
    def test_status(self, seen: SpaceObservation) -> None:
        """A status can be told of anything, twice the same, and Ready is never said lightly."""
        planned = replace(plan(seen), steps=())
        status = status_of(seen, planned)
        again = status_of(replace(seen, space={**seen.space, "status": status}), planned)
        self.assertEqual(again, status)
        types = {one["type"]: one["status"] for one in status["conditions"]}
        if status["Phase"] == spaces.READY:
            self.assertNotIn(
                "False", [types[spaces.CREDENTIALS_VALID], types[spaces.PHYSICAL_SPACE_READY]]
            )

    def test_phase(self) -> None:
        """What was Ready stays so while nobody could look; what never was, is not."""
        unknown, good, bad = ("Unknown", "U", ""), ("True", "T", ""), ("False", "F", "")

        def told(before: str, physical: Any, valid: Any) -> str:
            conditions = {spaces.PHYSICAL_SPACE_READY: physical, spaces.CREDENTIALS_VALID: valid}
            return phase(before, conditions)

        self.assertEqual(told("", good, good), "Ready")
        self.assertEqual(told("Ready", unknown, good), "Ready")
        self.assertEqual(told("Ready", good, bad), "NotReady")
        self.assertEqual(told("", unknown, good), "Initializing")
        self.assertEqual(told("NotReady", unknown, good), "NotReady")
