"""
Tests for :mod:`twisted_exec.auth.expression_cost`.
"""

from __future__ import annotations

import math
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.auth.expression_cost import Growth, growth_of
from twisted_exec.auth.expressions import MOST_COST


class GrowthTests(SynchronousTestCase):
    """Tests for :func:`growth_of`."""

    def test_linear(self) -> None:
        """Comparisons, and calls that read their values once."""
        for text in (
            "claims.sub == 'x' && claims.n > 4",
            "has(claims.a) && size(claims.b) < 3 && claims.?c.orValue('none') != ''",
            "claims.s.startsWith(claims.t) || 'a' in claims.roles",
            "claims.s.contains('x') ? claims.s.replace('a', 'b') : claims.s.split('@')[0]",
            "'a.map(x, y.matches(z))'  // claims.all(x, x)",
            "r\"\\\" + claims.s + '''it's .map('''",
        ):
            growth = growth_of(text)
            self.assertEqual((growth.loops, growth.squares, growth.pattern), (0, 0, 0), text)
            self.assertEqual(growth.bound({"claims": {"s": "x" * 100_000}}), 0, text)

    def test_loops(self) -> None:
        """Only loops in loops multiply."""
        for text, loops in (
            ("claims.l.all(x, x > 1) && claims.m.exists(y, y < 1)", 1),
            ("claims.l.all(x, claims.m.exists(y, y < x))", 2),
            ("claims.l.map(x, x + 1).filter(y, y.all(z, z))", 2),
            ("[claims.l.map ( x, {'a': x.map(y, y.filter(z, z)) })]", 3),
        ):
            self.assertEqual(growth_of(text), Growth(loops=loops), text)

    def test_squares(self) -> None:
        """Searches for what a user says, and unknown calls."""
        for text, squares in (
            ("claims.s.contains(claims.t)", 1),
            ("claims.s.replace('a', claims.s).replace('b', claims.s)", 2),
            ("claims.s.split(claims.t)", 1),
            ("claims.s.indexOf('a' + claims.t)", 1),
            ("newest(claims.s)", 1),
        ):
            self.assertEqual(growth_of(text).squares, squares, text)

    def test_patterns(self) -> None:
        """A pattern is known if it is a literal."""
        for text in (
            "claims.s.matches(claims.t)",
            "matches(claims.s, claims.t)",
            "matches('a', claims.t + 'b')",
            "claims.s.matches(('a'))",
            "claims.s.matches('a' + claims.t)",
            "claims.s.matches(string(claims.t))",
            "claims.s.matches(claims.l['a'])",
            "claims.l.exists(x, claims.s.matches(x))",
            "claims.s . matches // no literal\n ( x )",
        ):
            self.assertEqual(growth_of(text).pattern, math.inf, text)
            self.assertEqual(growth_of(text).bound({}), math.inf, text)
        for text in ("claims.s.matches('^[a-z]+$')", 'matches(claims.s, r"^\\d{3}$")'):
            self.assertLess(growth_of(text).pattern, 50, text)
        self.assertGreater(growth_of(r"claims.s.matches('\\pL{190}')").pattern, 30_000)


class BoundTests(SynchronousTestCase):
    """Tests for :meth:`Growth.bound`: evaluations that take place at once, and those that do not."""

    def bound(self, text: str, claims: Any) -> float:
        return growth_of(text).bound({"claims": claims})

    def test_ordinary(self) -> None:
        """What people write, about tokens as providers issue them."""
        claims = {
            "sub": "jane",
            "email": "jane@example.org",
            "groups": [f"/staff/team-{number}" for number in range(100)],
            "roles": "a,b,c",
        }
        for text in (
            "'oidc:' + claims.sub",
            "claims.email.split('@')[0]",
            "claims.roles.split(',').filter(x, x != 'a')",
            "claims.groups.filter(g, g.startsWith('/staff/')).map(g, g.substring(7))",
            "claims.email.matches('^[a-z0-9._-]{1,64}@example[.]org$')",
        ):
            self.assertLess(self.bound(text, claims), MOST_COST, text)

    def test_hostile(self) -> None:
        """What took seconds, or gigabytes."""
        many, long = ["a" * 20] * 1000, "a" * 20_000
        for text, claims in (
            ("claims.l.all(x, !claims.s.matches(x))", {"l": [r"\pL{190}"] * 400, "s": "y"}),
            ("claims.l.map(x, claims.s + x)", {"l": many, "s": long}),
            ("claims.l.all(x, claims.l.all(y, x != y + '!'))", {"l": many}),
            ("claims.s.replace('a', claims.s)", {"s": long}),
            ("claims.s.split('').map(x, claims.s)", {"s": long}),
            ("claims.s.matches('\\\\pL{190}')", {"s": "y"}),
        ):
            self.assertGreater(self.bound(text, claims), MOST_COST, text)

    def test_counting(self) -> None:
        """Very many values are not counted, and nor is their depth a matter."""
        deep: list[Any] = []
        for _ in range(5000):
            deep = [deep]
        self.assertLess(self.bound("claims.all(x, true)", deep), MOST_COST)
        self.assertEqual(self.bound("claims.all(x, true)", [1] * 100_000), math.inf)
