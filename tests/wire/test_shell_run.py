"""Tests for :mod:`twisted_exec.wire.shell_run`; ``tests.cli.console.test_shell_run`` has the echoes of real shells."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.linear import assert_linear
from twisted_exec.wire.shell_run import (
    MOST_COMMAND_BYTES,
    WAKE,
    Echoes,
    RunReader,
    TypedLine,
    command_lines,
    mark,
    probe,
    probe_mark,
)

NONCE = "1a2b3c4d"
READS = b';read -r _r;eval "$_r"'


def lines_of(*typed: bytes, nonce: str = NONCE) -> list[TypedLine]:
    """Return the lines that a server recognizes, behind the probe."""
    reader = RunReader(nonce)
    lines = reader.feed(b"".join([WAKE, probe(nonce), b"\r", *(each + b"\r" for each in typed)]))
    return lines[1:]


def shown(lines: Iterable[TypedLine]) -> bytes:
    return b"".join(text for line in lines for text, is_shown in line.pieces if is_shown)


def hidden(lines: Iterable[TypedLine]) -> bytes:
    return b"".join(text for line in lines for text, is_shown in line.pieces if not is_shown)


class ReaderTests(SynchronousTestCase):
    """What a server takes for the lines of a run."""

    @given(
        st.text(st.characters(max_codepoint=0x2FF), max_size=3000)
        | st.text("a'\\%\" $", max_size=3000)
    )
    def test_all_of_a_run(self, command: str) -> None:
        """All lines of a run are recognized, and all of the command is shown: as typed, or with octal numbers."""
        command = command.rstrip("\n")
        try:
            typed = command_lines(command, NONCE)
        except ValueError:
            return
        lines = lines_of(*typed)
        self.assertEqual([line.text for line in lines], typed)
        self.assertEqual([line.ends_row for line in lines], [False] * (len(typed) - 1) + [True])
        if re.fullmatch("[ -~]*", command):
            self.assertEqual(shown(lines).decode(), command)
        else:
            numbers = re.sub(
                rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), shown(lines)
            )
            self.assertEqual(numbers.replace(b"%%", b"%").decode(), command)

    def test_runs_follow_each_other(self) -> None:
        """The lines of a session's next run are recognized, too, also behind a run that failed, and other input."""
        reader = RunReader(NONCE)
        for command, before in (
            ("true", b""),
            ("id", b""),
            ("ls", b"ls\r"),
            ("w", b"x" * 2000),
            ("true", WAKE + probe(NONCE) + b"\r\x03"),
            ("id", WAKE + probe(NONCE) + b"\r _te='a'" + READS + b"\r"),
        ):
            reader.feed(before)
            typed = [probe(NONCE), *command_lines(command, NONCE)]
            lines = reader.feed(b"".join([WAKE, *(each + b"\r" for each in typed)]))
            self.assertEqual([line.text for line in lines], typed, before)
        self.assertEqual(reader.feed(b"ls\r" + probe(NONCE) + b"\r"), [])

    def test_numbers(self) -> None:
        """Characters that a terminal may take for keys are typed as numbers."""
        lines = lines_of(*command_lines("printf '%s\n' é", NONCE))
        self.assertEqual(shown(lines), rb"printf \047%%s\012\047 \303\251")

    def test_too_long_a_command(self) -> None:
        """A command that needs too many typed bytes is refused."""
        self.assertEqual(len(command_lines("x" * MOST_COMMAND_BYTES, NONCE)), 39)
        for command in ("x" * (MOST_COMMAND_BYTES + 1), "é" * (MOST_COMMAND_BYTES // 8 + 1)):
            error = self.assertRaises(ValueError, command_lines, command, NONCE)
            self.assertIn("the command is too long: 163", str(error))

    def test_byte_by_byte(self) -> None:
        """Input may be split anywhere."""
        typed = [probe(NONCE), *command_lines("true " + "x" * 2000, NONCE)]
        reader = RunReader(NONCE)
        lines: list[TypedLine] = []
        for byte in b"".join([WAKE, *(each + b"\r" for each in typed)]):
            lines += reader.feed(bytes([byte]))
        self.assertEqual([line.text for line in lines], typed)

    def test_nothing_else(self) -> None:
        """
        Whatever else is typed ends the run, so nothing of it is hidden: other commands, a second copy with another
        text, a part of the first copy alone, and the lines of another run.
        """
        (line,) = command_lines("true", NONCE)
        (other,) = command_lines("true", "00000000")
        comparison = line.partition(b";_tf='true';")[2]
        for typed in (
            [b"rm -rf /"],
            [other],
            [line.replace(b"'true'", b"'evil'", 1)],
            [line.replace(b"_tf='true'", b"_tf='evil'")],
            [line.replace(b"_tf='true'", b"_tf='tru'")],
            [line.replace(b"_tf='true';", b"")],
            [line.replace(b"_tf='true'", b"_tf=$_tf'true'")],
            [line.replace(b"_te='true'", b"_te=$_te'true'")],
            [line + b";evil"],
            [line.removesuffix(b"fi") + b"evil;fi"],
            [line.replace(b"; then ", b"; evil; then ")],
            [line.replace(b"true", b"true\x08")],
            [line.replace(b"true", b"tr\xc3\xa9")],
            [line.replace(b"/4", b"/4$(evil)")],
            [line.removeprefix(b" ")],
            [b" " + comparison.removeprefix(b"x") + b"x"],
            [b" " + READS.removeprefix(b";")],
            [b" evil" + READS],
            [b" _te='a'" + READS, b" _te='b'" + READS],
            [b" _te='a'" + READS, b" _tf='b'" + READS],
            [b" _te='a'" + READS, b" _tf='a'" + READS, b" _te=$_te'evil'" + READS],
            [b" _te='a'" + READS, b" _tf='a'" + READS, b" _tf=$_tf'evil'" + READS],
            [b" _te='a'" + READS, b" " + comparison],
            [b" _te='%s'" % (b"x" * 1100) + READS],
        ):
            lines = lines_of(*typed, line)
            self.assertNotIn(b"evil", hidden(lines), typed)
            self.assertLess(len(lines), len(typed) + 1, typed)

    def test_before_the_probe(self) -> None:
        """Nothing is recognized that does not begin as a run."""
        (line,) = command_lines("true", NONCE)
        for typed in (
            probe(NONCE) + b"\r",
            WAKE + b"ls\r" + probe(NONCE) + b"\r",
            WAKE + line + b"\r",
            WAKE + probe("00000000") + b"\r",
            WAKE + probe(NONCE)[1:] + b"\r",
            WAKE + b"x" * 2000,
        ):
            reader = RunReader(NONCE)
            self.assertEqual(reader.feed(typed + line + b"\r"), [], typed)
            self.assertIsNone(reader.begun)

    def test_begun(self) -> None:
        """The line of a run that is being typed is known, as far as it is typed; the probe at once."""
        (line,) = command_lines("true", NONCE)
        for typed, expected in (
            (b"", None),
            (b"l", None),
            (b"\x15", None),
            (WAKE, None),
            (WAKE + b" ", probe(NONCE)),
            (WAKE + b" p", probe(NONCE)),
            (WAKE + b" ls", None),
            (WAKE + probe(NONCE) + b"\r", None),
            (WAKE + probe(NONCE) + b"\r" + line[:9], line[:9]),
            (WAKE + probe(NONCE) + b"\r ls", None),
            (WAKE + probe(NONCE) + b"\r" + line + b"\r", None),
            (WAKE + probe(NONCE) + b"\r" + line + b"\r ", None),
            (WAKE + probe(NONCE) + b"\r _te='" + b"x" * 2000, None),
        ):
            reader = RunReader(NONCE)
            reader.feed(typed)
            begun = reader.begun
            self.assertEqual(None if begun is None else begun.text, expected, typed)
            self.assertFalse(begun is not None and begun.is_whole)

    def test_linear(self) -> None:
        """Many short lines that are no run cost no more than their bytes."""
        assert_linear(lambda size: RunReader(NONCE).feed(b"\r" * size), 20_000)

    def test_any_byte(self) -> None:
        """Another byte anywhere in a line is either shown, or the line is not recognized, or it is a length."""
        (line,) = command_lines("echo it's", NONCE)
        expected = re.sub(rb"\d", b"", hidden(lines_of(line)))
        for at in range(len(line)):
            for byte in b"z'\\;":
                changed = line[:at] + bytes([byte]) + line[at + 1 :]
                if changed != line:
                    lines = lines_of(changed)
                    self.assertIn(re.sub(rb"\d", b"", hidden(lines)), (b"", expected), changed)

    def test_too_long(self) -> None:
        """What a session may type of its command is bounded."""
        more = [b" _te='%s'" % (b"x" * 900) + READS]
        more += [b" _te=$_te'%s'" % (b"x" * 900) + READS] * 30
        lines = lines_of(*more)
        self.assertEqual(len(lines), MOST_COMMAND_BYTES // 900)


class EchoTests(SynchronousTestCase):
    """Where a server finds what was typed in the output."""

    def found(
        self, pieces: Sequence[bytes], lines: Sequence[TypedLine] | None = None
    ) -> tuple[bytes, Echoes]:
        """Return output with a dot for each hidden byte."""
        echoes = Echoes()
        for line in self.run_lines("true") if lines is None else lines:
            echoes.expect(line)
        output = bytearray()
        ranges: list[tuple[int, int]] = []
        for piece in pieces:
            offset = len(output)
            output += piece
            for each in echoes.feed(offset, piece):
                ranges += each
            if echoes.undecided is not None:
                self.assertLess(echoes.undecided, len(output))
        for first, last in ranges:
            output[first:last] = b"." * (last - first)
        return bytes(output), echoes

    def run_lines(self, command: str) -> list[TypedLine]:
        reader = RunReader(NONCE)
        typed = [probe(NONCE), *command_lines(command, NONCE)]
        return reader.feed(b"".join([WAKE, *(each + b"\r" for each in typed)]))

    def echoes_of(self, command: str) -> list[bytes]:
        return [line.text for line in self.run_lines(command)]

    def test_split_anywhere(self) -> None:
        """The prompt, the command, marks and output stay, wherever the output is split."""
        first, second = self.echoes_of("true")
        answer = probe_mark(NONCE)
        output = b"# \r\n# %s\r\n\x1b[?2004l\r%s%s\r\nout\r\n# " % (first, answer, second)
        before, after = second.split(b"true")[0], second.partition(b"true")[2]
        expected = b"# \r\n# %s\x1b[?2004l.%s%strue%s\r\nout\r\n# " % (
            b"." * (len(first) + 2),
            answer,
            b"." * len(before),
            b"." * len(after),
        )
        for size in (1, 2, 3, 7, 64, len(output)):
            pieces = [output[at : at + size] for at in range(0, len(output), size)]
            shown, echoes = self.found(pieces)
            self.assertEqual(shown, expected, size)
            self.assertFalse(echoes)
            self.assertIsNone(echoes.undecided)

    def test_held_back(self) -> None:
        """Only what may still be an echo is undecided; other output behind its beginning shows that it is none."""
        first, _ = self.echoes_of("true")
        for output, undecided in (
            (b"# ls", None),
            (b"# ", 1),
            (b"# " + first[:20], 2),
            (b"# " + first[:20] + b"\r\n", 2),
            (b"# " + first[:20] + b"\x1b[", 2),
            (b"# " + first, 2),
            (b"# " + first + b"\r\n", 2),
            (b"# " + first + b"\r\n\x1b[?20", 2),
            (b"# " + first + b"\x1b[?20", 2),
            (b"# " + first[:20] + b"[ 1.0] usb\r\n", None),
            (b"# " + first + b" ;ls", None),
            (b"# " + first[:20] + b"\x1b[A\x1b[C" * 500, None),
        ):
            for pieces in ([output], [output[at : at + 1] for at in range(len(output))]):
                shown, echoes = self.found(pieces)
                self.assertEqual((shown, echoes.undecided), (output, undecided), output)
                self.assertTrue(echoes)

    def test_wrapped(self) -> None:
        """What line editors print where a line does not fit into a row is a part of its echo: bash, busybox, zsh."""
        text = probe(NONCE)
        at = len(text) - 1
        for echo in (
            text[:30] + b" \r" + text[30:] + b"\r\n",
            text[:30] + b"\r\r\n" + text[30:] + b"\r\r\n",
            text[:30] + text[30:31] + b"\x08" + text[31:] + b"\r\n",
            text + b" \r\x1b[A" + b"\x1b[C" * 79 + b"\x1b[K" + text[at:] + b"\r\n",
            text[:40] + b" \r\x1b[A\x00\x00\x1b[C\x00\x1b[K" + text[39:40] + text[40:] + b"\r\n",
            text[:9].replace(b"f ", b"f \r\r\n") + text[9:] + b"\r\n",
            text[:3] + b" \r" + text[3:] + b"\r\n",
            text + b" \r\x1b[K\x1b[K\r\r\n",
        ):
            for size in (1, len(echo)):
                pieces = [echo[at : at + size] for at in range(0, len(echo), size)]
                shown, _ = self.found([b"# ", *pieces, mark(b"R")])
                self.assertEqual(shown, b"# " + b"." * len(echo) + mark(b"R"), echo)
        shown, _ = self.found([b"# ", b" \x08" + text, b"\x1b[K\x1b[?2004l\r\r\n", mark(b"R")])
        expected = b"#  \x08%s\x1b[?2004l...%s" % (b"." * (len(text) + 3), mark(b"R"))
        self.assertEqual(shown, expected)

    def test_kernel_line(self) -> None:
        """A line with other output in it is not hidden."""
        first, second = self.echoes_of("true")
        output = b"# %s\r\n# %s[ 1.0] usb\r\n%s\r\nout" % (first, second[:50], second[50:])
        shown, echoes = self.found([output, b"\r\n"])
        self.assertIn(second[:50] + b"[ 1.0] usb\r\n" + second[50:], shown)
        self.assertNotIn(first, shown)
        self.assertIsNone(echoes.undecided)

    def test_without_the_probe(self) -> None:
        """A shell that scrolls the probe sideways shows it; the command is hidden nevertheless."""
        _, second = self.echoes_of("true")
        shown, echoes = self.found([b"# \r<eval\r\n%s\r\nout" % second])
        self.assertEqual(shown.replace(b".", b""), b"# \r<eval\r\ntrue\r\nout")
        self.assertFalse(echoes)

    def test_second_copy_alone(self) -> None:
        """No copy of a command is hidden before the first copy was shown."""
        lines = self.run_lines("x" * 1000)
        shown, _ = self.found([b"".join(line.text + b"\r\n" for line in lines[2:])], lines)
        self.assertNotIn(b".", shown)

    def test_once(self) -> None:
        """The same text once more, which a machine prints or a user types, stays."""
        lines = self.run_lines("true")
        text = b"".join(line.text + b"\r\n" for line in lines)
        shown, _ = self.found([text, text, text], lines)
        self.assertEqual(shown.count(lines[0].text), 2)
        self.assertEqual(shown.count(lines[1].text), 2)

    def test_never_typed(self) -> None:
        """Without a typed line nothing is hidden."""
        text = b"".join(line.text + b"\r\n" for line in self.run_lines("true"))
        self.assertEqual(self.found([text], [])[0], text)

    def test_many(self) -> None:
        """Lines that have no echo cost little, and do not hide later lines."""
        lines = self.run_lines("true")
        shown, echoes = self.found([lines[0].text + b"\r\n#"], lines * 20)
        self.assertNotIn(lines[0].text, shown)
        echoes.forget()
        self.assertFalse(echoes)
        self.assertEqual(echoes.feed(10_000, lines[0].text + b"\r\n"), [])

    def test_gap(self) -> None:
        """No echo continues behind a gap."""
        first = self.run_lines("true")[0]
        echoes = Echoes()
        echoes.expect(first)
        self.assertEqual(echoes.feed(0, first.text[:30]), [])
        self.assertEqual(echoes.feed(40, first.text[30:] + b"\r\n\x1b"), [])
        self.assertIsNone(echoes.undecided)

    def test_abandoned(self) -> None:
        """The beginning of a line is awaited until the line is abandoned; a whole line stays awaited."""
        first, second = self.run_lines("true")
        echoes = Echoes()
        echoes.expect(replace(first, is_whole=False))
        echoes.feed(0, b"# " + first.text[:30])
        self.assertEqual(echoes.undecided, 2)
        echoes.abandon()
        self.assertFalse(echoes)
        self.assertEqual(echoes.feed(32, b""), [])
        self.assertIsNone(echoes.undecided)
        echoes.expect(second)
        echoes.abandon()
        self.assertTrue(echoes)

    def test_decided(self) -> None:
        """The mark of a command that has begun ends all waiting, also in the middle of what may be an echo."""
        _, second = self.run_lines("true")
        begun = mark(b"B" + NONCE.encode())
        for output in (begun, begun + b"# ", begun + b"# " + second.text[:20]):
            for pieces in ([output], [output[at : at + 1] for at in range(len(output))]):
                shown, echoes = self.found(pieces, [second])
                self.assertEqual(shown, output)
                self.assertFalse(echoes)
                self.assertIsNone(echoes.undecided)

    def test_inside_a_line(self) -> None:
        """The text of a typed line inside another line stays; its echo behind it is found."""
        lines = self.run_lines("ls")[1:]
        (line,) = lines
        shown, _ = self.found([line.text + b"x\r\n", line.text + b"\r\n"], lines)
        self.assertEqual(shown[: len(line.text) + 1], line.text + b"x")

    @given(st.lists(st.sampled_from(range(8)), max_size=20), st.integers(1, 200))
    def test_only_the_lines(self, numbers: list[int], size: int) -> None:
        """Whatever the machine prints, only bytes of the typed lines and their wraps are hidden."""
        lines = self.run_lines("ls")
        first, second = (line.text for line in lines)
        parts = [first, second, first[:20], second[20:], b"\r\n", b" \r", b"SECRET", b"# "]
        output = b"".join(parts[number] for number in numbers)
        shown, _ = self.found([output[at : at + size] for at in range(0, len(output), size)])
        self.assertEqual(len(shown), len(output))
        gone = bytes(a for a, b in zip(output, shown, strict=True) if b == 0x2E and a != 0x2E)
        self.assertEqual(shown.count(b"SECRET"), output.count(b"SECRET"))
        self.assertLessEqual(
            len(gone.replace(b"\r", b"").replace(b"\n", b"")), len(first + second) + 20
        )

    def test_linear(self) -> None:
        """Output that often begins an echo takes time in proportion to its size."""
        pieces = (b" prin", b" pri\r", b" ", b" \r", b" _te='", probe(NONCE)[:60] + b" \r" * 20)
        for piece, end in itertools.product(pieces, (b"", b"x")):

            def search(size: int, piece: bytes = piece, end: bytes = end) -> None:
                self.found([piece * (size // len(piece)) + end])

            assert_linear(search, 50_000, piece)
