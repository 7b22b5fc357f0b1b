"""Tests for :mod:`twisted_exec.nodeserver.ownership`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import NotFound
from twisted_exec.nodeserver.ownership import Names

NAME = st.text("ab-", min_size=1, max_size=4)


def pod(namespace: str, name: str) -> dict[str, object]:
    return {"metadata": {"namespace": namespace, "name": name}}


class NamesTests(SynchronousTestCase):
    """Tests for :class:`Names`."""

    def test_as_they_are(self) -> None:
        """Without anything said, a leaf has the root's names."""
        self.assertEqual(Names().leaf(pod("shop", "web")), ("shop", "web"))
        self.assertEqual(Names().root("shop", "web"), ("shop", "web"))

    def test_translated(self) -> None:
        """Some namespaces are named; all others, and all Pods, get a prefix."""
        names = Names({"shop": "eu"}, "root-", "r1-")
        self.assertEqual(names.leaf(pod("shop", "web")), ("eu", "r1-web"))
        self.assertEqual(names.leaf(pod("lab", "web")), ("root-lab", "r1-web"))
        self.assertEqual(names.root("root-lab", "r1-web"), ("lab", "web"))
        self.assertEqual(names.root("eu", "r1-web"), ("shop", "web"))

    def test_nobody(self) -> None:
        """Other namespaces of the leaf have no counterpart in the root."""
        names = Names({"shop": "eu"}, "root-", "r1-")
        for namespace, name in (("lab", "r1-web"), ("root-lab", "web"), ("root-shop", "r1-web")):
            self.assertIsNone(names.root(namespace, name))

    def test_two_never_meet(self) -> None:
        """A namespace whose counterpart is taken is refused, and the message names the owner."""
        names = Names({"shop": "lab"})
        with self.assertRaises(NotFound) as caught:
            names.leaf(pod("lab", "web"))
        self.assertIn('there is that of "shop"', caught.exception.message)
        self.assertEqual(names.root("lab", "web"), ("shop", "web"))

    @given(
        st.dictionaries(NAME, NAME, max_size=3).filter(
            lambda mapping: len(set(mapping.values())) == len(mapping)
        ),
        st.sampled_from(["", "a", "a-"]),
        NAME,
        NAME,
    )
    def test_there_and_back(
        self, mapping: dict[str, str], prefix: str, first: str, two: str
    ) -> None:
        """Under any mapping, no two namespaces map to one, and each is found again."""
        names = Names(mapping, prefix)
        try:
            leaf = names.namespace(first)
        except NotFound:
            return
        self.assertEqual(names.root(leaf, "x"), (first, "x"))
        if first != two:
            try:
                self.assertNotEqual(names.namespace(two), leaf)
            except NotFound:
                pass
