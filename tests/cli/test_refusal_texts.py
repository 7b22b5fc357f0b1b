"""
Tests for :mod:`twisted_exec.cli.refusal_texts`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.obstacles import Obstacle
from twisted_exec.cli.refusal_texts import (
    DENIED,
    KUBE_APISERVER,
    RELEASE_0_2_0,
    TEXTS,
    obstacles_in,
)

CAPTURED = json.loads((Path(__file__).parents[1] / "captures/refusals.json").read_text())


class CapturedTests(SynchronousTestCase):
    """Texts that programs sent (``tests/interop/refusals.py``)."""

    def test_rows(self) -> None:
        """Each row has a captured text of each of its peers, unless it names its source."""
        for known in TEXTS:
            for peer in known.peers:
                texts = [text for text in CAPTURED[peer] if re.search(known.pattern, text)]
                self.assertEqual(bool(texts), not known.source, known)

    def test_texts(self) -> None:
        """Each captured text tells of an obstacle, or of a right that the user lacks."""
        for texts in CAPTURED.values():
            for text in texts:
                self.assertTrue(obstacles_in(text) or DENIED.search(text), text)

    def test_hops(self) -> None:
        """A text about a connection tells which hop failed, and why."""
        (closed,) = CAPTURED["ironcore-apiserver 0.5.0"]
        self.assertEqual(
            obstacles_in(closed), (Obstacle.POOLLET_FAILED, Obstacle.CONNECTION_REFUSED)
        )

    def test_denied(self) -> None:
        """kube-apiserver and release 0.2.0 name the missing right in the same words."""
        (foreign,) = (DENIED.search(text) for text in CAPTURED[KUBE_APISERVER])
        (ours,) = filter(None, (DENIED.search(text) for text in CAPTURED[RELEASE_0_2_0]))
        assert foreign is not None
        self.assertEqual((foreign["verb"], ours["verb"]), ("get", "create"))
        for part in ("user", "kind", "subresource", "group", "namespace"):
            self.assertEqual(foreign[part], ours[part])
        self.assertEqual(ours["subresource"], "exec")
