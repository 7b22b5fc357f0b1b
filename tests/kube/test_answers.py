"""Tests for :mod:`twisted_exec.kube.answers`."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.linear import assert_linear
from tests.retained import instances
from twisted_exec.api.status import APIError
from twisted_exec.kube.answers import MAX_DEPTH, TooManyValues, WatchEvents, cut, loads, object_of

TEXT = 'a "quoted" [{ \\ thing'


def nested(levels: int) -> bytes:
    return b'{"a":' * levels + b'["x}"]' + b"}" * levels


class ObjectTests(SynchronousTestCase):
    """Tests for :func:`object_of`."""

    def test_retry_after(self) -> None:
        """A Retry-After that is no number counts as none, also one of superscript digits."""
        for text, seconds in (("7", 7), ("\xb2", None), ("soon", None)):
            with self.assertRaises(APIError) as caught:
                object_of(429, {"retry-after": text}, b"")
            self.assertEqual(caught.exception.retry_after_seconds, seconds)


class LoadsTests(SynchronousTestCase):
    """A deeply nested object does not prevent reading the others."""

    def test_others(self) -> None:
        """
        Objects before and after a deep one are read unchanged; the deep one is cut at MAX_DEPTH.
        """
        one = json.dumps({"told": TEXT, "more": [1, {"b": None}]}).encode()
        found = loads(b'{"items": [' + one + b"," + nested(5000) + b"," + one + b"]}")
        self.assertEqual(found["items"][0], json.loads(one))
        self.assertEqual(found["items"][2], json.loads(one))
        depth, inner = 2, found["items"][1]
        while inner is not None:
            depth, inner = depth + 1, inner["a"]
        self.assertEqual(depth, MAX_DEPTH)

    def test_as_deep_as_can_be_read(self) -> None:
        """Nesting that Python can parse is not cut."""
        whole = nested(MAX_DEPTH + 200)
        self.assertEqual(loads(whole), json.loads(whole))

    def test_bad(self) -> None:
        """Invalid JSON raises ValueError in linear time."""
        for levels, text in ((b"[", b""), (b"", b'"\\'), (b"[", b'"\\'), (b"]", b"")):

            def load(size: int, levels: bytes = levels, text: bytes = text) -> None:
                self.assertRaises(ValueError, loads, levels * size + text * size)

            assert_linear(load, 2500, (levels, text))

    def test_many_values(self) -> None:
        """More values than the limit are refused before they are parsed."""
        for form in (b"[%s1]", b"{%s1"):
            self.assertRaises(TooManyValues, loads, form % (b"1," * 99), 99)
        self.assertEqual(loads(b"[%s1]" % (b"1," * 98), 99), [1] * 99)

    @settings(max_examples=100, deadline=None, database=None)
    @given(
        st.recursive(
            st.text() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
        )
    )
    def test_nothing_lost(self, value: object) -> None:
        """Shallow values are never cut."""
        content = json.dumps(value).encode()
        self.assertEqual(cut(content), content)


class WatchEventsTests(SynchronousTestCase):
    """Tests for :class:`WatchEvents`."""

    def test_small_parts(self) -> None:
        """An event that arrives in small parts is read in linear time."""

        def read(count: int) -> None:
            names: list[str] = []
            events = WatchEvents(lambda _, obj: names.append(obj["metadata"]["name"]))
            events.receive(b'{"type": "ADDED", "object": {"metadata": {"name": "')
            for _ in range(count):
                events.receive(b"x" * 16)
            events.receive(b'"}}}\n')
            self.assertEqual([len(name) for name in names], [16 * count])

        assert_linear(read, 16_000)

    def test_smallest_parts(self) -> None:
        """An event that arrives in parts of two bytes takes no more memory than its bytes."""
        events = WatchEvents(lambda _, obj: None)
        for count in range(10_000):
            events.receive(b"%02d" % (count % 100))
        self.assertLess(len(instances(events, bytes)), 10)
