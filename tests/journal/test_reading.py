"""
Tests for :mod:`twisted_exec.journal.reading`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests import soak
from tests.journal.support import (
    MILLISECOND,
    SECOND,
    JournalTestCase,
    contents,
    sync,
)
from twisted_exec.journal.interfaces import EventKind

_STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("append"),
            st.sampled_from([b"a", b"\n", b"bc\r\n", b"x" * 9_000, b"y\n" * 40_000]),
        ),
        st.tuples(
            st.just("wait"), st.sampled_from([MILLISECOND, SECOND, 86_400 * SECOND, -SECOND])
        ),
        st.tuples(st.sampled_from(["boot", "roll", "seal", "rest", "sync", "restart"]), st.none()),
    ),
    max_size=40,
)


class OracleTests(JournalTestCase):
    """A journal on disk answers as one that has everything in memory."""

    @settings(
        max_examples=soak.figure_of("journal.test_reading.OracleTests.test_oracle"), deadline=None
    )
    @given(_STEPS, st.data())
    def test_oracle(self, steps: list[tuple[str, Any]], data: st.DataObject) -> None:
        """Whatever is appended, sealed, restarted: bytes, lines, times and boots are right."""
        self.path, self.now = self.mktemp(), 1_000 * SECOND
        journal, run = self.journal(), 1
        self.assertEqual(journal.end, 0)
        last = self.now
        whole, times, boots = bytearray(), [], []
        for step, value in steps:
            if step == "append":
                journal.append(value)
                whole += value
                last = max(self.now, last)
                times += [last] * len(value)
            elif step == "wait":
                self.now += value
            elif step == "boot":
                journal.booted("Started")
                boots.append(len(whole))
                last = max(self.now, last)
            elif step == "roll":
                journal.open_files().roll()
            elif step == "seal":
                self.disk.seal_all()
            elif step == "rest":
                journal.rest()
            elif step == "sync":
                sync(journal)
            else:
                run += 1
                journal = self.journal(run=run)
        self.assertEqual((journal.start, journal.end), (0, len(whole)))
        self.assertEqual(contents(journal), whole)
        self.assertEqual([each.offset for each in journal.boots()], boots)
        self.assertEqual([each.number for each in journal.boots()], list(range(1, len(boots) + 1)))
        kinds = [each.kind for each in journal.events(0, journal.end)]
        self.assertEqual(kinds, [EventKind.BOOT] * len(boots))
        lines = whole.split(b"\n")
        ended = [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
        for count in (0, 1, 2, 7, 50_000, 10**12):
            last = b"".join(ended[-count:]) if count else b""
            self.assertEqual(journal.last_lines(count), len(whole) - len(last))
        end = data.draw(st.integers(0, len(whole)))
        before = re.findall(rb"[^\n]*\n|[^\n]+", whole[:end])
        for count in (1, 3):
            last = b"".join(before[-count:])
            self.assertEqual(journal.last_lines(count, end), end - len(last))
        if not whole:
            return
        for at in data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=6)):
            self.assertEqual(journal.line_start(at), whole.rfind(b"\n", 0, at) + 1)
            # Output within 10 ms shares a time; in memory, output within one line and one second.
            self.assertLessEqual(abs(journal.time_at(at) - times[at]), SECOND)
        for moment in data.draw(st.lists(st.sampled_from(times), max_size=4)):
            for exact in (moment + 1, moment + 3600 * SECOND):
                first = bisect_left(times, exact)
                expected = whole.rfind(b"\n", 0, first) + 1 if first < len(times) else len(whole)
                found = journal.printed_since(exact)
                resolution = SECOND + 10 * MILLISECOND
                if found > expected:  # all that is missing was printed right after the moment
                    self.assertLessEqual(times[found - 1] - exact, resolution)
                elif found < expected:  # the line that is too many ended right before the moment
                    ended = whole.find(b"\n", found) % len(whole)
                    self.assertLessEqual(exact - times[ended], resolution)
