"""
Tests for L{twisted_exec.wire.escape_sequences}.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.linear import assert_linear
from tests.retained import weight
from twisted_exec.wire.escape_sequences import QueryFilter

from .terminal_model import answered

CONTROL_SEQUENCES = [
    *(b"c", b"0c", b">c", b">0c", b"=c"),
    *(b"5n", b"6n", b"?6n", b"?15n", b"?996n"),
    *(b"11t", b"13t", b"14t", b"14;2t", b"15t", b"16t", b"18t", b"19t", b"20t", b"21t", b"018t"),
    *(b"4$p", b"?2026$p", b"1+p", b">q", b">0q", b"?u", b"?2;1;0S", b"1$u", b"&u", b"1,u", b"1$w"),
    *(b'"v', b"x", b"1x", b"1;1;1;1;2;2*y", b"'|", b"#R", b"1;1;2;2#|", b"?4m", b"?1g", b"?2048h"),
]
COMMANDS = [
    *(b"4;1;%s", b"4;1;%s;2;%s", b"5;0;%s", b"10;%s", b"11;%s", b"19;%s", b"010;%s", b"10;red;%s"),
    *(b"21;foreground=%s", b"22;%s__current__", b"99;i=1:p=%s;", b"702;%s"),
]
OTHERS = [
    (b"\x05", b"\x00"),
    (b"a\x05\x05b", b"a\x00\x00b"),
    (b"\x1bZ", b"\x1b\\"),
    (b"\x1b\nZ", b"\x1b\n\\"),
    (b"\xc2\x9a", b"\xc2\x80"),
    (b"a\x9a", b"a\x80"),
    (b"\x1bP$qm\x1b\\", b"\x1bP%qm\x1b\\"),
    (b"\x1bP1$qm\x1b\\", b"\x1bP1$_m\x1b\\"),
    (b"\x1bP+q544e\x1b\\", b"\x1bP+_544e\x1b\\"),
    (b"\x90$q", b"\x90%q"),
    (b"\x1b]50;?\x07", b"\x1b]50;\x18\x07"),
    (b"\x1b]52;c;?\x1b\\", b"\x1b]52;c;\x18\x1b\\"),
    (b"\x1b]60\x07", b"\x1b]6-\x07"),
    (b"\x1b]1337;ReportCellSize\x07", b"\x1b]1337;Repor-CellSize\x07"),
    (b"\x1b]1337;ReportVariable=\x1b\\", b"\x1b]1337;Repor-Variable=\x1b\\"),
    (b"\x1b]1337;Capabilities\x07", b"\x1b]1337;Capabilitie-\x07"),
    (b"\x1b]5522;id=1:type=read;Lg==\x1b\\", b"\x1b]5522;id=1:type=rea-;Lg==\x1b\\"),
    (b"\x1b_Ga=q,s=1,i=31;AAAA\x1b\\", b"\x1b_Ga=-,s=1,i-31;AAAA\x1b\\"),
    (b"\x1b_GI=1,a=T;AAAA\x1b\\", b"\x1b_GI-1,a=T;AAAA\x1b\\"),
    (b"\x9fGa=q;", b"\x9fGa=-;"),
    # Control characters, and for many terminals others, do not end a sequence.
    (b"\x1b[\r6\nn", b"\x1b[\r6\n_"),
    (b"\x1b\r[6n", b"\x1b\r[6_"),
    (b"\x1b[\xc3\xa96n", b"\x1b[\xc3\xa96_"),
    (b"\x1b[3\x056n", b"\x1b[3\x006_"),
    (b"\x1b]1\n1;\r?\x07", b"\x1b]1\n1;\r-\x07"),
    # An introducer begins anew, also inside a string.
    (b"\x1b[6\x1b[6n", b"\x1b[6\x1b[6_"),
    (b"\x1b]0;title\x1b[6n", b"\x1b]0;title\x1b[6_"),
    (b"\x1b]10;\xc2\x9b6n", b"\x1b]10;\xc2\x9b6_"),
    (b"\x1bPtmux;\x1b\x1b[6n\x1b\\", b"\x1bPtmux;\x1b\x1b[6_\x1b\\"),
    # 8-bit control characters beside UTF-8.
    (b"\x9b6n", b"\x9b6_"),
    (b"\xc2\x9b6n", b"\xc2\x9b6_"),
    (b"\xe2\x99\x9b\x9b6n", b"\xe2\x99\x9b\x9b6_"),
    (b"\xc2\x9d11;?\xc2\x9c", b"\xc2\x9d11;-\xc2\x9c"),
]
UNCHANGED = [
    b"plain text?\r\n\ttext",
    b"\x1b[1;31mred\x1b[m \x1b[?25l\x1b[?25h\x1b[?1049h\x1b[?1004h\x1b[?2004h\x1b[4h",
    b"\x1b[2J\x1b[H\x1b[3;4r\x1b[2S\x1b[u\x1b[s\x1b[1;2;3;4$x\x1b[!p\x1b[2 q\x1b[?5c\x1b[>4;2m",
    b"\x1b[8;24;80t\x1b[22;0t\x1b[23;0t\x1b[t\x1b[=1u\x1b[>1u\x1b[<u",
    b"\x1b(0\x1b)B\x1b=\x1b>\x1bc\x1b7\x1b8\x1bM\x1b\\",
    b"\x1b]0;what;?\x07\x1b]8;;http://example.com/a;?b\x1b\\\x1b]11;#000000\x07\x1b]133;A\x07",
    b"\x1b]1337;File=name=a;inline=1:Report\x07\x1b]5522;type=write\x1b\\",
    b"\x1bPq#0;2;0;0;0~~$-\x1b\\\x1bP1;2;3qABC\x1b\\\x1bP1$tABC\x1b\\",
    b"\x1b_Gf=24,s=10,v=20;AAAA\x1b\\\x1b_Gq=2,i=3,a=T;AAAA\x1b\\\x1b_other\x1b\\",
    b"\x1b[6\x18n\x1b[6\x1an\x1b]11;\x18?",
    "Gl\u00fcck \u265b6n \U0001f49b6n \u251c\u2500\u25186n;? \u00c9cZ".encode(),
    b"\x1b]11;\xc2\x9c;?",
    b"[6n ]11;? 18t",
]
PIECES = [
    *(
        b"\x1b",
        b"[",
        b"]",
        b"P",
        b"_G",
        b"\x9b",
        b"\xc2",
        b"\x9d",
        b"\xe2",
        b"\x99",
        b"\x05",
        b"\x18",
    ),
    *(
        b"6",
        b"n",
        b"0",
        b";",
        b"?",
        b"11",
        b"4",
        b"$",
        b"q",
        b"a=q",
        b"i=",
        b"c",
        b"m",
        b"t",
        b"Z",
        b"\n",
    ),
    *(
        b"\x07",
        b"\x1b\\",
        b"1337;",
        b"Report",
        b"x" * 70,
        b"0;" * 70,
        b",i=1" * 70,
        b"\xc3\xa9",
        b">",
        b" ",
        b"\r",
    ),
]
STREAMS = st.lists(st.sampled_from(PIECES), max_size=24).map(b"".join)


def filtered(data: bytes, size: int = 0) -> bytes:
    """Return the output of a filter that gets pieces of this size."""
    each = QueryFilter()
    size = size or max(1, len(data))
    return b"".join(each.feed(data[at : at + size]) for at in range(0, len(data), size))


def all_cases() -> list[tuple[bytes, bytes]]:
    """Return queries, and what becomes of them."""
    cases = [(b"\x1b[" + each, b"\x1b[" + each[:-1] + b"_") for each in CONTROL_SEQUENCES]
    for each in COMMANDS:
        for end in (b"\x07", b"\x1b\\"):
            query, other = (each.replace(b"%s", mark) for mark in (b"?", b"-"))
            cases.append((b"\x1b]" + query + end, b"\x1b]" + other + end))
    return cases + OTHERS


class CaseTests(SynchronousTestCase):
    def test_queries(self) -> None:
        """
        One byte of each query is changed, between other output.
        """
        for query, other in all_cases():
            self.assertEqual(filtered(query), other, query)
            self.assertEqual(filtered(b"a" + query + b"b\r\n"), b"a" + other + b"b\r\n", query)

    def test_split_anywhere(self) -> None:
        """
        The result is the same wherever the output is split, and nothing is held back.
        """
        for query, other in all_cases():
            for at in range(len(query) + 1):
                each = QueryFilter()
                first = each.feed(query[:at])
                self.assertEqual(len(first), at)
                self.assertEqual(first + each.feed(query[at:]), other, (query, at))
            self.assertEqual(filtered(query, 1), other, query)

    def test_characters_behind_escape(self) -> None:
        """
        Terminals ignore characters between ESC and the kind of a sequence, wherever the output is split.
        """
        for query, other in ((b"_Ga=q;\x1b\\", b"_Ga=-;\x1b\\"), (b"]11;?\x07", b"]11;-\x07")):
            for size in (0, 1, 2, 3):
                self.assertEqual(filtered(b"\x1b\xff\xfa" + query, size), b"\x1b\xff\xfa" + other)

    def test_filtered_again(self) -> None:
        """
        A second filter finds nothing in the output of the first, wherever it is split.
        """
        once = filtered(b"\x1bP$+q54q,n=1+AAAA\x1b\\")
        self.assertEqual(once, b"\x1bP%+q54q,n=1+AAAA\x1b\\")
        for size in (0, 1, 2, 3, 4, 5):
            self.assertEqual(filtered(once, size), once)

    def test_unchanged(self) -> None:
        """
        Text, colours, modes, titles, links and images pass unchanged.
        """
        for text in UNCHANGED:
            for size in (0, 1, 2, 3, 7):
                self.assertEqual(filtered(text, size), text)

    def test_answers_of_the_model(self) -> None:
        """
        The terminal of these tests answers each query, and none of the results.
        """
        for query, other in all_cases():
            self.assertTrue(answered(query), query)
            self.assertFalse(answered(other), other)
        for text in UNCHANGED:
            self.assertFalse(answered(text), text)

    def test_found(self) -> None:
        """
        A listener gets control sequences without control characters.
        """
        found: list[bytes] = []
        each = QueryFilter(found.append)
        for piece in (b"\x1b[1", b"8\rt", b"\xc2\x9b6n\x1b[m\x1b]11;?\x07", b"\x1b[c"):
            each.feed(piece)
        self.assertEqual(found, [b"18t", b"6n", b"c"])

    def test_long_sequences(self) -> None:
        """
        A query may have thousands of parameters, values or zeros, in pieces of any size.
        """
        for query in (
            b"\x1b[" + b"0;" * 5000 + b"6n",
            b"\x1b[" + b"0" * 5000 + b"6n",
            b"\x1b]" + b"0" * 4000 + b"11;?\x07",
            b"\x1b]4;" + b"1;red;" * 5000 + b"2;?\x07",
            b"\x1b]10;" + "\u00c9;".encode() * 5000 + b"?\x07",
            b"\x1bP" + b"0;" * 5000 + b"$q",
            b"\x1bP+" + b"0;" * 500 + b"q",
        ):
            result = filtered(query, 1000)
            self.assertEqual(result, filtered(query, 7))
            self.assertFalse(answered(result))
            self.assertEqual(sum(a != b for a, b in zip(query, result, strict=True)), 1)

    def test_question_in_long_command(self) -> None:
        """A question mark in the last bytes that are kept of a long command is not taken for the query."""
        for number, changed in ((b"52", b"\x18"), (b"11", b"-")):
            for before in range(40, 64):
                output = b"\x1b]%s;%s?%s;?\x07" % (number, b"a" * before, b"a" * 14)
                expected = output[:-2] + changed + output[-1:]
                for size in (0, 1, 2, 3):
                    self.assertEqual(filtered(output, size), expected, (output, size))

    def test_read_twice(self) -> None:
        """Each request to read the clipboard is changed, also the second of one command."""
        output = b"\x1b]5522;type=read:type=read\x07"
        for size in (0, 1, 5, 20):
            self.assertEqual(filtered(output, size), b"\x1b]5522;type=rea-:type=rea-\x07")

    def test_many_keys(self) -> None:
        """An image with more keys than a command has loses all that stand behind, in pieces of any size."""
        for begin in (b"\x1b", b"\x1b\x00\xe9"):
            for keys in (b",i=1,q=2,a=q", b",v=1", b",i=1\x00\x00", b",i=" + b"1" * 90, b"=aI"):
                image = begin + b"_Gq=2,v=1" + keys * 100 + b",i=1,a=q;"
                expected = filtered(image)
                self.assertFalse(answered(expected + b"\x1b\\"), keys)
                self.assertEqual(expected[:16], image[:16])
                self.assertEqual(expected[270:], image[270:].replace(b"=", b"-"))
                for size in (1, 2, 7, 60, 250, 300):
                    self.assertEqual(filtered(image, size), expected, (keys, size))
                # The next command of the same output is a command of its own.
                short = b"\x1b_Gq=2,i=1;AAAA\x1b\\"
                self.assertTrue(filtered(image + b"AAAA\x1b\\" + short, 40).endswith(short))
                self.assertTrue(filtered(image + short, 40).endswith(short))

    def test_quiet_image(self) -> None:
        """
        An image of which the terminal confirms nothing passes.
        """
        image = b"\x1b_Gq=2," + b"v=1," * 60 + b"i=1;"
        for size in (0, 1, 100):
            self.assertEqual(filtered(image, size), image)

    def test_quiet_value(self) -> None:
        """The end of a long value is not taken for the key that makes an image quiet."""
        for behind in range(10, 20):
            image = b"\x1b_Gv=" + b"a" * 60 + b"q=2" + b"a" * behind + b",i=1;"
            for size in (0, 1, 2, 3, 7):
                self.assertEqual(filtered(image, size), image[:-3] + b"-1;", (behind, size))

    def test_bounded_memory(self) -> None:
        """
        A sequence without end is kept in a short form.
        """
        for start in (
            b"\x1b[",
            b"\x1b]4;",
            b"\x1b]",
            b"\x1bP",
            b"\x1b_G",
            b"\x1b_x",
            b"\x1b",
            b"\xc2\x9d4;",
        ):
            each = QueryFilter()
            each.feed(start)
            for _ in range(50):
                each.feed(b"1" * 10_000 + b";\n")
                self.assertLess(weight(each), 600)

    def test_linear(self) -> None:
        """
        No output takes more than linear time.
        """
        for hostile in (
            *(
                b"\x1b",
                b"\x1b[",
                b"\x1b]4;",
                b"\x1b]4;;",
                b"\x1b[0;",
                b"\xc2\x9b",
                b"\x9b0",
                b"\x9d4;?",
            ),
            *(
                b"?",
                b"\x1b]5522;",
                b"5522;",
                b"\x1b_G",
                b",i=",
                b"\x1b]1337;",
                b"\xc2",
                b"\xe2\x9b",
            ),
        ):
            for start in (b"", b"\x1b[", b"\x1b]4;", b"\xc2\x9d4;", b"\x1b]5522;", b"\x1b_G"):

                def run(size: int, text: bytes = start + hostile * (1 << 15)) -> None:
                    filtered(text[:size], size // 2)

                assert_linear(run, 1 << 13, (start, hostile))


class PropertyTests(SynchronousTestCase):
    @given(STREAMS, st.integers(1, 9))
    def test_any_stream(self, data: bytes, size: int) -> None:
        """
        Any output keeps its length, has no query left, and changes alike wherever it is split.
        """
        result = filtered(data)
        self.assertEqual(len(result), len(data))
        self.assertEqual(result, filtered(data, size))
        self.assertFalse(answered(result), (data, result))
        self.assertEqual(filtered(result), result)

    @given(STREAMS, st.integers(0, 60), st.integers(1, 9))
    def test_filtered_before(self, data: bytes, start: int, size: int) -> None:
        """
        A second filter changes nothing, wherever it begins but within a character.
        """
        rest = filtered(data)[start:].lstrip(bytes(range(0x80, 0xC0)))
        self.assertEqual(filtered(rest, size), rest)

    @given(STREAMS)
    def test_only_queries(self, data: bytes) -> None:
        """
        Only bytes that complete something like a query are changed.
        """
        for before, after in zip(data, filtered(data), strict=True):
            if before != after:
                self.assertIn(before, b"\x05\x9aZcntpquwxySgvR|mhq?Qdst01=$")
                self.assertIn(after, b"\x00\x18\x80\\_-%")
