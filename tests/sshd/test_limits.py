"""
Tests for :mod:`twisted_exec.sshd.limits`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.sshd.limits import TOO_MANY_IN_ALL, Admission, Limits

LIMITS = Limits(
    connections=6,
    before_login=4,
    before_login_per_address=2,
    connections_per_user=2,
    sessions_per_user=3,
)


class Stranger:
    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.is_evicted = False

    def evict(self) -> None:
        self.is_evicted = True


class AdmissionTests(SynchronousTestCase):
    """Who may connect, and have sessions."""

    def setUp(self) -> None:
        self.admission = Admission(LIMITS)

    def enter(self, *origins: str) -> list[Stranger]:
        strangers = [Stranger(each) for each in origins]
        for each in strangers:
            self.assertEqual(self.admission.enter(each), "")
        return strangers

    def test_address(self) -> None:
        """One address has few connections before their login: a further one ends its oldest; others are not affected."""
        other, first, second = self.enter("192.0.2.2", "192.0.2.1", "192.0.2.1")
        [third] = self.enter("192.0.2.1")
        self.admission.leave(second)
        self.enter("192.0.2.1")
        crowd = (other, first, second, third)
        self.assertEqual([each.is_evicted for each in crowd], [False, True, False, False])
        self.assertEqual(self.admission.strangers, 3)

    def test_oldest(self) -> None:
        """A crowd of strangers cannot hold the door shut: each further one takes the place of the oldest."""
        crowd = self.enter(*(f"192.0.2.{each}" for each in range(4)))
        self.enter("198.51.100.1")
        self.assertEqual([each.is_evicted for each in crowd], [True, False, False, False])
        self.assertEqual(self.admission.strangers, 4)
        self.admission.leave(crowd[0])  # as its connection is lost
        self.assertEqual(self.admission.strangers, 4)

    def test_in_all(self) -> None:
        """Users who have logged in keep their places, and strangers get the others."""
        for user in ("ada", "ada", "bob", "bob", "eve"):
            self.assertEqual(self.admission.log_in(user), "")
        [first] = self.enter("192.0.2.1")
        [second] = self.enter("192.0.2.2")
        self.assertEqual((first.is_evicted, second.is_evicted), (True, False))
        self.admission.leave(second)
        self.assertEqual(self.admission.log_in("eve"), "")
        self.assertEqual(self.admission.enter(Stranger("192.0.2.3")), TOO_MANY_IN_ALL)

    def test_user(self) -> None:
        """Connections and sessions of one user are limited."""
        for _ in range(2):
            self.assertEqual(self.admission.log_in("ada"), "")
        self.assertIn("you have 2 connections", self.admission.log_in("ada"))
        self.assertEqual(self.admission.log_in("bob"), "")
        self.admission.log_out("ada")
        self.assertEqual(self.admission.log_in("ada"), "")
        for _ in range(3):
            self.assertEqual(self.admission.begin("ada"), "")
        self.assertIn("you have 3 sessions", self.admission.begin("ada"))
        self.admission.end("ada")
        self.assertEqual(self.admission.begin("ada"), "")

    def test_nothing_kept(self) -> None:
        """Nothing is kept of addresses and users that have left."""
        for stranger in self.enter("192.0.2.1", "192.0.2.2"):
            self.admission.leave(stranger)
        self.admission.log_in("ada")
        self.admission.begin("ada")
        self.admission.end("ada")
        self.admission.log_out("ada")
        counters = [each for each in vars(self.admission).values() if each is not LIMITS]
        self.assertEqual([len(each) for each in counters], [0] * 4)
