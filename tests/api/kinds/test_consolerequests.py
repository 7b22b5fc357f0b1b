"""
Tests for :mod:`twisted_exec.api.kinds.consolerequests`.
"""

from __future__ import annotations

from typing import Any

from tests.api.kinds.support import KindTestCase
from twisted_exec.api import strategy
from twisted_exec.api.kinds import CONSOLEREQUESTS, Object
from twisted_exec.api.kinds.consolerequests import state_of
from twisted_exec.api.status import Invalid
from twisted_exec.api.times import timestamp

BY_SERVER = {"user": "ada", "machineUID": "u-1"}


class ConsoleRequestTests(KindTestCase):
    """ConsoleRequests."""

    kind = CONSOLEREQUESTS

    def stored(self, **status: Any) -> Object:
        request = self.create(spec={"machine": "vm-1", "reason": "OPS-1"})
        request["spec"] |= BY_SERVER
        return {**request, **({"status": status} if status else {})}

    def decided(self, old: Object, subresource: str = "approval", **status: Any) -> Object:
        merged = {**old.get("status", {}), **status}
        body = {**old, "status": merged}
        return strategy.for_update(self.kind, body, old, subresource=subresource)

    def decision_refused(self, old: Object, **status: Any) -> str:
        with self.assertRaises(Invalid) as caught:
            self.decided(old, **status)
        (cause,) = caught.exception.details["causes"]
        return f"{cause['field']}: {cause['message']}"

    def test_defaults(self) -> None:
        """A request is for an hour at the keyboard of a machine."""
        request = self.create(spec={"machine": "vm-1"}, status={"approved": True})
        self.assertEqual(request["spec"], {"machine": "vm-1", "right": "drive", "seconds": 3600})
        self.assertNotIn("status", request)

    def test_refused(self) -> None:
        """A machine, a known right, and a lifetime of a minute to a day."""
        for spec, message in (
            ({}, "spec.machine: Required value"),
            (
                {"machine": "a", "right": "root"},
                'spec.right: Unsupported value: "root": supported values: "drive", "observe", "takeover"',
            ),
            (
                {"machine": "a", "seconds": 86_401},
                "spec.seconds: Invalid value: 86401: must be less than or equal to 86400",
            ),
            (
                {"machine": "a", "reason": "x\n"},
                'spec.reason: Invalid value: "x\\n": the reason has a control or invisible character (U+000A): remove it',
            ),
            (
                {"machine": "a", "reason": "x" * 257},
                f'spec.reason: Invalid value: "{"x" * 255}...: the reason has 257 characters, more than 256: shorten it',
            ),
        ):
            self.assertEqual(self.refused(spec=spec), [message])

    def test_immutable(self) -> None:
        """Nothing of the spec changes; fields of the server may be left out."""
        old = self.stored()
        for change in ({"machine": "vm-2"}, {"user": "eve"}, {"machineUID": "u-2"}):
            self.assertEqual(
                self.update_refused(old, spec={**old["spec"], **change}),
                ["spec: Forbidden: is immutable: delete the request and create another"],
            )
        without = {k: v for k, v in old["spec"].items() if k not in BY_SERVER}
        new = self.update(old, spec=without)
        self.assertEqual(new["spec"], old["spec"])

    def test_approval(self) -> None:
        """Approval sets the decision, and nothing that the server sets."""
        old = self.stored()
        new = self.decided(old, approved=True, decidedBy="eve", session="s", message="go")
        self.assertEqual(new["status"], {"approved": True, "message": "go"})

    def test_status(self) -> None:
        """The status subresource changes nothing: it is no way around approval."""
        new = self.decided(
            self.stored(), "status", approved=True, expirationTime="2030-01-01T00:00:00Z"
        )
        self.assertFalse(new.get("status"))

    def test_withdrawn(self) -> None:
        """An approval is withdrawn by a denial, which is final."""
        approved = self.stored(approved=True, decidedBy="bob", message="go")
        self.assertIn("set status.denied to true", self.decision_refused(approved, approved=False))
        denied = self.decided(approved, denied=True)
        self.assertEqual(denied["status"], {"approved": False, "denied": True, "decidedBy": "bob"})
        for change in ({"approved": True}, {"denied": False}, {"denied": False, "approved": True}):
            self.assertEqual(
                self.decision_refused(denied, **change),
                "status: Forbidden: a denial is final: create another request",
            )

    def test_states(self) -> None:
        """The state follows from decision, use and time."""
        until = timestamp(7200)
        for status, now, state in (
            ({}, 0, "Pending"),
            ({}, 86_400, "Expired"),
            ({"approved": True, "expirationTime": until}, 7199, "Approved"),
            ({"approved": True, "expirationTime": until}, 7200, "Expired"),
            ({"approved": True, "expirationTime": until, "session": "s"}, 0, "Used"),
            ({"approved": False, "denied": True, "expirationTime": until}, 0, "Withdrawn"),
            ({"denied": True}, 0, "Denied"),
        ):
            self.assertEqual(state_of(self.stored(**status), now), state)
