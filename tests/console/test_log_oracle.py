"""
Logs of journals in memory and on disk against an oracle that remembers every byte.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.console.support import log_reader
from tests.journal.support import ManualDisk, close_segments
from twisted_exec.api.logs import LogOptions
from twisted_exec.api.status import BadRequest
from twisted_exec.journal.journal import Journal

SECOND = 10**9


@dataclass
class Oracle:
    """
    Every byte with its time, and where boots begin.

    :ivar now: the time in nanoseconds.
    """

    output: bytearray = field(default_factory=bytearray)
    times: list[int] = field(default_factory=list)
    boots: list[int] = field(default_factory=list)
    now: int = 0

    def append(self, text: bytes) -> None:
        self.output += text
        self.times += [self.now] * len(text)

    def log(self, options: LogOptions) -> bytes | None:
        """The log; ``None`` if there is no such boot."""
        first, last = options.from_offset or 0, len(self.output)
        if options.to_offset is not None:
            last = options.to_offset
        boot = -1 if options.previous else options.boot
        if boot is not None and (boot or self.boots):
            if not len(self.boots) - 1 + boot >= 0:
                return None
            bounds = [*self.boots, last]
            first, last = bounds[len(self.boots) - 1 + boot :][:2]
        if options.until_nanoseconds is not None:
            last = max(first, min(last, self._since(options.until_nanoseconds)))
        lowest = first
        if options.tail_lines is not None:
            starts = _line_starts(bytes(self.output[:last]))
            if starts[-1] == last:
                starts.pop()
            tail = starts[len(starts) - options.tail_lines :] if options.tail_lines else []
            lowest = max(first, 0 if options.tail_lines > len(starts) else (tail or [last])[0])
        if options.since_nanoseconds is not None:
            lowest = max(lowest, self._since(options.since_nanoseconds))
        return bytes(self.output[min(lowest, last) : last])

    def _since(self, moment: int) -> int:
        """Return the start of the first line with output at a time or later."""
        at = next((at for at, time in enumerate(self.times) if time >= moment), None)
        return len(self.output) if at is None else self.output.rfind(b"\n", 0, at) + 1


def _line_starts(output: bytes) -> list[int]:
    starts = [0]
    for at, byte in enumerate(output):
        following = output[at + 1 : at + 2]
        is_end = byte == 0x0D and following not in (b"", b"\r", b"\n")
        if byte == 0x0A or (is_end and output[starts[-1] : at].strip(b"\r")):
            starts.append(at + 1)
    return starts


_STEPS = st.lists(
    st.sampled_from(["boot", "seal", "wait"])
    | st.sampled_from(
        [
            b"a",
            b"one\r\n",
            b"two\nthree",
            b"\n",
            b"x" * 5000 + b"\n",
            b"\xff\r",
            b"r" * 40_000 + b"\r",
        ]
    ),
    max_size=20,
)
_MOMENTS = st.none() | st.integers(0, 20).map(lambda minutes: minutes * 60 * SECOND)
_OPTIONS = st.one_of(
    st.builds(
        LogOptions,
        boot=st.none() | st.integers(-3, 0),
        tail_lines=st.none() | st.integers(0, 9),
        since_nanoseconds=_MOMENTS,
        until_nanoseconds=_MOMENTS,
    ),
    st.builds(LogOptions, previous=st.just(True), tail_lines=st.none() | st.integers(0, 9)),
)


class OracleTests(SynchronousTestCase):
    """Each selection is that of the oracle."""

    def setUp(self) -> None:
        self.addCleanup(close_segments)

    @given(_STEPS, st.lists(_OPTIONS, min_size=1, max_size=4), st.floats(0, 1), st.floats(0, 1))
    def test_selections(
        self,
        steps: list[str | bytes],
        selections: list[LogOptions],
        first: float,
        last: float,
    ) -> None:
        """Boots, tails and times select the same from memory, open and sealed segments."""
        oracle = Oracle()
        with tempfile.TemporaryDirectory() as path:
            disk = ManualDisk(path)
            journals = [Journal(lambda: oracle.now), Journal(lambda: oracle.now, disk)]
            for step in steps:
                oracle.now += 60 * SECOND
                if isinstance(step, bytes):
                    oracle.append(step)
                elif step == "boot":
                    oracle.boots.append(len(oracle.output))
                for journal in journals:
                    if isinstance(step, bytes):
                        journal.append(step)
                    elif step == "boot":
                        journal.booted("Started")
                if step == "seal" and oracle.output:
                    files = journals[1].open_files()
                    assert files is not None
                    files.roll()
                    disk.seal_all()
                    journals[1].rest()
            low, high = sorted(int(each * len(oracle.output)) for each in (first, last))
            ranged = LogOptions(from_offset=low, to_offset=high)
            for options in (LogOptions(), ranged, *selections):
                expected = oracle.log(options)
                for journal in journals:
                    self.assertEqual(log(journal, options), expected, options)


def log(journal: Journal, options: LogOptions) -> bytes | None:
    """Read a whole log; ``None`` if the journal has no such boot."""
    try:
        reader = log_reader(journal, options)
    except BadRequest:
        return None
    text = b""
    while (piece := reader.read()) is not None:
        text += piece
    return text
