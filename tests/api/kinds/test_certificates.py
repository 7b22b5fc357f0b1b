"""
Tests for :mod:`twisted_exec.api.kinds.certificates`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.linear import assert_linear
from twisted_exec.api.kinds import CERTIFICATESIGNINGREQUESTS


class UsageTests(SynchronousTestCase):
    """The usages of a request."""

    def problems(self, usages: list[str]) -> list[str]:
        csr = {"spec": {"signerName": "example.com/a", "usages": usages, "request": ""}}
        causes = CERTIFICATESIGNINGREQUESTS.validate(csr)
        return [each["field"] for each in causes if each["field"].startswith("spec.usages")]

    def test_repeated(self) -> None:
        """A usage may be there once."""
        told = self.problems(["client auth", "server auth", "client auth"])
        self.assertEqual(told, ["spec.usages[2]"])

    def test_many(self) -> None:
        """Thousands of repeated usages take linear time."""

        def check(size: int) -> None:
            usages = ["client auth"] * size + ["server auth"] * size
            self.assertEqual(len(self.problems(usages)), 2 * size - 2)

        assert_linear(check, 1500)
