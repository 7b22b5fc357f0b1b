"""
Tests for :mod:`twisted_exec.apiserver.serving.request_limits`: how many requests are answered at once,
and whose.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer

from tests.apiserver.support import MACHINES, APITestCase, machine
from twisted_exec.apiserver.interfaces import Change, IAdmission, IOpeningAdmission, Opening
from twisted_exec.apiserver.serving.request_limits import RequestLimits
from twisted_exec.apiserver.standalone import StandaloneControlPlane
from twisted_exec.testing.network import MemoryClient

UPGRADE = [("Connection", "Upgrade"), ("Upgrade", "websocket")]
EXEC = f"{MACHINES}/vm/exec"


@implementer(IAdmission, IOpeningAdmission)
class Slow:
    """
    An admission that holds requests of jane and bob, like a webhook that does not answer.

    :ivar waiting: the pending answers.
    """

    def __init__(self) -> None:
        self.waiting: list[Deferred[None]] = []

    def admit(self, change: Change) -> Deferred[None]:
        """As :meth:`IAdmission.admit`."""
        if change.user.name == "admin":
            return succeed(None)
        self.waiting.append(Deferred())
        return self.waiting[-1]

    def admit_opening(self, opening: Opening) -> Deferred[None]:
        """As :meth:`IOpeningAdmission.admit_opening`."""
        self.waiting.append(Deferred())
        return self.waiting[-1]

    def let_go(self) -> None:
        """Answer everything."""
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each.callback(None)


class Slowed(StandaloneControlPlane):
    """A server with the slow admission."""

    slow: Slow

    @property
    def admissions(self) -> Sequence[IAdmission]:
        """As :attr:`ControlPlane.admissions`."""
        return [*super().admissions, self.slow]


class ShortTests(APITestCase):
    """Slow short requests must not block others."""

    control_plane = Slowed
    limits = RequestLimits(short=3, short_per_user=2)

    def setUp(self) -> None:
        self.slow = Slowed.slow = Slow()
        super().setUp()
        for user in ("jane", "bob"):
            self.bind(user, "edit")

    def begin(
        self, user: str, method: str, path: str, body: Any = None, headers: Any = ()
    ) -> MemoryClient:
        """A request that is not answered yet."""
        raw = json.dumps(body).encode() if body else b""
        lines = [f"{method} {path} HTTP/1.1", "Host: server", f"Authorization: Bearer {user}"]
        lines += [f"{name}: {value}" for name, value in headers]
        lines += ["Content-Type: application/json", f"Content-Length: {len(raw)}", "", ""]
        client = self.server.connect()
        client.send("\r\n".join(lines).encode() + raw)
        self.assertEqual(client.received(), b"")
        self.addCleanup(client.lose)
        return client

    def test_one_user(self) -> None:
        """A single user gets only a part of the places; other users are still served."""
        for name in ("a", "b"):
            self.begin("jane", "POST", MACHINES, machine(name))
        response = self.ask("GET", MACHINES, user="jane")
        self.assertEqual((response.code, response.headers["retry-after"]), (429, "1"))
        self.assertIn('user "jane" has 2 at once', response.json()["message"])
        self.answer("GET", MACHINES, user="bob")
        self.slow.let_go()
        self.assertEqual(len(self.answer("GET", MACHINES, user="jane")["items"]), 2)

    def test_all_users(self) -> None:
        """All users together are limited, too."""
        for user, name in (("jane", "a"), ("jane", "b"), ("bob", "c")):
            self.begin(user, "POST", MACHINES, machine(name))
        refused = self.answer("GET", MACHINES, code=429)
        self.assertEqual(refused["message"], "Too many requests, please try again later.")
        self.slow.let_go()
        self.answer("GET", MACHINES)

    def test_who_leaves(self) -> None:
        """A client that leaves frees its place, and its write is not made."""
        leaving = self.begin("jane", "POST", MACHINES, machine("a"))
        self.begin("jane", "POST", MACHINES, machine("b"))
        self.answer("GET", MACHINES, user="jane", code=429)
        leaving.lose()
        self.slow.let_go()
        (made,) = self.answer("GET", MACHINES, user="jane")["items"]
        self.assertEqual(made["metadata"]["name"], "b")

    def test_streams(self) -> None:
        """Authorizing and admitting a stream counts as a short request."""
        for _ in range(2):
            self.begin("jane", "POST", EXEC, headers=UPGRADE)
        refused = self.answer("POST", EXEC, user="jane", headers=UPGRADE, code=429)
        self.assertIn('user "jane" has 2 at once', refused["message"])
        self.slow.let_go()
        self.answer("GET", MACHINES, user="jane")

    def test_watches(self) -> None:
        """Watches are counted separately."""
        for name in ("a", "b"):
            self.begin("jane", "POST", MACHINES, machine(name))
        self.slow.let_go()
        for _ in range(5):
            self.watch(f"{MACHINES}?watch=1", user="jane")
        self.answer("GET", MACHINES, user="jane")
