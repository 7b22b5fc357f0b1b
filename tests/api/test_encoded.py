"""
Tests for :mod:`twisted_exec.api.encoded`.
"""

from __future__ import annotations

import copy
import json

from twisted.trial.unittest import SynchronousTestCase

from tests.retained import weight
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

    def test_metadata(self) -> None:
        """The JSON of the metadata is a part of that of the object, and takes no memory beside it."""
        kept = Encoded({"spec": {"metadata": {"name": "other"}}, **POOL})
        size = len(kept.json)
        before = weight(kept)
        for _ in range(2):
            self.assertEqual(json.loads(metadata_json_of(kept)), POOL["metadata"])
        self.assertEqual((weight(kept), len(kept.json)), (before, size))

    def test_metadata_in_another_layout(self) -> None:
        """Other programs may have written the JSON of the object with spaces."""
        kept = Encoded(POOL, json.dumps(POOL, indent=1))
        for _ in range(2):
            self.assertEqual(json.loads(metadata_json_of(kept)), POOL["metadata"])

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
