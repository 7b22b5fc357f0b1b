"""
Tests for :mod:`twisted_exec.api.names`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api import names


class NamesTests(SynchronousTestCase):
    """Each rule accepts valid values and reports errors for invalid ones."""

    def check(self, rule: object, good: list[str], bad: list[str]) -> None:
        assert callable(rule)
        for value in good:
            self.assertEqual(rule(value), [], value)
        for value in bad:
            self.assertNotEqual(rule(value), [], value)

    def test_dns_label(self) -> None:
        """Lower-case letters, digits and dashes inside, up to 63."""
        self.check(
            names.dns_label,
            ["a", "vm-1", "0", "a" * 63],
            ["", "-a", "a-", "A", "a.b", "a_b", "a" * 64, "ä", "a\n", "a/b"],
        )

    def test_dns_subdomain(self) -> None:
        """Labels joined by dots, up to 253."""
        self.check(
            names.dns_subdomain,
            ["a", "a.b-c.d", "1.2"],
            ["", ".a", "a.", "a..b", "A.b", "a" * 254, "a.b\n"],
        )

    def test_path_segment(self) -> None:
        """Colons and capitals are allowed; characters with a meaning in URL paths are not."""
        self.check(
            names.path_segment,
            ["system:basic-user", "A b"],
            [".", "..", "a/b", "a%b", "a\x00b", "a\nb"],
        )

    def test_qualified_name(self) -> None:
        """A name, perhaps behind a domain and a slash."""
        self.check(
            names.qualified_name,
            ["app", "A_b.c", "example.com/app"],
            ["", "/app", "example.com/", "a/b/c", "-a", "EXAMPLE.com/a", "a" * 64],
        )

    def test_label_value(self) -> None:
        """A label value may be empty."""
        self.check(names.label_value, ["", "A-b_c.1"], ["-", "a b", "a" * 64, "a\n"])

    def test_separate_checks(self) -> None:
        """A value that is only too long has no problem with its characters, and the reverse."""
        for rule, limit in (
            (names.dns_label, 63),
            (names.dns_subdomain, 253),
            (names.label_value, 63),
        ):
            too_long = [f"must be no more than {limit} characters"]
            self.assertEqual(rule("a" * (limit + 1)), too_long)
            self.assertEqual(rule("a" * 1_000_000), too_long)
            (pattern,) = rule("-")
            self.assertEqual(rule("-" * (limit + 1)), [*too_long, pattern])
        self.assertEqual(
            names.qualified_name("a" * 64), ["name part must be no more than 63 characters"]
        )
        self.assertEqual(
            names.qualified_name("a" * 254 + "/a"),
            ["prefix part must be no more than 253 characters"],
        )

    def test_generated(self) -> None:
        """A generated name is the prefix and five random characters, and a valid label."""
        made = {names.generated("vm-") for _ in range(50)}
        self.assertEqual({len(name) for name in made}, {8})
        self.assertGreater(len(made), 40)
        self.assertEqual(names.dns_label(names.generated("a" * 100)), [])
