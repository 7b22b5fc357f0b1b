"""Tests for :mod:`twisted_exec.runtimes.lines.redfish.guard`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.runtimes.lines.redfish.guard import Guard
from twisted_exec.runtimes.lines.redfish.quirks import Quirk

DELL = Quirk("dell", prompts=(b"racadm>>", b"/admin1->"), never_send=(b"\x1c",))
HPE = Quirk("hpe", prompts=(b"</>hpiLO->",), never_send=(b"\x1b(",))
OPENBMC = Quirk("openbmc", never_send=(b"\r~.", b"\n~."))
SUPERMICRO = Quirk("smc", never_send=(b"\r\x1bT", b"\n\x1bT"))
OVERLAPPING = Quirk("overlapping", never_send=(b"aab", b"ab", b"ba", b"abab"))


def splits(data: bytes) -> Iterator[Sequence[bytes]]:
    """All ways to cut a text into parts."""
    for cuts in product((False, True), repeat=max(0, len(data) - 1)):
        parts, start = [], 0
        for at, cut in enumerate(cuts, 1):
            if cut:
                parts.append(data[start:at])
                start = at
        yield [*parts, data[start:]]


def sent(quirk: Quirk, parts: Sequence[bytes]) -> tuple[bytes, int]:
    guard = Guard(quirk)
    return b"".join(guard.to_machine(part) for part in parts), guard.dropped


def shown(quirk: Quirk, parts: Sequence[bytes]) -> tuple[bytes, bool]:
    guard = Guard(quirk)
    outputs = [guard.from_machine(part) for part in parts]
    return b"".join(output.data for output in outputs), outputs[-1].has_ended


class InputTests(SynchronousTestCase):
    """What reaches the machine."""

    def test_dropped(self) -> None:
        """The byte that would complete an escape is missing, however the input is cut; the rest is sent."""
        for quirk, typed, expected in (
            (DELL, b"a\x1cb", b"ab"),
            (DELL, b"\x1c\x1c\x1c", b""),
            (HPE, b"a\x1b(b", b"a\x1bb"),
            (HPE, b"\x1b[A(x)", b"\x1b[A(x)"),
            (HPE, b"\x1b\x1b((", b"\x1b\x1b"),
            (HPE, b"\x1b((x(", b"\x1bx("),
            (OPENBMC, b"a~.\r~.b", b"a~.\r~b"),
            (OPENBMC, b"\r~..~.", b"\r~~."),
            (OPENBMC, b"\r\n~.", b"\r\n~"),
            (OPENBMC, b"\r~~.", b"\r~~."),
            (SUPERMICRO, b"\r\x1bT\x1bT", b"\r\x1b\x1bT"),
            (SUPERMICRO, b"\x1bTx", b"\x1bTx"),
        ):
            for parts in splits(typed):
                self.assertEqual(sent(quirk, parts), (expected, len(typed) - len(expected)), parts)

    @given(st.lists(st.text("abx", max_size=6), max_size=8))
    @settings(max_examples=300, deadline=None)
    def test_never(self, texts: list[str]) -> None:
        """No sequence is ever in what is sent, also not by the removal of another, and nothing else is lost."""
        parts = [text.encode() for text in texts]
        data, dropped = sent(OVERLAPPING, parts)
        for sequence in OVERLAPPING.never_send:
            self.assertNotIn(sequence, data)
        self.assertEqual(len(data) + dropped, sum(map(len, parts)))
        expected = b""
        for byte in (bytes((each,)) for each in b"".join(parts)):
            if not (expected + byte).endswith(OVERLAPPING.never_send):
                expected += byte
        self.assertEqual(data, expected)

    def test_whole(self) -> None:
        """Without sequences all bytes pass."""
        every = bytes(range(256))
        self.assertEqual(sent(Quirk("none"), [every, every]), (every * 2, 0))

    def test_much(self) -> None:
        """A flood of escapes costs one look at each byte."""
        flood = b"\r~." * 100_000
        self.assertEqual(sent(OPENBMC, [flood])[1], 100_000)


class OutputTests(SynchronousTestCase):
    """What users see."""

    def test_ended(self) -> None:
        """A prompt at the start of a line ends the console however the output is cut; nothing behind it is shown."""
        for output, expected in (
            (b"racadm>>", b""),
            (b"x\r\nracadm>> ", b"x\r\n"),
            (b"x\rracadm>>ls", b"x\r"),
            (b"\n/admin1-> ", b"\n"),
            (b"\n\x1b[0mracadm>>", b"\n\x1b[0m"),
            (b"\n\x00\x07racadm>>", b"\n\x00\x07"),
        ):
            for parts in splits(output[:10]) if len(output) <= 10 else self.cuts(output):
                data, has_ended = shown(DELL, parts)
                self.assertTrue(has_ended, parts)
                # The start of a prompt that comes in parts has been shown before it is one.
                self.assertTrue(
                    (expected + b"racadm>>").startswith(data)
                    or data == expected + data[len(expected) :]
                )
                self.assertNotIn(b"racadm>>", data)
                self.assertNotIn(b"/admin1->", data)
            self.assertEqual(shown(DELL, [output]), (expected, True))

    def cuts(self, output: bytes) -> Iterator[Sequence[bytes]]:
        """Each way to cut a text twice, and each byte for itself."""
        for first in range(len(output) + 1):
            for second in range(first, len(output) + 1):
                yield [output[:first], output[first:second], output[second:]]
        yield [output[at : at + 1] for at in range(len(output))]

    def test_within_line(self) -> None:
        """The text of a prompt within a line is output."""
        for output in (
            b"type racadm>> to see",
            b"\r\n racadm>>",
            b"x\x1b[0mracadm>>",
            b"\n\x1b]racadm>>",
            b"\nracadm>",
            b"\nRACADM>>",
            b"\n" + b"y" * 5000 + b"racadm>>",
            b"\n" + b"\0" * 5000 + b"racadm>>",
        ):
            if len(output) < 100:
                for parts in self.cuts(output):
                    self.assertEqual(shown(DELL, parts), (output, False), parts)
            else:
                self.assertEqual(shown(DELL, [output]), (output, False))
                halves = [output[:2500], output[2500:]]
                self.assertEqual(shown(DELL, halves), (output, False))
                single = [output[at : at + 1] for at in range(len(output))]
                self.assertEqual(shown(DELL, single), (output, False))

    def test_after_the_end(self) -> None:
        """Nothing goes to the shell, and nothing comes from it."""
        guard = Guard(DELL)
        self.assertEqual(guard.to_machine(b"ls\r"), b"ls\r")
        self.assertTrue(guard.from_machine(b"\r\nracadm>>").has_ended)
        self.assertEqual(guard.to_machine(b"reset\r"), b"")
        output = guard.from_machine(b"secret")
        self.assertEqual((output.data, output.has_ended, guard.dropped), (b"", True, 0))

    @given(
        st.lists(st.sampled_from([b"\r\n", b"racadm", b">", b">>", b"x", b"\x1b[1m", b" ", b"\0"]))
    )
    @settings(max_examples=300, deadline=None)
    def test_any_cut(self, parts: list[bytes]) -> None:
        """The end is found in the same output, whatever the reads were."""
        whole = shown(DELL, [b"".join(parts)])[1]
        self.assertEqual(shown(DELL, [b"", *parts])[1], whole)

    def test_without_prompt(self) -> None:
        """A console without a shell behind it shows everything."""
        self.assertEqual(shown(OPENBMC, [b"\nracadm>>"]), (b"\nracadm>>", False))

    def test_dear_output(self) -> None:
        """What almost is a prompt is read once: a megabyte of it takes no longer than other output."""
        for piece in (b"\n\x1b[" + b"0" * 4000, b"\n" + b"\x1b[0m" * 1000, b"\nracadm>", b"\r\0"):
            data = piece * ((1 << 20) // len(piece)) + b"xracadm>>"
            self.assertEqual(shown(DELL, [data]), (data, False))
