"""
Tests for :mod:`twisted_exec.api.encoded`.
"""

from __future__ import annotations

import copy
import json

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.encoded import Encoded, json_of, metadata_json_of

POOL = {"kind": "MachinePool", "metadata": {"name": "pøl", "labels": {"a": "b"}}, "spec": {}}


class EncodedTests(SynchronousTestCase):
    """Tests for :class:`Encoded`."""

    def test_is_its_object(self) -> None:
        """An Encoded object equals its object, and its bytes decode to the same."""
        kept = Encoded(POOL)
        self.assertEqual(kept, POOL)
        self.assertEqual(json.loads(kept.json), POOL)
        self.assertEqual(json.loads(kept.metadata_json), POOL["metadata"])

    def test_once(self) -> None:
        """The bytes are encoded once and shared."""
        kept = Encoded(POOL)
        self.assertIs(json_of(kept), json_of(kept))
        self.assertIs(metadata_json_of(kept), metadata_json_of(kept))

    def test_known_text(self) -> None:
        """JSON text passed to the constructor is used as it is."""
        self.assertEqual(Encoded(POOL, '{"as":"given"}').json, b'{"as":"given"}')

    def test_copies(self) -> None:
        """A copy is an ordinary dict without encoded bytes, so changing it is safe."""
        kept = Encoded(POOL)
        self.assertTrue(kept.json)
        for other in (copy.copy(kept), copy.deepcopy(kept), kept.copy(), {**kept}):
            self.assertIs(type(other), dict)
            other["spec"] = {"changed": True}
            self.assertEqual(json.loads(json_of(other))["spec"], {"changed": True})
        self.assertEqual(json.loads(kept.json), POOL)

    def test_deep_copies(self) -> None:
        """Nothing of a deep copy is shared."""
        kept = Encoded(POOL)
        other = copy.deepcopy(kept)
        other["metadata"]["labels"]["a"] = "c"
        self.assertEqual(kept["metadata"]["labels"], {"a": "b"})
