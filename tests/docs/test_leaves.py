"""
Tests for ``docs/reference/leaves.rst`` and its example file.
"""

from __future__ import annotations

import re

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.kube.kubeconfig.loader import _OUTSIDE, MAX_INLINE_BYTES
from twisted_exec.kube.upstream import CONNECT_SECONDS
from twisted_exec.nodeserver import ownership
from twisted_exec.nodeserver.kubelet_api import streams
from twisted_exec.nodeserver.kubelet_api import streams as logs
from twisted_exec.nodeserver.leaves.file import LOOK_SECONDS, load
from twisted_exec.nodeserver.leaves.leaf import ASK_SECONDS
from twisted_exec.nodeserver.root_pods import MAX_NODE_WATCHES
from twisted_exec.program.config_file import Reader

from . import pages

EXAMPLE = str(pages.DOCS / "howto" / "leaves.yaml")


class LeavesPageTests(SynchronousTestCase):
    """The page documents the keys of the file, and its limits are the real ones."""

    def setUp(self) -> None:
        self.page = pages.page("reference/leaves")

    def keys(self, title: str) -> set[str]:
        return {
            key
            for cell in pages.first_column(pages.table(self.page, title))
            for key in cell.split(", ")
        }

    def test_keys(self) -> None:
        """The tables list exactly the keys that are read."""
        read: dict[str, set[str]] = {}
        done = Reader.done

        def note(reader: Reader) -> None:
            read[reader.where] = set(reader.keys)
            done(reader)

        self.patch(Reader, "done", note)
        load(EXAMPLE)
        for title, ending in (
            ("Keys of a leaf", r"leaves\[1\] \(paris\)"),
            ("Keys of a node", r"nodes\[2\]"),
        ):
            (expected,) = (keys for where, keys in read.items() if re.search(f"{ending}$", where))
            self.assertEqual(self.keys(title), expected)
        kubeconfigs = [keys for where, keys in read.items() if where.endswith("kubeconfig")]
        self.assertEqual(self.keys("Keys of a kubeconfig"), set().union(*kubeconfigs))

    def test_example(self) -> None:
        """The example file is valid and uses every key."""
        berlin, paris = load(EXAMPLE)
        self.assertEqual([node.mode for node in paris.nodes], ["cluster", "node", "party"])
        self.assertEqual(paris.names.namespace("lab"), "root-lab")
        self.assertEqual((berlin.nodes[0].name, berlin.policy), ("berlin", ownership.OWNED))
        text = (pages.DOCS / "howto" / "leaves.yaml").read_text()
        for title in ("Keys of a leaf", "Keys of a kubeconfig", "Keys of a node"):
            for key in self.keys(title):
                self.assertIn(f"{key}:", text)

    def test_marks(self) -> None:
        """Labels, annotations and limits on the page are those of the code."""
        for word in (
            ownership.ROOT_LABEL,
            ownership.UID,
            ownership.KOSMOS_LABEL,
            *ownership.POLICIES,
        ):
            self.assertIn(word, self.page)
        for key in ("exec", "auth-provider", "tokenFile"):
            self.assertIn(key, _OUTSIDE)
            self.assertIn(f"``{key}``", self.page)
        self.assertIn(f"more than {MAX_INLINE_BYTES >> 10} KiB", self.page)
        self.assertIn(f"within {ASK_SECONDS:g} seconds", self.page)
        self.assertIn(f"Up to {MAX_NODE_WATCHES} Nodes", self.page)
        self.assertEqual(LOOK_SECONDS, 2)
        self.assertIn("every two seconds", self.page)

    def test_frozen_leaf(self) -> None:
        """The time limits for requests to a leaf are the same on all pages."""
        self.assertEqual(ASK_SECONDS, CONNECT_SECONDS)
        self.assertEqual(streams.ANSWER_SECONDS, logs.ANSWER_SECONDS)
        for name in ("nodeserver", "nodeserver-pages"):
            page = " ".join(pages.page(f"reference/{name}").split())
            connection = "the leaf accepts no connection, TLS included, "
            self.assertIn(f"{connection}within {CONNECT_SECONDS:g} seconds", page)
            answer = f"answer the request within {streams.ANSWER_SECONDS:g} seconds"
            self.assertIn(answer, page)
