"""Tests for :mod:`twisted_exec.kube.kubeconfig.documents`: untrusted kubeconfigs."""

from __future__ import annotations

import json
from itertools import product

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests.linear import assert_linear
from twisted_exec.api.yaml_reader import parse_yaml
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.kubeconfig.documents import OTHERS
from twisted_exec.kube.kubeconfig.loader import MAX_INLINE_BYTES, check_inline, load_inline

HEAD = b"""
clusters: [{name: a, cluster: {server: 'https://api.example'}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
"""
USER = b"users: [{name: a, user: {token: t0ken}}]\n"
BOMB = b"x0: &x0 [a,a,a,a,a,a,a,a,a,a]\n" + b"".join(
    b"x%d: &x%d [%s]\n" % (number, number, b",".join([b"*x%d" % (number - 1)] * 10))
    for number in range(1, 9)
)
MERGED = b"m0: &m0 {a0: 1}\n" + b"".join(
    b"m%d: &m%d {<<: [%s], a%d: 1}\n"
    % (number, number, b",".join([b"*m%d" % (number - 1)] * 9), number)
    for number in range(1, 9)
)


class OthersTests(SynchronousTestCase):
    """Any input loads quickly or fails with one line."""

    def refusal(self, content: bytes) -> str:
        with self.assertRaises(KubeConfigError) as caught:
            load_inline(content, "secret a/b", environ={})
        return str(caught.exception)

    def test_plain(self) -> None:
        """Unknown keys of any YAML type are ignored."""
        more = b"preferences: {colors: true}\nextensions: ~\nsince: 2026-01-01\nnumber: 12\n"
        self.assertEqual(load_inline(HEAD + USER + more, "it", environ={}).token, "t0ken")

    def test_bombs(self) -> None:
        """
        Aliases are refused, because they expand to gigabytes: in values, in ``kind`` and in merges.
        """
        told = "aliases (*) are not accepted; write the values out"
        for bomb in (
            BOMB + HEAD + b"users: [{name: a, user: {token: t, more: *x8}}]",
            BOMB + HEAD + USER + b"kind: *x8\n",
            MERGED + HEAD + USER,
            HEAD + b"users: [{name: a, user: &it {token: t, more: *it}}]",
        ):
            self.assertIn(told, self.refusal(bomb))

    def test_many(self) -> None:
        """A quarter of a megabyte of commas or entries is handled in time."""
        flow = b"a: [" + b"1," * ((MAX_INLINE_BYTES - 1000) // 2) + b"1]"
        self.assertIn(f"more than {OTHERS.values} keys and values", self.refusal(HEAD + flow))
        users = [{"name": str(number)} for number in range(15_000)]
        document = {**yaml.safe_load(HEAD), "users": users}
        content = json.dumps(document, separators=(",", ":")).encode()
        self.assertIn('no user "a"', self.refusal(content))

    def test_deep(self) -> None:
        """Deep nesting is refused before it exhausts the stack."""
        self.assertIn(
            f"more than {OTHERS.depth} levels deep", self.refusal(b"a: " + b"[" * 100_000)
        )
        self.assertIn("nested too deep", self.refusal(b'{"a": ' + b"[" * 100_000))
        with self.assertRaisesRegex(
            ValueError, "^nested more than 64 levels deep, which is the limit"
        ):
            parse_yaml(b"a: " + b"[" * 100 + b"]" * 100)

    def test_numbers(self) -> None:
        """Sexagesimal numbers, and other odd scalars, stay text and cost no time."""
        more = b"a: " + b"1:" * 120_000 + b"1.5\nb: 0x" + b"9" * 9000 + b"\nc: 2001-99-99\n"
        self.assertEqual(load_inline(HEAD + USER + more, "it", environ={}).token, "t0ken")

    def test_costs(self) -> None:
        """Directives, numbers of base 60 and long text cost as much as comments of their size."""
        handles = ["".join(each) for each in product("abcdefghijklmnopqrstuvwxyz", repeat=3)]

        def read(content: bytes) -> None:
            try:
                load_inline(content, "it", environ={})
            except KubeConfigError:
                pass

        for hostile in (
            lambda size: "".join(f"%TAG !{each}! a\n" for each in handles[: size // 13]) + "--- a",
            lambda size: "a: !!int '" + "1:" * (size // 2) + "1'",
            lambda size: "a: " + "1:" * (size // 2) + "1",
        ):
            # The comments are part of the cost, so a refusal at the start is no small number.
            assert_linear(
                lambda size, of=hostile: read(("# a\n" * size + of(size)).encode()), 50_000
            )

    def test_tags(self) -> None:
        """YAML tags for Python objects are refused."""
        told = self.refusal(HEAD + b"users: !!python/object/apply:os.system [id]\n")
        self.assertIn("line 5: the tag !!python/object/apply", told)

    def test_kind(self) -> None:
        """The error for a wrong ``kind`` is short."""
        self.assertEqual(
            self.refusal(b"kind: [Config]"), "secret a/b: not a kubeconfig: its kind is no text"
        )
        self.assertLess(len(self.refusal(b"kind: " + b"x" * 9000)), 200)

    def test_empty(self) -> None:
        """An empty kubeconfig is refused."""
        with self.assertRaises(KubeConfigError):
            check_inline(b"", "it")
