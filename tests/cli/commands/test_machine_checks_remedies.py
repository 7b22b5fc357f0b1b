"""
Tests for :mod:`twisted_exec.cli.commands.machine_checks`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.dialects import DEFAULT
from twisted_exec.api.obstacles import Obstacle, because
from twisted_exec.api.status import APIError, from_status
from twisted_exec.cli.commands import machine_checks
from twisted_exec.wire.control_messages import COMPLETED, INTERNAL, LINE_LOST, POWERED_OFF, Ending


class RefusalTests(SynchronousTestCase):
    """A refused console is reported under the part that its message is about."""

    def test_parts(self) -> None:
        """The remedy names the log of that part."""
        for message, code, check, words in (
            ('pool "a" at 127.0.0.1:1: connection refused', 502, "poollet", "exec-poollet"),
            ('machines "vm" not found in pool "a"', 404, "poollet", "exec-poollet"),
            ("the machine runtime does not answer", 504, "runtime", "the runtime runs (its log)"),
            ('machine "d/vm" cannot start: no image', 409, "runtime", "the runtime's log"),
            ('machines "vm" is not running yet: no class', 503, "runtime", "the message names"),
            ('machine pool "a" has no usable address of', 503, "pool", "--addresses"),
            ('machine "vm" is powered off', 409, "machine", ""),
            ('User "ada" cannot create machines/exec', 403, "rights", "administrator"),
            (
                'User "ada" cannot observe resource "machines/console" in API group "compute.ironcore.dev"',
                403,
                "rights",
                "the role console-observer: kubectl create clusterrolebinding",
            ),
            ("too many sessions", 429, "console", "try again later"),
            ("cannot reach https://a: the handshake is wrong", 502, "server", "API server"),
            ("out of order", 500, "console", "API server"),
        ):
            found, remedy = machine_checks.of_refusal(APIError(message, code=code))
            self.assertEqual(found, check, message)
            self.assertIn(words, remedy)

    def test_obstacles(self) -> None:
        """The part and the remedy follow the obstacle, whatever the message says."""
        for obstacle, check, words in (
            (Obstacle.POWERED_OFF, "machine", ""),
            (Obstacle.CANNOT_START, "runtime", "the message names"),
            (Obstacle.NOT_RUNNING, "runtime", "the runtime runs"),
            (Obstacle.NOT_IN_POOL, "poollet", "exec-poollet"),
            (Obstacle.NO_ADDRESS, "pool", "--addresses"),
        ):
            error = from_status(because(obstacle, APIError("no", code=409)).to_status())
            found, remedy = machine_checks.of_refusal(error)
            self.assertEqual(found, check)
            self.assertIn(words, remedy)

    def test_connections(self) -> None:
        """The remedy fits the reason for which a hop does not reach the next."""
        pool = 'machine "vm": cannot connect to pool "a" at b:1: '
        runtime = 'machine "vm": cannot connect to the machine runtime at b:1: '
        refused = (
            'b:1: the server\'s certificate "CN=b" is refused: it is not signed by a trusted CA'
        )
        names = 'b:1: the server\'s certificate is not valid for "b": it names "c"'
        for message, check, words in (
            (f"{pool}its name is not known", "poollet", "--addresses"),
            (f"{pool}{refused}", "poollet", "--machinepoollet-certificate-authority"),
            (f"{pool}{names}", "poollet", "name this address"),
            (
                f"{pool}b:1: the certificate is not that of the pool: its common name is ['c'], not 'd'",
                "poollet",
                "belong to the pool",
            ),
            (
                'pool "a" at b:1 does not accept this server\'s credentials',
                "poollet",
                "--requestheader-client-ca-file",
            ),
            (f"{pool}no connection within 5 s", "poollet", "firewall"),
            (f"{pool}no route to it", "poollet", "firewall"),
            (f"{pool}connection refused", "poollet", "exec-poollet runs"),
            (f"{runtime}{refused}", "runtime", "--runtime-ca-file"),
            (f"{runtime}{names}", "runtime", "name this address"),
            (f"{runtime}its name is not known", "runtime", "--base-url"),
            (f"{runtime}connection refused", "runtime", "--machine-runtime-endpoint"),
        ):
            found, remedy = machine_checks.of_message(message)
            self.assertEqual(found, check, message)
            self.assertIn(words, remedy)

    def test_addresses(self) -> None:
        """For a pool with several addresses, the remedies of all reasons are there."""
        message = (
            'cannot connect to pool "a" at b:1: its name is not known; '
            'pool "a" at 10.0.0.1:1: connection refused'
        )
        _, remedy = machine_checks.of_message(message)
        self.assertIn("--addresses", remedy)
        self.assertIn("exec-poollet runs", remedy)


class EndingTests(SynchronousTestCase):
    """A session that ended at once."""

    def test_reasons(self) -> None:
        """The remedy fits the reason, and for an internal error the part that the message names."""
        for ending, words in (
            (Ending(COMPLETED, "the process ended", 0), "kubectl logs"),
            (Ending(LINE_LOST, "the emulator ended"), "the runtime's log"),
            (Ending(POWERED_OFF), 'kubectl patch machine vm -n lab --type=merge -p \'{"spec"'),
            (Ending(INTERNAL, 'pool "a" broke the protocol'), "exec-poollet"),
            (Ending(INTERNAL, "a bug"), "API server"),
        ):
            self.assertIn(words, machine_checks.of_ending(ending, DEFAULT, "vm", "lab"))


class ClassTests(SynchronousTestCase):
    """A class that does not exist."""

    def test_remedy(self) -> None:
        """The remedy says how to list the classes."""
        remedy = machine_checks.other_class(DEFAULT, "smal")
        self.assertIn("create the MachineClass smal, or delete the machine", remedy)
        self.assertIn("kubectl get machineclasses", remedy)
