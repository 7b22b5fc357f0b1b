"""
Tests for L{twisted_exec.api.patterns}.
"""

from unittest import skipUnless

from twisted.trial.unittest import SynchronousTestCase

from tests.linear import assert_linear
from twisted_exec.api import patterns
from twisted_exec.api.patterns import Pattern, PatternError, PatternSet, Search, problem

BAD = [
    ("a(b", "character 2: missing ): a(b"),
    ("(a))(", "character 4: unexpected ): (a))("),
    ("[)](x", "character 4: missing ): [)](x"),
    ("ab[z", "character 3: missing ]: [z"),
    ("x{2,1}", "character 2: invalid repetition size: {2,1}"),
    ("(a)\\1", "character 4: invalid escape sequence: \\1"),
    ("ab(?=c)", "character 3: invalid perl operator: (?="),
    ("ab\\", "character 3: trailing \\"),
    ("x{1,1000}" * 10, "it is too complex: repeat less"),
    (r"\pL{200}", "it is too complex: repeat less"),
    (r"\pL" * 340, "it is too complex: 16 Unicode classes are the limit"),
    ("x" * 1025, "it has more than 1024 bytes"),
    ("\u00e9" * 513, "it has more than 1024 bytes"),
]


@skipUnless(patterns.SUPPORTED, patterns.UNSUPPORTED)
class RegexTests(SynchronousTestCase):
    def test_bad_expressions(self) -> None:
        """
        The message names the position of the mistake.
        """
        for regex, message in BAD:
            self.assertEqual(problem(regex), message)

    def test_good_expressions(self) -> None:
        """
        RE2's syntax is accepted.
        """
        for regex in ("", "a|b", r"^\[ *\d+\.\d+\] BUG: ", "(?i)panic", "caf\u00e9", "x{1,1000}"):
            self.assertEqual(problem(regex), "")

    def test_example(self) -> None:
        """A pattern has an example that it matches, if a short one with visible characters is known."""
        for regex, example in (
            ("OPS-[0-9]+", "OPS-0"),
            (r"^(OPS|DEV)-\d{3,5}$", "DEV-000"),
            (r"\bINC[1-9]\d*\b", "INC1"),
            ("ticket", "ticket"),
            ("x{60}", ""),
            ("[^a]+", ""),
            (".*", ""),
        ):
            search = Search(Pattern(regex, is_regex=True))
            self.assertEqual(search.example(), example, regex)
            self.assertGreaterEqual(search.end_in(example.encode() or b"x" * 60), 0)

    def test_many_complex_expressions(self) -> None:
        """
        No further expression of an object is compiled once those before it have cost too much.
        """
        compiled: list[str] = []
        compile_ = patterns.re2.compile

        def counting(regex: str, options: object) -> object:
            compiled.append(regex)
            return compile_(regex, options)

        self.patch(patterns.re2, "compile", counting)
        for regex, most in (
            (r"\pL{200}x{%d}", 2),
            ("(a{1,100}){1,9}N{%d}", 6),
            (r"\p{Lu}|" * 15 + "x{%d}", 3),
            ("(" * 1000 + "%d", 10),  # each is malformed, and costs its length
        ):
            compiled.clear()
            found = list(patterns.problems(regex % number for number in range(64)))
            self.assertEqual(len(compiled), most, regex)
            self.assertEqual(len(found), 64)
            self.assertIn("together with the expressions before it: 10000 ", found[-1])
        ordinary = [f"(?i)disk {number} (failed|removed): .*" for number in range(64)]
        self.assertEqual(list(patterns.problems(ordinary)), [""] * 64)

    def test_small_memory(self) -> None:
        """
        An expression is checked within little memory, which bounds the time of its compilation.
        """
        memories: list[int] = []
        compile_ = patterns.re2.compile

        def watched(regex: str, options: patterns.re2.Options) -> object:
            memories.append(options.max_mem)
            return compile_(regex, options)

        self.patch(patterns.re2, "compile", watched)
        problem("a{1,7}b unique")
        self.assertEqual(memories, [128 << 10])

    def test_set(self) -> None:
        """
        All matching patterns are returned, also of text that is not UTF-8.
        """
        several = PatternSet(
            [Pattern("a.c"), Pattern("a.c", True), Pattern("^x", True), Pattern("caf\u00e9")]
        )
        self.assertEqual(several.search(b"abc"), [1])
        self.assertEqual(several.search(b"\xff a.c \xff"), [0, 1])
        self.assertEqual(several.search(b"x caf\xc3\xa9"), [2, 3])
        self.assertEqual(several.search(b""), [])

    def test_several_lines(self) -> None:
        """
        A look at several lines at once finds what a look at each line finds.
        """
        for regex in ("^b$", "^b", "c$", r"\Ab\z", "(?-m)^b", r"\bb\b", "(?i)B", "[^x]b", r"\Qb\E"):
            several = PatternSet([Pattern(regex, True), Pattern("nowhere")])
            lines = [b"a", b"b", b"ab c", b" b"]
            search = several.within(b"\n".join(lines))
            assert search is not None
            for line in lines:
                self.assertEqual(search(line), several.search(line), (regex, line))
        self.assertIsNone(PatternSet([Pattern("^c", True), Pattern("x")]).within(b"a\nb"))

    def test_search(self) -> None:
        """
        A search returns the end of the first match; C{^} and C{$} match at each line.
        """
        self.assertEqual(Search(Pattern(r"[$#] $", True)).end_in(b"x\nroot# "), 8)
        self.assertEqual(Search(Pattern("^b", True)).end_in(b"a\nb"), 3)
        self.assertEqual(Search(Pattern("^b", True)).end_in(b"ab"), -1)
        self.assertRaises(PatternError, Search, Pattern("(", True))

    def test_hostile_expression(self) -> None:
        """
        An expression that takes other engines for ever needs linear time.
        """
        several = PatternSet([Pattern("(a+)+$", True), Pattern("(x*)*y", True)])

        def search(size: int) -> None:
            self.assertEqual(several.search(b"a" * size + b"!"), [])

        assert_linear(search, 25_000)


class WithoutTheExtraTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.patch(patterns, "SUPPORTED", False)
        self.patch(patterns, "re2", None)

    def test_literals(self) -> None:
        """
        Literal text works, also as a regular expression without special characters.
        """
        self.assertEqual(Search(Pattern("login: ", True)).end_in(b"vm login: "), 10)
        self.assertEqual(Search(Pattern(r"\$ ", True)).end_in(b"a $ "), 4)
        self.assertEqual(PatternSet([Pattern("a.c"), Pattern("a", True)]).search(b"a.c"), [0])

    def test_expressions(self) -> None:
        """
        A regular expression is accepted in a set, where it never matches, and refused in a search.
        """
        self.assertEqual(problem("("), "")
        error = self.assertRaises(PatternError, Search, Pattern("a|b", True))
        self.assertIn("pip install google-re2", str(error))
