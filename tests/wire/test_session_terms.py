"""Tests for :mod:`twisted_exec.wire.session_terms`."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.session_terms import (
    FULL,
    Right,
    Terms,
    parse_recording,
    parse_terms,
    stricter,
)

_NUMBERS = st.integers(0, 10**12 - 1)
_TERMS = st.builds(
    Terms,
    right=st.sampled_from(Right),
    people=st.integers(1, 10),
    viewers=_NUMBERS,
    idle_seconds=_NUMBERS,
    until=_NUMBERS,
    policy=st.sampled_from(["", "default/night", "a/b, c/d"]),
    recording=st.sampled_from(["", "u-1/none", "u-1/all", "u-2/masked", "u-2/all"]),
    input_rate=_NUMBERS,
    yields=st.booleans(),
)


class TermsTests(SynchronousTestCase):
    """Terms between hops."""

    def test_text(self) -> None:
        """Only what restricts is named."""
        self.assertEqual(FULL.text(), "")
        self.assertEqual(Terms(right=Right.OBSERVE).text(), "right=observe")
        terms = Terms(
            Right.DRIVE, 2, 3, 600, 1_800_000_000, "default/night", "u-1/masked", 50, True
        )
        self.assertEqual(
            terms.text(),
            "right=drive&people=2&viewers=3&idle_seconds=600&until=1800000000"
            "&policy=default%2Fnight&recording=u-1%2Fmasked&input_rate=50&yields=1",
        )

    def test_rule(self) -> None:
        """Messages name the policies."""
        for policy, start in (
            ("", "the policy of this console allows"),
            ("a/x", "ConsolePolicy a/x allows"),
            ("a/x, a/y", "ConsolePolicies a/x, a/y allow"),
        ):
            self.assertEqual(Terms(policy=policy).rule("allow", "until"), start)

    def test_rule_of_one_of_several(self) -> None:
        """A message names the policy that demands its term, and all that demand others only if they are not known."""
        both = stricter(
            Terms(people=2, idle_seconds=60, policy="a/x"),
            Terms(people=2, viewers=1, idle_seconds=50, policy="a/y"),
        )
        text = "people=2&policy=a%2Fx&viewers=1&idle_seconds=50&policy=a%2Fy"
        self.assertEqual(both.text(), text)
        asked = stricter(both, Terms(Right.DRIVE, until=9, policy="a/z"))
        asked = stricter(replace(asked, recording="u/all"), Terms(viewers=3))
        for terms in (asked, parse_terms(asked.text())):
            for term, start in (
                ("people", "ConsolePolicy a/x needs"),
                ("viewers", "ConsolePolicy a/y needs"),
                ("idle_seconds", "ConsolePolicy a/y needs"),
                ("until", "ConsolePolicy a/z needs"),
                ("recording", "ConsolePolicies a/x, a/y, a/z need"),
            ):
                self.assertEqual(terms.rule("need", term), start)
        old = parse_terms("people=2&viewers=1&policy=a%2Fx%2C+a%2Fy")  # of release 0.2.0
        self.assertEqual(old.rule("need", "people"), "ConsolePolicies a/x, a/y need")
        more = replace(both, policy="a/u, a/v, a/w and 2 more")
        self.assertEqual(parse_terms(more.text()), replace(more, sources=()))

    @given(_TERMS)
    def test_parsed(self, terms: Terms) -> None:
        """What one hop writes another one reads."""
        self.assertEqual(parse_terms(terms.text()), terms)

    @given(_TERMS, _TERMS, _TERMS)
    def test_parsed_sources(self, one: Terms, other: Terms, third: Terms) -> None:
        """Another hop reads the same terms of several policies, and names no other policy for a term."""
        terms = stricter(stricter(one, replace(other, policy="e/f")), third)
        read = parse_terms(terms.text())
        self.assertEqual(replace(read, sources=()), replace(terms, sources=()))
        for term in ("people", "viewers", "idle_seconds", "until", "input_rate", "yields"):
            self.assertIn(read.policy_of(term), (terms.policy_of(term), terms.policy))

    @given(_TERMS, _TERMS)
    def test_stricter(self, one: Terms, other: Terms) -> None:
        """The stricter terms allow nothing that one of both does not allow."""
        both = stricter(one, other)
        for terms in (one, other):
            self.assertLessEqual(both.right, terms.right)
            self.assertGreaterEqual(both.people, terms.people)
            self.assertGreaterEqual(both.yields, terms.yields)
            for name in ("viewers", "idle_seconds", "until", "input_rate"):
                if getattr(terms, name):
                    self.assertTrue(0 < getattr(both, name) <= getattr(terms, name))
            self.assertTrue(both.satisfy(terms))
        self.assertEqual(
            one.satisfy(other),
            both == replace(one, policy=both.policy, sources=both.sources),
        )
        self.assertEqual(stricter(one, one), one)
        self.assertEqual(stricter(one, FULL), one)

    def test_repeated(self) -> None:
        """Of a repeated term the stricter one counts."""
        terms = parse_terms("right=observe&right=takeover&viewers=3&viewers=0")
        self.assertEqual(terms, Terms(Right.OBSERVE, viewers=3))

    def test_recording(self) -> None:
        """Of two recordings the one with more input counts."""
        for one, other, both in (
            ("", "u/none", "u/none"),
            ("u/none", "u/masked", "u/masked"),
            ("u/all", "v/masked", "u/all"),
            ("u/all", "v/all", "u/all"),
        ):
            terms = stricter(Terms(recording=one), Terms(recording=other))
            self.assertEqual(terms.recording, both)
        self.assertEqual(parse_recording("u/masked"), ("u", "masked"))
        self.assertFalse(FULL.satisfy(Terms(recording="u/none")))
        self.assertFalse(Terms(recording="u/masked").satisfy(Terms(recording="u/all")))

    def test_policy(self) -> None:
        """The name of a policy restricts nothing by itself."""
        self.assertTrue(FULL.satisfy(Terms(policy="a/b")))
        self.assertFalse(FULL.satisfy(Terms(people=2)))

    def test_refused(self) -> None:
        """Terms that cannot be enforced are no terms."""
        for text in (
            "right",
            "right=",
            "right=Observe",
            "right=4",
            "unheard=yes",
            "recording=yes",
            "recording=u/some",
            "recording=a%20b/all",
            "recording=/all",
            "people=-1",
            "people=two",
            "until=1e9",
            "viewers=9999999999999",
            "policy=a%0ab",
            "policy=" + "x" * 2000,
            "&".join(["policy=a/b"] * 200),
            "&",
        ):
            with self.assertRaises(RemoteProtocolError, msg=text):
                parse_terms(text)
