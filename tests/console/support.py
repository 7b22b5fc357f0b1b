"""Readers of logs, for tests without a server."""

from __future__ import annotations

from twisted.internet.task import Clock

from twisted_exec.api.logs import LogOptions
from twisted_exec.console.log import JournalLogReader, selected_range
from twisted_exec.journal.interfaces import IReadableJournal
from twisted_exec.program.turns import ShortTurns


def log_reader(
    journal: IReadableJournal, options: LogOptions, machine: str = "vm"
) -> JournalLogReader:
    """
    Return a reader of a log, found in one turn.

    :raises BadRequest: see :func:`.selected_range`.
    """
    finding = selected_range(journal, options, machine, ShortTurns(Clock()))
    try:
        finding.send(None)
    except StopIteration as found:
        return JournalLogReader(journal, options, found.value)
    raise AssertionError("a turn of a clock that stands still does not end")
