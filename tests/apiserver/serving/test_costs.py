"""Tests for :mod:`twisted_exec.apiserver.serving.costs`."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.support import machine
from twisted_exec.apiserver.serving.costs import CHEAP, cost_of_body, cost_of_json

APPLY = "application/apply-patch+yaml"


class CostTests(SynchronousTestCase):
    """Estimates of costs."""

    def test_cost(self) -> None:
        """Many values, or much text, are expensive; a review or a Machine is not."""
        self.assertLess(cost_of_json(json.dumps(machine("a")).encode()), 50)
        self.assertGreater(cost_of_json(b"[" + b"0," * 600 + b"0]"), CHEAP)
        self.assertGreater(cost_of_json(b'"' + b"x" * 140_000 + b'"'), CHEAP)
        self.assertLess(cost_of_body("application/json", b'{"a": "' + b"," * 400 + b'"}'), CHEAP)
        self.assertLess(cost_of_body(APPLY, json.dumps(machine("a")).encode()), CHEAP)
        self.assertGreater(cost_of_body("application/yaml", b"- a\n" * 600), CHEAP)
        self.assertGreater(cost_of_body(APPLY, b"{" + b"a," * 200 + b"}"), CHEAP)
