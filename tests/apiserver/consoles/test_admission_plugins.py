"""
Tests for :mod:`twisted_exec.apiserver.consoles.admission`: admission of streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from zope.interface import implementer

from tests.apiserver.support import MACHINES as MACHINES_PATH
from tests.apiserver.support import APITestCase
from twisted_exec.api import kinds
from twisted_exec.api.status import Forbidden
from twisted_exec.apiserver.interfaces import Change, IAdmission, IOpeningAdmission, Opening
from twisted_exec.apiserver.standalone import StandaloneControlPlane


@implementer(IAdmission, IOpeningAdmission)
class Doorkeeper:
    """
    Admission that refuses every stream.

    :ivar asked: the refused streams.
    """

    def __init__(self) -> None:
        self.asked: list[Opening] = []

    def admit(self, change: Change) -> Deferred[None]:
        """As :meth:`IAdmission.admit`."""
        return succeed(None)

    def admit_opening(self, opening: Opening) -> Deferred[None]:
        """As :meth:`IOpeningAdmission.admit_opening`."""
        self.asked.append(opening)
        return fail(Forbidden("closed on Sundays"))


class Kept(StandaloneControlPlane):
    """A server with a doorkeeper."""

    doorkeeper: Doorkeeper

    @property
    def admissions(self) -> Sequence[IAdmission]:
        """As :attr:`ControlPlane.admissions`."""
        return [*super().admissions, self.doorkeeper]


class OpeningTests(APITestCase):
    """Admission of streams before they open."""

    control_plane = Kept
    pods_view = True

    def setUp(self) -> None:
        self.doorkeeper = Kept.doorkeeper = Doorkeeper()
        super().setUp()

    def open(self, path: str, **more: Any) -> Any:
        headers = [("Connection", "Upgrade"), ("Upgrade", "websocket")]
        return self.answer("GET", path, code=403, headers=headers, **more)["message"]

    def test_asked(self) -> None:
        """Admission gets user, object and options; a refusal hides whether the machine exists."""
        path = f"{MACHINES_PATH}/vm/exec?insecureSkipTLSVerifyBackend=true&other=1"
        self.assertEqual(self.open(path), 'machine "vm": closed on Sundays')
        (opening,) = self.doorkeeper.asked
        self.assertEqual((opening.user.name, opening.kind), ("admin", kinds.MACHINES))
        self.assertEqual(
            (opening.namespace, opening.name, opening.subresource), ("default", "vm", "exec")
        )
        self.assertEqual(
            opening.options,
            {
                "kind": "MachineExecOptions",
                "apiVersion": "compute.ironcore.dev/v1alpha1",
                "insecureSkipTLSVerifyBackend": True,
            },
        )

    def test_not_asked(self) -> None:
        """Admission is not called for unauthorized users, nor for logs."""
        self.assertIn("cannot create resource", self.open(f"{MACHINES_PATH}/vm/exec", user="jane"))
        self.answer("GET", f"{MACHINES_PATH}/vm/log", code=404)
        self.assertEqual(self.doorkeeper.asked, [])

    def test_as_a_pod(self) -> None:
        """Admission sees a machine that is shown as a Pod as the machine itself."""
        path = "/api/v1/namespaces/default/pods/vm/exec?container=console&stdin=true&command=x"
        self.assertEqual(self.open(path), 'machine "vm": closed on Sundays')
        self.assertEqual(self.doorkeeper.asked[0].kind, kinds.MACHINES)
