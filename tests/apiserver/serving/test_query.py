"""
Tests for :mod:`twisted_exec.apiserver.serving.query`: any text at all.
"""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as some
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import BadRequest, Invalid, NotAcceptable
from twisted_exec.apiserver.serving.query import (
    Query,
    accepted,
    continue_token,
    list_options,
    media_ranges,
    read_continue,
    watch_options,
)

_NAMES = some.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
_VALUES = some.one_of(
    some.sampled_from([b"", b"0", b"1", b"true", b"false", b"-1", b"Exact", b"NotOlderThan"]),
    some.binary(max_size=30),
)
_OPTIONS = [
    b"resourceVersion",
    b"resourceVersionMatch",
    b"sendInitialEvents",
    b"allowWatchBookmarks",
    b"limit",
    b"continue",
    b"timeoutSeconds",
    b"labelSelector",
    b"fieldSelector",
]
_QUERIES = some.dictionaries(some.sampled_from(_OPTIONS), some.lists(_VALUES, min_size=1))


class MediaRangesTests(SynchronousTestCase):
    """Tests for :func:`media_ranges`."""

    def test_order(self) -> None:
        """Weights count first, then types before wildcards, then the order of the header."""
        for accept, expected in (
            ("a/a, b/b", ["a/a", "b/b"]),
            ("*/*, a/*, a/b", ["a/b", "a/*", "*/*"]),
            ("a/a;q=0.5, b/b;q=0.9, */*", ["*/*", "b/b", "a/a"]),
            ("a/a;q=high, b/b;q=nan, c/c;q=2", ["a/a", "b/b", "c/c"]),
            ("", ["application/json"]),
        ):
            self.assertEqual([media for media, _ in media_ranges(accept)], expected)


class AnythingTests(SynchronousTestCase):
    """Every query is either parsed or refused."""

    @given(_QUERIES)
    def test_queries(self, query: dict[bytes, list[bytes]]) -> None:
        """Of lists and of watches."""
        with contextlib.suppress(BadRequest, Invalid):
            options = list_options(Query(query))
            self.assertTrue(options.limit >= 0 and options.at_least >= 0)
            self.assertFalse(options.version is not None and options.at_least)
        with contextlib.suppress(BadRequest, Invalid, NotAcceptable):
            watch = watch_options(Query(query), accepted(""))
            self.assertTrue(0 < watch.seconds <= 3600)
            self.assertTrue(watch.version >= 0)
            self.assertFalse(watch.announce and not watch.bookmarks)

    @given(some.text())
    def test_tokens(self, token: str) -> None:
        """Continue tokens that are none."""
        with contextlib.suppress(BadRequest):
            read_continue(token)

    @given(some.integers(1, 2**64 - 1), some.one_of(some.just(""), _NAMES), _NAMES)
    def test_token_and_back(self, version: int, namespace: str, name: str) -> None:
        """A token decodes to what it was made from."""
        token = continue_token(version, (namespace, name))
        self.assertEqual(read_continue(token), (version, (namespace, name)))

    @given(some.text(max_size=200), some.text(max_size=10))
    def test_accept(self, accept: str, include: str) -> None:
        """Forms that there are not."""
        with contextlib.suppress(BadRequest, NotAcceptable):
            accepted(accept, include)
