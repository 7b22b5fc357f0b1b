"""
``python -m tests.fuzz.costs [SECONDS]``: look for output of machines that takes the most time a byte.

For each reader of such output a search keeps the dearest output of each kind so far, changes it and
measures again, and so climbs to those that cost most.  It ends with 1 if a cost grows faster than the output.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from twisted.internet.task import Clock

from tests.console.support import log_reader
from tests.linear import assert_even, cpu_seconds
from tests.recording.support import info, signer
from twisted_exec.api.logs import LogOptions
from twisted_exec.api.patterns import SUPPORTED, Pattern, PatternSet, Search
from twisted_exec.cli.commands.log_output import LogOutput
from twisted_exec.cli.console.script import Expect
from twisted_exec.cli.console.scrollback import Scrollback
from twisted_exec.cli.console.shell_run import ShellRun
from twisted_exec.cli.fleet.prefixed_lines import PrefixedLines, cut
from twisted_exec.console.answers import Answers
from twisted_exec.console.notices import RoleNotices
from twisted_exec.console.output import HarmlessOutput
from twisted_exec.journal.journal import Journal
from twisted_exec.recording.writer import RecordingWriter
from twisted_exec.runtimes.alerts.lines import LineReader, matching_lines
from twisted_exec.runtimes.last_lines import last_line
from twisted_exec.runtimes.lines.redfish.entry import EntryDialogue
from twisted_exec.runtimes.lines.redfish.guard import Guard
from twisted_exec.runtimes.lines.redfish.quirks import find, load
from twisted_exec.screens.rendering import for_terminals
from twisted_exec.shipping.lines import read_lines
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.escape_sequences import PlainLines, QueryFilter, Stripper, strip
from twisted_exec.wire.telnet import Option, TelnetClient
from twisted_exec.wire.terminal_modes import Modes

Feed = Callable[[bytes], object]

_LINE = b"x" * (16 << 10)
"""Fills the window of a reader that searches its last output at each piece."""
_PATTERNS = [Pattern("panic"), Pattern("READY [0-9]+$", is_regex=SUPPORTED)]


def _alerts() -> Feed:
    journal, patterns = Journal(), PatternSet(_PATTERNS)
    reader = LineReader(journal, 0)

    def feed(data: bytes) -> None:
        journal.append(data)
        while not reader.at_end:
            for piece in reader.read():
                for _ in matching_lines(piece, patterns):
                    pass

    return feed


def _log(**options: Any) -> Callable[[], Feed]:
    def make() -> Feed:
        journal = Journal()
        reader = log_reader(journal, LogOptions(follow=True, **options))

        def feed(data: bytes) -> None:
            journal.append(data)
            while reader.read() is not None:
                pass

        return feed

    return make


def _harmless() -> Feed:
    output, offset = HarmlessOutput(Journal()), 0

    def feed(data: bytes) -> None:
        nonlocal offset
        output.of(offset, data)
        offset += len(data)

    return feed


def _answers() -> Feed:
    return Answers(Clock(), lambda: None, lambda data: None).printed


def _shipping() -> Feed:
    journal, offset = Journal(), 0

    def feed(data: bytes) -> None:
        nonlocal offset
        journal.append(data)
        for line in read_lines(journal, offset, len(data), 4 << 10):
            strip(line.text)
            offset = line.end

    return feed


def _recording() -> Feed:
    writer, offset = RecordingWriter(info(), signer()), 0
    writer.begin()

    def feed(data: bytes) -> None:
        nonlocal offset
        offset += len(data)
        writer.output(offset, offset, data)

    return feed


def _last_line() -> Feed:
    journal = Journal()

    def feed(data: bytes) -> None:
        before = journal.end
        journal.append(data)
        if before >> 12 != journal.end >> 12:  # not for each piece: it is read once in some seconds
            last_line(journal)

    return feed


def _expect() -> Feed:
    clock = Clock()
    script = Expect(clock, [(each.text, Search(each)) for each in _PATTERNS[1:]], limited=False)
    script.resumeProducing()
    clock.pump([0.1] * 4)
    script.received(_LINE)
    return script.received


def _run() -> Feed:
    script = ShellRun(Clock(), "true")
    script.received(_LINE)
    return script.received


def _grep() -> Feed:
    return LogOutput(lambda data: None, Search(_PATTERNS[1]), has_colours=True).feed


def _scrollback() -> Feed:
    scrollback = Scrollback()

    def feed(data: bytes) -> None:
        scrollback.add(data)
        scrollback.last_line()

    return feed


def _prefixed() -> Feed:
    lines, buffer = PrefixedLines("vm", keeps_colours=True, for_terminal=True), bytearray()

    def feed(data: bytes) -> None:
        buffer.extend(data)
        while end := cut(buffer, 1 << 10):
            lines.feed(bytes(buffer[:end]))
            del buffer[:end]

    return feed


def _bmc_guard() -> Feed:
    return Guard(find(load(), "Dell Inc.", "", "")).from_machine


def _bmc_entry() -> Feed:
    quirk = find(load(), "Lenovo", "", "")
    return partial(EntryDialogue(quirk.entry_commands, quirk, 0.0).receive, now=0.0)


def _telnet() -> Feed:
    end = TelnetClient(offers=(*TelnetClient.OFFERS, Option.COM_PORT))
    end.begin()

    def feed(data: bytes) -> None:
        with suppress(RemoteProtocolError):
            for _ in end.receive(data):
                pass
        end.to_send()

    return feed


def _emulator() -> Feed:
    from twisted_exec.screens.emulator import AvtScreen

    screen, fed = AvtScreen(80, 24), 0

    def feed(data: bytes) -> None:
        nonlocal fed
        screen.feed(data.decode("utf-8", "replace"))
        if fed >> 12 != (fed + len(data)) >> 12:  # not for each piece
            for_terminals(screen.key_frame(), 80)
        fed += len(data)

    return feed


READERS: dict[str, Callable[[], Feed]] = {
    "alerts": _alerts,
    "answers": _answers,
    "emulator": _emulator,
    "expect": _expect,
    "grep": _grep,
    "harmless": _harmless,
    "last line": _last_line,
    "log": _log(),
    "modes": lambda: Modes().feed,
    "notices": lambda: RoleNotices().feed,
    "plain lines": lambda: PlainLines().feed,
    "plain log": _log(plain=True, timestamps=True),
    "prefixed": _prefixed,
    "queries": lambda: QueryFilter().feed,
    "recording": _recording,
    "run": _run,
    "scrollback": _scrollback,
    "shipping": _shipping,
    "stripper": lambda: Stripper().feed,
    "telnet": _telnet,
    "bmc guard": _bmc_guard,
    "bmc entry": _bmc_entry,
}
"""Everything that reads what machines print, by name: each makes a reader of a new stream."""

INTRODUCERS = tuple(
    b"\x1b" + rest for rest in (b"[?", b"[", b"]4;", b"]5522;", b"]", b"P", b"_G", b"")
)
PIECES = [
    *(*INTRODUCERS, b"\x1b\\", b"\x07", b"\x18", b"\x05", b"[", b"]"),
    *(b"\x9b", b"\x9d", b"\x90", b"\x9a", b"\x9f", b"\xc2", b"\xc2\x9b", b"\xe2", b"\x99"),
    *("\U0001f600".encode(), "\u6f22".encode(), "e\u0301".encode(), b"\xcc\x81", b"\xc3\xa9"),
    *(b"\xff", b"\xff\xfa", b"\xff\xf0"),  # of telnet
    *(b"\x00", b"\x08", b"\r", b"\n", b"\r\n", b"\r\r", b"\t", b" ", b"x", b"x" * 70),
    *(b"0", b"6n", b"11;", b"?", b";", b":", b"$q", b"a=q", b",i=", b"q=2", b"c", b"m", b"31m"),
    *(b"t", b"2048h", b"Z", b"1337;", b"Report", b"type=read", b"999b", b"`", b"H", b"r", b"="),
    *(b"\r\n[twisted-exec: ", b"]\r\n", b"\r\n  ", b"panic", b"READY 1", b"[y/n] ", b"login: "),
    *(b"racadm>", b">>", b"system", b">", b"\x1b[0"),  # of shells of BMCs
    *(b"\x1b]28747;R", b'"', b"\\", b" prin", b" printf '\\33]28747;R1a2b3c4d", b" \r", b"\x1b[C"),
]
SPLITS = (1, 7, 512, 64 << 10)


@dataclass(frozen=True)
class Output:
    """
    One kind of output, of any size.

    :param start: before the unit, which is repeated.
    :param split: bytes of one piece.
    """

    start: bytes
    unit: bytes
    split: int

    @property
    def kind(self) -> tuple[bytes, int]:
        """Outputs of one kind compete, so one that is dear does not end the search for others."""
        return next(filter(self.start.startswith, INTRODUCERS), b""), self.split

    def pieces(self, size: int) -> Iterator[bytes]:
        data = (self.start + self.unit * (size // len(self.unit) + 1))[:size]
        return (data[at : at + self.split] for at in range(0, size, self.split))

    def changed(self, source: random.Random) -> Output:
        """Return this output with one change."""
        kind = source.randrange(5)
        if kind == 0:
            return replace(self, split=source.choice(SPLITS))
        if kind == 1:
            return replace(self, start=self.kind[0] + _text(source, 1))
        if kind == 2:
            return replace(self, unit=_text(source, 3, least=1))
        cut_at = source.randrange(len(self.unit) + 1)
        unit = self.unit[:cut_at] + source.choice(PIECES) + self.unit[cut_at + kind % 2 :]
        return replace(self, unit=unit[-200:])


def _text(source: random.Random, most: int, least: int = 0) -> bytes:
    return b"".join(source.choices(PIECES, k=source.randint(least, most)))


def any_output(source: random.Random) -> Output:
    start = source.choice((b"", *INTRODUCERS)) + _text(source, 1)
    return Output(start, _text(source, 3, least=1), source.choice(SPLITS))


def cost(make: Callable[[], Feed], output: Output, size: int) -> float:
    """Return the nanoseconds of CPU that a byte takes."""
    feed, pieces = make(), output.pieces(size)

    def feed_all() -> None:
        for piece in pieces:
            feed(piece)

    return cpu_seconds(feed_all) * 1e9 / size


_COLOURED = b"\x1b[31mred\x1b[0m plain\r\n"
_LEAST_NANOSECONDS = 1_000_000
"""What takes less grows too little to tell."""
_TIMES = 2
"""How much larger the outputs of :func:`main` are than those of tests."""


def size_for(output: Output) -> int:
    """Return the size of an output for a measurement of about a millisecond."""
    return 1 << 10 if output.split == 1 else 8 << 10


def dearest(name: str, seconds: float, source: random.Random) -> list[Output]:
    """
    Climb for some seconds of CPU; return the dearest output of each kind, the dearest first.

    Small pieces cost more with any output, so a cost is compared with that of coloured text in the
    same pieces.
    """
    make = READERS[name]
    normal = {}
    for split in SPLITS:
        text = Output(b"", _COLOURED, split)
        normal[split] = min(cost(make, text, size_for(text)) for _ in range(5))
    found: dict[tuple[bytes, int], tuple[float, Output]] = {}
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        if found and source.random() < 0.5:
            _, output = source.choice(list(found.values()))
            output = output.changed(source)
        else:
            output = any_output(source)
        times = cost(make, output, size_for(output)) / normal[output.split]
        if output.kind not in found or found[output.kind][0] < times:
            found[output.kind] = times, output
    return [output for _, output in sorted(found.values(), key=lambda each: -each[0])]


def assert_no_faster_than_output(name: str, output: Output, times: int = 1) -> None:
    """Fail if a byte of four times as much output takes much more time."""
    make, size = READERS[name], size_for(output) * times
    assert_even(partial(cost, make, output), size, f"{name}, {output}", _LEAST_NANOSECONDS)


def main(seconds: float) -> int:
    source, code = random.Random(), 0
    for name, make in READERS.items():
        first, *others = dearest(name, seconds / len(READERS), source)
        text = replace(first, start=b"", unit=_COLOURED)
        figures = [min(cost(make, each, 64 << 10) for _ in range(3)) for each in (first, text)]
        print(f"{name}: {figures[0]:.0f} ns a byte, coloured text {figures[1]:.0f}: {first}")
        for output in (first, *others[:4]):
            try:
                assert_no_faster_than_output(name, output, 1 if output.split == 1 else _TIMES)
            except AssertionError as error:
                print(f"FAILED {error}", flush=True)
                code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 60))
