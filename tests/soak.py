"""
Tests with two figures: a small one for every run, and a large one for ``tox -e soak``.

Some tests repeat one thing many times, or move many bytes.  They look for an interleaving, a leak
or a cut that is handled badly, and a tenth of the figure finds nearly all of these.  ``FIGURES``
holds both figures of each such test, and the least that the small one must exceed.  A test reads
its figure with :func:`figure`, a decorator with :func:`figure_of`; the environment variable ``SOAK``
selects the large one.

``python -m tests.soak [OPTION ...]``: run exactly these tests under trial with their large figures.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from unittest import TestCase

from tests import tiers


@dataclass(frozen=True)
class Figure:
    """
    How often or how much; for a test that walks over positions, the distance between two of them.

    :ivar default: for every run.
    :ivar soak: for ``tox -e soak``.
    """

    default: int
    soak: int


FIGURES = {
    # MiB.  More than a socket's buffers, 4 MiB on Linux.
    "flows.sessions.test_demo_shell.DemoShellTests.test_flood": Figure(8, 32),
    # MiB.  More than the sockets of three connections take, the more the longer they are read.
    "flows.sessions.test_demo_shell.DemoShellTests.test_reader_that_stops": Figure(40, 160),
    # MiB.  More than the followers' hops and sockets hold, and than a program of tests keeps.
    "flows.sessions.test_logs.FollowTests.test_slow": Figure(16, 64),
    # Viewers of each machine in each round; half as many rounds, but at least one of each order of death.  At
    # least 2: viewers of one machine end in different ways.  A leak of memory shows only after the thousand sessions of the large figure;
    # one of descriptors after a few.
    "flows.sessions.test_many.ManySessionsTests.test_every_order_of_death": Figure(2, 20),
    # Machines.  More than the five that kubectl follows without --max-log-requests.
    "flows.sessions.test_many.ManyLogsTests.test_logs_by_label": Figure(12, 120),
    # Machines.  More than the four calls that keep coming meanwhile.
    "flows.sessions.test_many.ManyPtysTests.test_ptys_under_load": Figure(20, 200),
    # Examples.  Nearly each has 40 steps, also among the first.
    "flows.outages.test_resume_interleavings.InterleavingTests.test_any_order": Figure(20, 200),
    # Examples.  Nearly each has some 60 steps, also among the first.
    "console.test_output.ExactnessTests.test_memory": Figure(30, 300),
    "console.test_output.ExactnessTests.test_disk": Figure(30, 300),
    "console.test_output.ExactnessTests.test_terminal": Figure(30, 300),
    # Examples.  Most have texts of several kinds, also among the first.
    "api.test_yaml_text.YAMLBytesTests.test_request": Figure(30, 300),
    # Notes.  More than the workers of a queue, and than it starts in one turn.
    "contracts.controller.ControllerContract.test_one_fails": Figure(200, 10_000),
    # Lines.  More than a block of 64 KiB, which is 10 923 lines of 6 bytes.
    "contracts.journal.JournalContract.test_lines": Figure(12_000, 90_000),
    # Calls of the disk from one kill to the next.  Less than a round of the scenario, so that each
    # round is cut in many places; prime, so that the places differ from round to round.
    "journal.test_segments.KillTests.test_every_call": Figure(7, 1),
    # Bits from one change to the next.  At most 8: each byte has a bit that changes.
    "journal.test_segments.HeaderTests.test_bits": Figure(7, 1),
    # Bytes from one end of the segment to the next.  Less than a record, so that each one is cut.
    "journal.test_segments.PowerCutTests.test_every_length": Figure(7, 1),
    # Examples.  Hypothesis begins with short lists; a list of a dozen steps is among the first 30.
    "journal.test_reading.OracleTests.test_oracle": Figure(30, 300),
    "journal.test_files.TortureTests.test_every_byte": Figure(50, 400),
    "journal.test_writer_stalls.StallTortureTests.test_every_byte": Figure(30, 300),
    # Lines.  More than the 8192 times that a journal remembers.
    "journal.test_journal.TimeTests.test_bounded": Figure(20_000, 200_000),
    # Journals.  More than return to the disk in one turn (at most 20).
    "journal.test_failing.FullTests.test_many": Figure(100, 1000),
    # Examples.  Lists of a dozen steps are among the first 30.
    "recording.test_growing.RenderTests.test_same_text_each_time": Figure(30, 300),
    "recording.test_writer.WriterTests.test_round_trip": Figure(50, 500),
    # Bytes from one change, or end, to the next.  Less than a line, so that each is hit; prime to
    # 8, so that every bit of a byte takes its turn.
    "recording.test_verification.VerifyTests.test_flipped_bytes": Figure(7, 1),
    "recording.test_verification.VerifyTests.test_truncations": Figure(7, 1),
    # Calls of the disk from one kill to the next.
    "runtimes.recordings.test_kills.KillTests.test_each_call": Figure(3, 1),
    # Kills.  On a busy machine one of four hits a read; at least a few, since each one is at another moment.
    "runtimes.test_terminals_killed.KilledTests.test_kills": Figure(8, 100),
    # MiB.  More than a socket's buffers, 4 MiB on Linux.
    "runtimes.test_pty.TrafficTests.test_much": Figure(6, 64),
    # Processes.  More than the threads of the reactor's pool, 10.
    "runtimes.test_pty.TrafficTests.test_many": Figure(20, 200),
    # Examples.  Nearly each has 60 steps, also among the first.
    "streaming.remotecommand.test_resumable_interleavings.MachineTests.test_exactness": Figure(
        20, 200
    ),
    # Sessions.  If each is kept, their objects must exceed the thousand that may be left.
    "runtimes.serving.test_server.LeakTests.test_sessions": Figure(100, 1000),
    # MiB in each direction.  More than a machine's end buffers (256 KiB).  The test goes on until the
    # buffers of the sockets are full as well and the writer pauses: after 4 MiB on Linux.
    "streaming.test_proxy_chain.ChainTests.test_much": Figure(2, 16),
    # Sessions.  More than four: each of the four endings must come again after the fourth session,
    # whose descriptors are the measure.
    "streaming.test_proxy_chain.ChainTests.test_many": Figure(20, 200),
    # Sessions.  More than twice the eleven ways to end, so that each of them ends at least one, alone or with another.
    "streaming.test_proxy_chain.OneConnectionTests.test_every_order": Figure(40, 4000),
    # Sessions.  A tenth of it, which is the most that may be left, must exceed the few objects that
    # other parts of the process allocate meanwhile.
    "streaming.proxy.test_passing.MemoryTests.test_many": Figure(600, 6000),
}
"""By the name of the method in ``tests``; classes that inherit the test share the figure."""


def figure(test: TestCase) -> int:
    """Return the figure of the test that runs."""
    return figure_of(name(test))


def figure_of(name: str) -> int:
    """Return the figure of the test with this name in ``FIGURES``."""
    found = FIGURES[name]
    return found.soak if is_large() else found.default


def is_large() -> bool:
    """Return whether tests have their large figures. Only then do they look at resident memory."""
    return bool(os.environ.get("SOAK"))


def name(test: TestCase) -> str:
    """Return the test's name in ``FIGURES``, or ``""``."""
    method = test.id().rpartition(".")[2]
    for each in type(test).__mro__:
        name = f"{each.__module__}.{each.__qualname__}.{method}".removeprefix("tests.")
        if name in FIGURES:
            return name
    return ""


def main(arguments: list[str]) -> None:
    """Run trial in place of this program."""
    names = [each.id() for each in tiers.load(["tests"]) if name(each)]
    command = [sys.executable, "-m", "twisted.trial", *arguments, *names]
    os.execve(sys.executable, command, {**os.environ, "SOAK": "1"})


if __name__ == "__main__":
    main(sys.argv[1:])
