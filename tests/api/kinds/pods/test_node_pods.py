"""
Tests for :mod:`twisted_exec.api.kinds.pods.node_pods`.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.linear import assert_linear
from twisted_exec.api.kinds.pods.node_pods import NODE_PODS


def pod(*tolerations: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "a"}], "tolerations": [*tolerations]}}


class TolerationTests(SynchronousTestCase):
    """Tolerations may be added, and not removed."""

    def test_kept(self) -> None:
        """The order does not matter, and any JSON is compared."""
        first, second = {"key": "a", "operator": "Exists"}, {"key": {"odd": [1]}}
        again = dict(reversed(first.items()))
        self.assertEqual(NODE_PODS.validate_update(pod(second, again), pod(first, second)), [])
        (told,) = NODE_PODS.validate_update(pod(first), pod(first, second))
        self.assertEqual(told["field"], "spec.tolerations")

    def test_many(self) -> None:
        """Thousands take linear time."""

        def check(size: int) -> None:
            many = [{"key": str(each)} for each in range(size)]
            self.assertEqual(NODE_PODS.validate_update(pod(*many[::-1]), pod(*many)), [])

        assert_linear(check, 1000)
