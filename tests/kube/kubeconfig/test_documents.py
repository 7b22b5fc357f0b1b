"""Tests for :mod:`twisted_exec.kube.kubeconfig.documents`: untrusted kubeconfigs."""

from __future__ import annotations

import json
from collections.abc import Callable

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests.linear import assert_linear
from twisted_exec.api.yaml_text import parse_yaml
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.kubeconfig.documents import MAX_DEPTH, MAX_VALUES
from twisted_exec.kube.kubeconfig.loader import MAX_INLINE_BYTES, check_inline, load_inline

HEAD = b"""
clusters: [{name: a, cluster: {server: 'https://api.example'}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
"""
USER = b"users: [{name: a, user: {token: t0ken}}]\n"


def bomb(levels: int) -> bytes:
    """Return lists of lists by aliases: with their aliases expanded, each is ten times as large."""
    return b"x0: &x0 [a,a,a,a,a,a,a,a,a,a]\n" + b"".join(
        b"x%d: &x%d [%s]\n" % (number, number, b",".join([b"*x%d" % (number - 1)] * 10))
        for number in range(1, levels + 1)
    )


def merged(levels: int) -> bytes:
    """Return the same of merged mappings."""
    return b"m0: &m0 {a0: 1}\n" + b"".join(
        b"m%d: &m%d {<<: [%s], a%d: 1}\n"
        % (number, number, b",".join([b"*m%d" % (number - 1)] * 9), number)
        for number in range(1, levels + 1)
    )


class OthersTests(SynchronousTestCase):
    """Any input loads in linear time or fails with one line."""

    def refusal(self, content: bytes) -> str:
        with self.assertRaises(KubeConfigError) as caught:
            load_inline(content, "secret a/b", environ={})
        return str(caught.exception)

    def refused(self, told: str, content: Callable[[int], bytes], size: int) -> None:
        """Check that contents of any size are refused, in linear time."""
        assert_linear(lambda size: self.assertIn(told, self.refusal(content(size))), size)

    def test_plain(self) -> None:
        """Unknown keys of any YAML type are ignored."""
        more = b"preferences: {colors: true}\nextensions: ~\nsince: 2026-01-01\nnumber: 12\n"
        self.assertEqual(load_inline(HEAD + USER + more, "it", environ={}).token, "t0ken")

    def test_bombs(self) -> None:
        """
        Aliases are refused, because they expand to gigabytes: in values, in ``kind`` and in merges.
        """
        told = "secret a/b: it has aliases (*), which are not taken from here; write them out"
        for content in (
            lambda size: bomb(size) + HEAD + b"users: [{name: a, user: {more: *x%d}}]" % size,
            lambda size: bomb(size) + HEAD + USER + b"kind: *x%d\n" % size,
            lambda size: merged(size) + HEAD + USER,
        ):
            self.refused(told, content, 1)
            self.assertEqual(self.refusal(content(8)), told)
        itself = HEAD + b"users: [{name: a, user: &it {token: t, more: *it}}]"
        self.assertEqual(self.refusal(itself), told)

    def test_many(self) -> None:
        """A quarter of a megabyte of commas or entries is handled in linear time."""

        def commas(size: int) -> bytes:
            return HEAD + b"a: [" + b"1," * size + b"1]"

        def entries(size: int) -> bytes:
            users = [{"name": str(number)} for number in range(size)]
            document = {**yaml.safe_load(HEAD), "users": users}
            return json.dumps(document, separators=(",", ":")).encode()

        most = (MAX_INLINE_BYTES - 1000) // 2
        self.refused(f"more than {MAX_VALUES} keys and values", commas, most // 4)
        self.refused('no user "a"', entries, 3750)

    def test_deep(self) -> None:
        """Deep nesting is refused before it exhausts the stack."""
        told = f"more than {MAX_DEPTH} levels deep"
        self.refused(told, lambda size: b"a: " + b"[" * size, 25_000)
        self.refused("nested too deep", lambda size: b'{"a": ' + b"[" * size, 25_000)
        with self.assertRaisesRegex(
            ValueError, "^nested more than 64 levels deep, which is the limit"
        ):
            parse_yaml(b"a: " + b"[" * 100 + b"]" * 100)

    def test_numbers(self) -> None:
        """Sexagesimal numbers, and other odd scalars, stay text and cost no time."""

        def load(size: int) -> None:
            more = b"a: " + b"1:" * size + b"1.5\nb: 0x" + b"9" * size + b"\nc: 2001-99-99\n"
            self.assertEqual(load_inline(HEAD + USER + more, "it", environ={}).token, "t0ken")

        assert_linear(load, 20_000)

    def test_tags(self) -> None:
        """YAML tags for Python objects are refused."""
        told = self.refusal(HEAD + b"users: !!python/object/apply:os.system [id]\n")
        self.assertIn("it has tags (!)", told)

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
