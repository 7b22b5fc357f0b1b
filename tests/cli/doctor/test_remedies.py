"""
Tests for :mod:`twisted_exec.cli.doctor.remedies`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.dialects import DEFAULT
from twisted_exec.api.obstacles import Obstacle, because
from twisted_exec.api.status import APIError, from_status
from twisted_exec.cli.doctor import remedies
from twisted_exec.wire.endings import COMPLETED, INTERNAL, LINE_LOST, POWERED_OFF, Ending


class RefusalTests(SynchronousTestCase):
    """A refused console is reported under the part that its message is about."""

    def test_parts(self) -> None:
        """Refusals without an obstacle are recognized by their code, or by a captured text."""
        for message, code, check, words in (
            ('pool "a" at 127.0.0.1:1: connection refused', 502, "poollet", "exec-poollet"),
            ('machines "vm" is not running yet: no class', 503, "runtime", "the message names"),
            ('User "ada" cannot create machines/exec', 403, "rights", "administrator"),
            (
                'User "ada" cannot observe resource "machines/console" in API group "compute.ironcore.dev"',
                403,
                "rights",
                "the role console-observer: kubectl create clusterrolebinding",
            ),
            ("too many sessions", 429, "console", "try again later"),
            ("out of order", 500, "console", "API server"),
        ):
            found, remedy = remedies.of_refusal(APIError(message, code=code))
            self.assertEqual(found, check, message)
            self.assertIn(words, remedy)

    def test_obstacles(self) -> None:
        """The part and the remedy follow the obstacle, whatever the message says."""
        for obstacle, check, words in (
            (Obstacle.BEING_DELETED, "machine", "create it again"),
            (Obstacle.POWERED_OFF, "machine", ""),
            (Obstacle.CANNOT_START, "runtime", "the message names"),
            (Obstacle.NOT_RUNNING, "runtime", "the runtime runs"),
            (Obstacle.NO_POOL, "machine", "the scheduler then assigns it"),
            (Obstacle.POOL_NOT_FOUND, "pool", "start the poollet of the pool"),
            (Obstacle.NOT_IN_POOL, "poollet", "exec-poollet"),
            (Obstacle.NO_ADDRESS, "pool", "--addresses"),
            (Obstacle.CANNOT_BE_RECORDED, "console", "the message names"),
        ):
            error = from_status(because(obstacle, APIError("no", code=409)).to_status())
            found, remedy = remedies.of_refusal(error)
            self.assertEqual(found, check)
            self.assertIn(words, remedy)

    def test_connections(self) -> None:
        """The remedy fits the reason for which a hop does not reach the next."""
        poollet, runtime = Obstacle.POOLLET_FAILED, Obstacle.RUNTIME_FAILED
        for part, reason, check, words in (
            (poollet, Obstacle.NAME_UNKNOWN, "poollet", "--addresses"),
            (
                poollet,
                Obstacle.CERTIFICATE_UNTRUSTED,
                "poollet",
                "--machinepoollet-certificate-authority",
            ),
            (poollet, Obstacle.CERTIFICATE_OF_OTHER, "poollet", "belong to the pool"),
            (poollet, Obstacle.CERTIFICATE_OUTSIDE_VALIDITY, "poollet", "must be valid"),
            (poollet, Obstacle.CREDENTIALS_REFUSED, "poollet", "--requestheader-client-ca-file"),
            (poollet, Obstacle.CONNECT_TIMEOUT, "poollet", "firewall"),
            (poollet, Obstacle.NO_ROUTE, "poollet", "firewall"),
            (poollet, Obstacle.CONNECTION_REFUSED, "poollet", "exec-poollet runs"),
            (poollet, Obstacle.NO_ANSWER, "poollet", "exec-poollet runs"),
            (runtime, Obstacle.CERTIFICATE_REFUSED, "runtime", "--runtime-ca-file"),
            (runtime, Obstacle.CERTIFICATE_OF_OTHER, "runtime", "name this address"),
            (runtime, Obstacle.NAME_UNKNOWN, "runtime", "--base-url"),
            (runtime, Obstacle.CONNECTION_REFUSED, "runtime", "--machine-runtime-endpoint"),
        ):
            error = because(part, because(reason, APIError("no", code=502)))
            found, remedy = remedies.of_refusal(from_status(error.to_status()))
            self.assertEqual(found, check, reason)
            self.assertIn(words, remedy)

    def test_addresses(self) -> None:
        """For a pool with several addresses, the remedies of all reasons are there."""
        error = APIError("no", code=502)
        for each in (
            Obstacle.NAME_UNKNOWN,
            Obstacle.CONNECTION_REFUSED,
            Obstacle.POOLLET_FAILED,
        ):
            because(each, error)
        _, remedy = remedies.of_refusal(error)
        self.assertIn("--addresses", remedy)
        self.assertIn("exec-poollet runs", remedy)


class EndingTests(SynchronousTestCase):
    """A session that ended at once."""

    def test_reasons(self) -> None:
        """
        The remedy fits the reason, and for an internal error the causes; without causes, it fits the
        part that a known text names.
        """
        for ending, words in (
            (Ending(COMPLETED, "the process ended", 0), "kubectl logs"),
            (Ending(LINE_LOST, "the emulator ended"), "the runtime's log"),
            (Ending(POWERED_OFF), 'kubectl patch machine vm -n lab --type=merge -p \'{"spec"'),
            (Ending(INTERNAL, 'pool "a" broke the protocol'), "exec-poollet"),
            (Ending(INTERNAL, "lost", causes=("RuntimeFailed",)), "the runtime runs"),
            (Ending(INTERNAL, 'pool "a"', causes=("NotInPool",)), "whose copy may be"),
            (Ending(INTERNAL, "lost", causes=("Unknown",)), "API server"),
            (Ending(INTERNAL, "a bug"), "API server"),
        ):
            self.assertIn(words, remedies.of_ending(ending, DEFAULT, "vm", "lab"))


class ClassTests(SynchronousTestCase):
    """A class that does not exist."""

    def test_remedy(self) -> None:
        """The remedy says how to list the classes."""
        remedy = remedies.other_class(DEFAULT, "smal")
        self.assertIn("create the MachineClass smal, or delete the machine", remedy)
        self.assertIn("kubectl get machineclasses", remedy)
