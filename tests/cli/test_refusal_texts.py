"""
Tests for :mod:`twisted_exec.cli.refusal_texts`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.missing_right import MissingRight
from twisted_exec.api.obstacles import Obstacle
from twisted_exec.api.status import Forbidden, NotFound
from twisted_exec.cli.refusal_texts import (
    DENIED,
    KUBE_APISERVER,
    RELEASE_0_2_0,
    TEXTS,
    lacking_right,
    obstacles_in,
    with_next_request,
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
        for part in ("user", "resource", "subresource", "group", "namespace"):
            self.assertEqual(foreign[part], ours[part])
        self.assertEqual(ours["subresource"], "exec")


class NextRequestTests(SynchronousTestCase):
    """A refusal that asks for the role of the next request, which includes that of the refused."""

    def test_cause(self) -> None:
        """The right of a cause is replaced, and the server's own remedy is left out."""
        right = MissingRight("ann", "get", "example.org", "requests", "", "lab")
        remedy = "ask for the role reader"
        message = f"ann may not: {remedy}"
        refusal = Forbidden(message, details={"causes": [right.cause(message, remedy)]})
        found = lacking_right(with_next_request(refusal, "patch", "approval"))
        self.assertEqual(
            found, MissingRight("ann", "patch", "example.org", "requests", "approval", "lab")
        )
        self.assertEqual(refusal.message, "ann may not")

    def test_text(self) -> None:
        """The right that another server names in words is replaced, too."""
        refusal = Forbidden(CAPTURED[KUBE_APISERVER][0])
        found = lacking_right(with_next_request(refusal, "get", "content"))
        assert found is not None
        self.assertEqual((found.verb, found.subresource), ("get", "content"))

    def test_other(self) -> None:
        """A refusal for another reason stays as it is."""
        self.assertIsNone(lacking_right(with_next_request(NotFound("requests", "a"), "get", "")))
