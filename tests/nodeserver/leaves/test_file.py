"""Tests for :mod:`twisted_exec.nodeserver.leaves.file`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests.docs import pages
from tests.kube.kubeconfig.test_loader import JSON, _paths, _replaced
from twisted_exec.nodeserver.leaves.file import LOOK_SECONDS, LeafFile, load, parse
from twisted_exec.nodeserver.leaves.spec import ISource, KubeconfigFile, KubeconfigSecret
from twisted_exec.nodeserver.ownership import Names
from twisted_exec.program.config_file import ConfigError

WHOLE = yaml.safe_load((pages.DOCS / "howto" / "leaves.yaml").read_text())
ONE: dict[str, Any] = {"name": "one", "kubeconfig": {"file": "one.kubeconfig"}}


class ParseTests(SynchronousTestCase):
    """Tests for :func:`parse`."""

    def one(self, **more: Any) -> Any:
        (spec,) = parse({"leaves": [ONE | more]}, "/etc/leaves.yaml")
        return spec

    def refusal(self, *leaves: Any, **document: Any) -> str:
        with self.assertRaises(ConfigError) as caught:
            parse({"leaves": list(leaves), **document}, "/l.yaml")
        self.assertNotIn("\n", str(caught.exception))
        return str(caught.exception).removeprefix("/l.yaml: ")

    def wrong(self, **more: Any) -> str:
        """Return the problem of a leaf with these fields."""
        return self.refusal(ONE | more).removeprefix("leaves[0] (one)")

    def test_least(self) -> None:
        """A name and a kubeconfig are enough: one Node of that name, Pods of ours."""
        spec = self.one()
        self.assertEqual((spec.name, spec.origin), ("one", "/etc/leaves.yaml: leaf one"))
        self.assertEqual(spec.kubeconfig, KubeconfigFile("/etc/one.kubeconfig"))
        (node,) = spec.nodes
        self.assertEqual((node.name, node.leaf, node.mode), ("one", "one", "cluster"))
        self.assertEqual((spec.policy, spec.kosmos, spec.names), ("owned", False, Names()))

    def test_secret(self) -> None:
        """A kubeconfig may be in a Secret of the root."""
        reference = {
            "secret": {"namespace": "leaves", "name": "one", "key": "value"},
            "context": "x",
        }
        self.assertEqual(
            self.one(kubeconfig=reference).kubeconfig,
            KubeconfigSecret("leaves", "one", "value", "x"),
        )

    def test_nodes(self) -> None:
        """A Node stands for the whole leaf, for one node under its own name, or for some."""
        whole, own, party, chosen = self.one(
            nodes=[
                {"name": "a"},
                {"name": "worker", "leaf_nodes": ["worker"]},
                {"name": "some", "leaf_nodes": ["w1", "w2"]},
                {
                    "name": "gpu",
                    "selector": {"gpu": "yes"},
                    "labels": {"zone": "b"},
                    "annotations": {"a/b": "c"},
                    "taints": [{"key": "leaf", "effect": "NoExecute"}],
                },
            ]
        ).nodes
        self.assertEqual(
            [each.mode for each in (whole, own, party, chosen)],
            ["cluster", "node", "party", "party"],
        )
        self.assertEqual(party.leaf_nodes, ("w1", "w2"))
        self.assertEqual(chosen.taints, ({"key": "leaf", "value": "", "effect": "NoExecute"},))
        self.assertEqual((chosen.labels, chosen.annotations), ({"zone": "b"}, {"a/b": "c"}))

    def test_names(self) -> None:
        """Namespaces and names are translated."""
        spec = self.one(namespaces={"shop": "eu"}, namespace_prefix="r-", name_prefix="r-")
        self.assertEqual(spec.names, Names({"shop": "eu"}, "r-", "r-"))

    def test_nothing(self) -> None:
        """A file without leaves is one: all of them are gone."""
        self.assertEqual(parse({"leaves": []}, "/l.yaml"), [])
        self.assertEqual(parse({}, "/l.yaml"), [])

    def test_unknown_keys(self) -> None:
        """Unknown fields are refused at every level, with similar names."""
        self.assertIn("unknown key 'leafs'", self.refusal(leafs=[]))
        self.assertEqual(
            self.wrong(namespace={}), ": unknown key 'namespace'; did you mean namespaces?"
        )
        kubeconfig = {"file": "x", "contxt": "y"}
        self.assertEqual(
            self.wrong(kubeconfig=kubeconfig),
            ": kubeconfig: unknown key 'contxt'; did you mean context?",
        )
        secret = {"namespace": "a", "name": "b", "keys": "c"}
        self.assertIn("did you mean key?", self.wrong(kubeconfig={"secret": secret}))
        self.assertIn("nodes[0]: unknown key 'x'", self.wrong(nodes=[{"name": "a", "x": 1}]))
        taint = {"key": "a", "efect": "NoSchedule"}
        self.assertIn("did you mean effect?", self.wrong(nodes=[{"name": "a", "taints": [taint]}]))

    def test_mistakes(self) -> None:
        """Invalid values are reported with their place and a remedy."""
        for more, message in (
            ({"kubeconfig": {}}, "give either file: PATH or secret: {namespace: ..., name: ...}"),
            (
                {"kubeconfig": {"file": "a", "secret": {"namespace": "a", "name": "b"}}},
                "give either file: PATH or secret",
            ),
            ({"kubeconfig": "one.kubeconfig"}, "kubeconfig must be a mapping"),
            ({"name": "One"}, "name: 'One': a lowercase RFC 1123 subdomain"),
            ({"nodes": []}, "nodes is empty; leave it out for one node with the leaf's name"),
            ({"nodes": [{"name": "a/b"}]}, "nodes[0]: name: 'a/b'"),
            (
                {"nodes": [{"name": "a", "leaf_nodes": ["b"], "selector": {"c": "d"}}]},
                "give leaf_nodes or selector, not both",
            ),
            ({"nodes": [{"name": "a", "leaf_nodes": [7]}]}, "leaf_nodes: 7: must be a string"),
            ({"nodes": [{"name": "a", "leaf_nodes": ["B"]}]}, "leaf_nodes: 'B': a lowercase"),
            ({"nodes": [{"name": "a", "labels": {"b": True}}]}, 'write "True"'),
            ({"nodes": [{"name": "a", "labels": {"b": "c d"}}]}, "labels: b='c d': a valid label"),
            (
                {"nodes": [{"name": "a", "taints": [{"key": "k", "effect": "Never"}]}]},
                "effect must be one of NoSchedule, PreferNoSchedule, NoExecute, not 'Never'",
            ),
            (
                {"namespaces": {"a": "x", "b": "x"}},
                "two lead to 'x'; each must have one of its own",
            ),
            ({"namespaces": {"a": 1}}, "namespaces: 1: must be a string"),
            ({"namespace_prefix": "A-"}, "namespace_prefix: 'A-'"),
            ({"name_prefix": "x" * 60}, "must be no more than 40 characters"),
            ({"pods": "all"}, "pods must be one of owned, same-name, machines, not 'all'"),
            ({"kosmos": "yes"}, "kosmos must be true or false, not 'yes'"),
        ):
            self.assertIn(message, self.refusal(ONE | more), more)

    @settings(max_examples=150, deadline=None, database=None)
    @given(path=st.sampled_from(_paths(WHOLE)), new=JSON)
    def test_any_part(self, path: tuple[Any, ...], new: Any) -> None:
        """Whatever a part contains, the result is leaves or one line."""
        try:
            parse(_replaced(WHOLE, path, new), "/l.yaml")
        except ConfigError as refused:
            self.assertNotIn("\n", str(refused))

    def test_twice(self) -> None:
        """Names of leaves and Nodes are unique."""
        self.assertEqual(self.refusal(ONE, ONE), "leaf 'one' is there more than once; rename one")
        two = ONE | {"name": "two", "nodes": [{"name": "one"}]}
        self.assertEqual(self.refusal(ONE, two), "node 'one' is there more than once; rename one")


class FileTestCase(SynchronousTestCase):
    """A file of the test's own."""

    def setUp(self) -> None:
        self.path = Path(self.mktemp()).absolute()

    def write(self, content: str) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_text(content)
        os.replace(fresh, self.path)

    def leaves(self, *names: str) -> None:
        self.write(yaml.safe_dump({"leaves": [ONE | {"name": name} for name in names]}))


class LoadTests(FileTestCase):
    """Tests for :func:`load`."""

    def refusal(self) -> str:
        with self.assertRaises(ConfigError) as caught:
            load(str(self.path))
        self.assertNotIn("\n", str(caught.exception))
        return str(caught.exception)

    def test_unusable(self) -> None:
        """An unreadable file, or invalid YAML, is reported in one line that names the file."""
        self.assertEqual(self.refusal(), f"cannot read {self.path}: No such file or directory")
        for content, message in (
            ("leaves: [", "not YAML: line "),
            ("[]", "must be a mapping"),
            ("", "must be a mapping"),
            ("leaves: !!python/object:os.system {}", "line 1: the tag !!python/"),
            ("#" * (5 << 20), "is larger than 4 MiB"),
        ):
            self.write(content)
            self.assertIn(message, self.refusal())

    def test_many(self) -> None:
        """A thousand leaves are read."""
        self.leaves(*(f"n{number}" for number in range(1000)))
        self.assertEqual(len(load(str(self.path))), 1000)


class LeafFileTests(FileTestCase):
    """Tests for :class:`LeafFile`."""

    def setUp(self) -> None:
        super().setUp()
        self.clock, self.told = Clock(), 0
        self.leaves("one")
        self.source = LeafFile(str(self.path), self.clock)
        self.source.start(self.note)
        self.addCleanup(lambda: self.successResultOf(self.source.stop()))

    def note(self) -> None:
        self.told += 1

    def names(self) -> list[str]:
        self.clock.advance(LOOK_SECONDS)
        return [spec.name for spec in self.source.specs()]

    def test_doors(self) -> None:
        """It is a source of leaves."""
        verifyObject(ISource, self.source)

    def test_changed(self) -> None:
        """New content applies soon; the same content causes no call."""
        self.assertEqual((self.names(), self.told), (["one"], 0))
        self.leaves("one", "two")
        self.assertEqual((self.names(), self.told), (["one", "two"], 1))

    def test_bad_content(self) -> None:
        """Invalid content leaves the old one in force, and is reported once."""
        logged: list[str] = []

        def observe(event: object) -> None:
            logged.append(formatEvent(event))  # type: ignore[arg-type]

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        for content in ("leaves: [", "leaves: ["):
            self.write(content)
            self.assertEqual((self.names(), self.told), (["one"], 0))
        warnings = [each for each in logged if "keeping the leaf clusters from before" in each]
        self.assertEqual(len(warnings), 1, warnings)
        self.assertIn("not YAML", self.source.problem)
        self.leaves("two")
        self.assertEqual((self.names(), self.told), (["two"], 1))
        self.assertEqual(self.source.problem, "")

    def test_gone(self) -> None:
        """A file that is gone, as while a volume is swapped, leaves the leaves as they are."""
        self.path.unlink()
        self.assertEqual(self.names(), ["one"])
        self.assertIn("cannot read", self.source.problem)

    def test_moved_in_the_file(self) -> None:
        """A leaf that moves to another place in the file is the same as before."""
        self.leaves("two", "one")
        before = self.source.specs()[0]
        self.names()
        self.assertEqual(self.source.specs()[1], before)

    def test_bad_from_the_start(self) -> None:
        """Without anything good before, a program does not start."""
        self.write("leaves: 7")
        self.assertRaises(ConfigError, LeafFile, str(self.path), self.clock)
