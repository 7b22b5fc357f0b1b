"""
Tests for :mod:`twisted_exec.api.logs`.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.http import parse_qs

from twisted_exec.api.logs import LogOptions, check, decode, follows, parse
from twisted_exec.api.status import APIError, BadRequest, Invalid

MOMENT = 1_795_150_800_123_456_789


def args(query: bytes) -> dict[bytes, list[bytes]]:
    """A query, as twisted.web reads it."""
    return parse_qs(query, keep_blank_values=True)


def options(query: str) -> LogOptions:
    return parse(args(query.encode()), "vm")


class ParseTests(SynchronousTestCase):
    """Options in a log request's query."""

    def refused(self, query: str, error: type[APIError]) -> APIError:
        with self.assertRaises(error) as caught:
            options(query)
        return caught.exception

    def test_nothing(self) -> None:
        """Without a query, the options ask for the whole log without following it."""
        self.assertEqual(options(""), LogOptions())
        self.assertEqual(options("").query(), b"")

    def test_kubectl(self) -> None:
        """The query of ``kubectl logs -f --tail --since --timestamps --limit-bytes`` is parsed."""
        self.assertEqual(
            options(
                "container=console&follow=true&limitBytes=100&sinceSeconds=60&tailLines=5"
                "&timestamps=true&insecureSkipTLSVerifyBackend=true&stream=All&unknown=x"
            ),
            LogOptions(
                follow=True, timestamps=True, since_seconds=60, tail_lines=5, limit_bytes=100
            ),
        )
        self.assertEqual(
            options("sinceTime=2026-11-20T05%3A00%3A00.123456789Z&stream=Stdout&container="),
            LogOptions(since_nanoseconds=MOMENT),
        )

    def test_flags(self) -> None:
        """Booleans are read as in Go's conversion: only ``false`` and ``0`` are false."""
        for text, flag in (("true", True), ("1", True), ("", True), ("FALSE", False), ("0", False)):
            self.assertEqual(options(f"follow={text}").follow, flag, text)
        self.assertEqual(options("previous=false"), LogOptions())

    def test_unreadable(self) -> None:
        """A value that cannot be parsed is a bad request with Go's message."""
        for query, told in (
            ("tailLines=x", 'strconv.ParseInt: parsing "x": invalid syntax'),
            ("tailLines=", 'strconv.ParseInt: parsing "": invalid syntax'),
            ("limitBytes=1e3", 'strconv.ParseInt: parsing "1e3": invalid syntax'),
            ("sinceSeconds=%D9%A1", 'strconv.ParseInt: parsing "\\u0661": invalid syntax'),
            (
                "tailLines=9223372036854775808",
                'strconv.ParseInt: parsing "9223372036854775808": value out of range',
            ),
            (
                "sinceTime=yesterday",
                'parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": '
                'cannot parse "yesterday" as "2006"',
            ),
        ):
            self.assertEqual(self.refused(query, BadRequest).message, told)
        self.assertEqual(self.refused(f"tailLines={'9' * 9000}", BadRequest).code, 400)

    def test_invalid(self) -> None:
        """An invalid value is refused with its field, in kube-apiserver's words."""
        negative = self.refused("tailLines=-1", Invalid)
        self.assertEqual(
            (negative.code, negative.message),
            (
                422,
                'PodLogOptions "vm" is invalid: tailLines: Invalid value: -1: '
                "must be greater than or equal to 0",
            ),
        )
        for query, field in (
            ("limitBytes=0", "limitBytes"),
            ("sinceSeconds=0", "sinceSeconds"),
            ("stream=Stderr", "stream"),
        ):
            (cause,) = self.refused(query, Invalid).details["causes"]
            self.assertEqual(cause["field"], field)
        both = self.refused("sinceSeconds=1&sinceTime=2026-11-20T05:00:00Z", Invalid)
        self.assertEqual(
            both.message,
            'PodLogOptions "vm" is invalid: []: Forbidden: '
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        )
        self.assertEqual(
            len(self.refused("tailLines=-1&limitBytes=-1", Invalid).details["causes"]), 2
        )

    def test_containers(self) -> None:
        """Another container than the machine's console is a bad request."""
        other = self.refused("container=web%0A", BadRequest)
        self.assertTrue(other.message.startswith("container web\\n is not valid for machine vm"))

    def test_of_machines(self) -> None:
        """A machine has more options than a Pod, which drops them."""
        query = (
            "fromOffset=5&toOffset=9&epoch=0123456789abcdef&state=3&plain=true&frames=1"
            "&untilTime=2026-11-20T05%3A00%3A00.123456789Z"
        )
        expected = LogOptions(
            from_offset=5,
            to_offset=9,
            epoch="0123456789abcdef",
            state=3,
            plain=True,
            frames=True,
            until_nanoseconds=MOMENT,
        )
        self.assertEqual(options(query), expected)
        self.assertEqual(options("boot=-1"), LogOptions(boot=-1))
        self.assertEqual(options("previous=true"), LogOptions(previous=True))
        self.assertEqual(decode(args(query.encode())), LogOptions())

    def test_invalid_range(self) -> None:
        """Ranges that make no sense are refused with their field."""
        for query, field, told in (
            ("fromOffset=-1", "fromOffset", "must be greater than or equal to 0"),
            ("toOffset=-1", "toOffset", "must be greater than or equal to 0"),
            ("fromOffset=5&toOffset=4", "toOffset", "must not be less than fromOffset"),
            ("epoch=x", "epoch", "must be 16 hexadecimal digits"),
            ("state=-1", "state", "must be the state of a frame"),
            ("state=4294967296", "state", "must be the state of a frame"),
            ("boot=0&previous=true", "previous", "at most one of `boot` or `previous`"),
            ("boot=0&fromOffset=1", "fromOffset", "mutually exclusive"),
            ("previous=1&toOffset=1", "fromOffset", "mutually exclusive"),
            ("follow=true&toOffset=1", "follow", "omit `untilTime` and `toOffset`"),
            ("follow=true&untilTime=2026-11-20T05:00:00Z", "follow", "omit `untilTime`"),
            (
                "sinceTime=2026-11-20T05:00:00Z&untilTime=2026-11-20T04:00:00Z",
                "untilTime",
                "must not be before sinceTime",
            ),
        ):
            (cause,) = self.refused(query, Invalid).details["causes"]
            self.assertEqual(cause["field"], field, query)
            self.assertIn(told, cause["message"], query)
        for query in ("fromOffset=x", "boot=", "toOffset=1.5", "state=9" + "9" * 30):
            self.assertIn("strconv.ParseInt", self.refused(query, BadRequest).message, query)

    @given(
        st.builds(
            LogOptions,
            follow=st.booleans(),
            timestamps=st.booleans(),
            since_seconds=st.none() | st.integers(1, 10**9),
            tail_lines=st.none() | st.integers(0, 10**9),
            limit_bytes=st.none() | st.integers(1, 10**9),
        )
        | st.builds(LogOptions, since_nanoseconds=st.integers(0, 2 * 10**18))
        | st.builds(
            LogOptions,
            boot=st.none() | st.integers(-9, 9),
            plain=st.booleans(),
        )
        | st.builds(
            LogOptions,
            from_offset=st.integers(0, 2**62),
            to_offset=st.none() | st.integers(2**62, 2**63 - 1),
            until_nanoseconds=st.none() | st.integers(0, 2 * 10**18),
            epoch=st.none() | st.just("0123456789abcdef"),
            frames=st.booleans(),
            state=st.none() | st.integers(0, 2**32 - 1),
        )
    )
    def test_passed_on(self, told: LogOptions) -> None:
        """Options written as a query are read back unchanged."""
        self.assertEqual(parse(args(told.query()), "vm"), told)


class DecodeTests(SynchronousTestCase):
    """Queries that are decoded to be passed on."""

    def test_of_a_pod(self) -> None:
        """For a Pod, ``previous`` and ``stream`` are decoded and passed on."""
        told = decode(args(b"previous=true&stream=Stderr&tailLines=0"))
        self.assertEqual(told, LogOptions(previous=True, stream="Stderr", tail_lines=0))
        self.assertEqual(told.query(), b"previous=true&tailLines=0&stream=Stderr")
        check(told, "web", ("All", "Stdout", "Stderr"))

    def test_follows(self) -> None:
        """``follow`` can be read even if other parameters are invalid."""
        self.assertTrue(follows(args(b"follow=true&tailLines=many")))
        self.assertFalse(follows(args(b"follow=false")))
        self.assertFalse(follows({}))

    def test_names(self) -> None:
        """The error for an invalid value names the Pod and the fields."""
        with self.assertRaises(Invalid) as caught:
            check(decode(args(b"tailLines=-1&stream=Stdin")), "web", ("All", "Stdout"))
        self.assertIn('PodLogOptions "web" is invalid', caught.exception.message)
        self.assertIn("tailLines", caught.exception.message)
        self.assertIn("Stdin", caught.exception.message)
