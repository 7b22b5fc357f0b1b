"""
Searches the output of machines for the patterns of alerts.

Matches wait until their owner, a poollet, acknowledges them; then the machine's cursor on disk
moves past them.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.conditions import ConditionValue
from twisted_exec.api.status import BadRequest, ServiceUnavailable, TooManyRequests
from twisted_exec.iri.protos import console_pb2
from twisted_exec.journal.interfaces import IFollowedJournal
from twisted_exec.program.disk_thread import AtOnce, Files
from twisted_exec.program.turns import ShortTurns
from twisted_exec.runtimes.alerts.health import health_condition, unhealthy
from twisted_exec.runtimes.alerts.lines import LineReader, Piece
from twisted_exec.runtimes.alerts.rules import AlertRule, Rules, check_rules, read_rules
from twisted_exec.runtimes.alerts.saved_state import SavedState
from twisted_exec.runtimes.alerts.search import IJobs, OutputSearch, search_processes

SEARCH_DELAY_SECONDS = 0.2
"""Output is collected for this time before it is searched."""
TURN_SECONDS = 0.002
QUIET_SECONDS = 0.25
"""A line without an end is searched after this time without output."""
SAVE_SECONDS = 30.0
"""Interval of writing the positions of machines."""
FIRST_SECONDS = 600
"""Output before the first search of a machine is searched if it is not older than this."""

MOST_WAITING = 1000
"""
While so many matches of an owner wait for an acknowledgement, no more output is searched for it.
"""
MOST_LISTED = 100
MOST_OWNERS = 16
EXPIRY_SECONDS = 600
"""An owner without calls for this time makes way for another owner."""
MOST_WAIT_SECONDS = 25

MOST_BATCH_BYTES = 64 << 10
"""Output of machines with the same patterns that goes to a process together."""
MOST_HELD_BYTES = 4 << 20
"""Output that is being searched, or waits for it; the rest stays in the journals."""
_ENTRY_BYTES = 256

_CURSOR = "alerts"
_SHOWN_BYTES = 256
_NANOSECONDS = 10**9


@dataclass(eq=False)
class _Searched:
    uid: str
    journal: IFollowedJournal
    watcher: Callable[[], None]
    owner: _Owner | None = None
    rule: AlertRule | None = None
    reader: LineReader | None = None
    saved: int = -1
    unsearched: int | None = None
    """The offset from which on output is being searched."""
    batches: int = 0
    """Number of batches with output of the machine."""
    is_removed: bool = False
    waiting: OrderedDict[int, int] = field(default_factory=OrderedDict)
    """Offsets of the lines of matches that are not acknowledged, by number."""
    quiet: IDelayedCall | None = None
    quiet_position: int = -1
    suppressed: dict[str, int] = field(default_factory=dict)

    @property
    def safe_offset(self) -> int:
        """The offset from which another runtime has to search."""
        assert self.reader is not None
        unsearched = [] if self.unsearched is None else [self.unsearched]
        return min([self.reader.line_start, *unsearched, *self.waiting.values()])


@dataclass(eq=False)
class _Owner:
    rules: Rules = field(default_factory=Rules)
    requested: console_pb2.SetAlertsRequest | None = None
    matches: deque[tuple[console_pb2.AlertMatch, _Searched]] = field(default_factory=deque)
    listing: Deferred[console_pb2.ListMatchesResponse] | None = None
    limit: IDelayedCall | None = None
    parked: dict[_Searched, None] = field(default_factory=dict)
    called_at: float = 0.0


@dataclass(eq=False)
class _Output:
    searched: _Searched
    owner: _Owner
    reader: LineReader
    pieces: list[Piece]
    is_rest: bool = False


@dataclass(eq=False)
class _Batch:
    rule: AlertRule
    outputs: list[_Output] = field(default_factory=list)
    size: int = 0
    excluded: dict[_Searched, None] = field(default_factory=dict)


class ConsoleAlerts:
    """The alerts of one runtime."""

    _log = Logger()

    def __init__(
        self,
        path: str,
        reactor: Any,
        now_nanoseconds: Callable[[], int],
        make_jobs: Callable[[Any], IJobs] = search_processes,
        thread: Files | None = None,
    ) -> None:
        self._path, self._reactor, self._now = path, reactor, now_nanoseconds
        self._instance = secrets.token_hex(8)
        self._number = 0
        self._saved_state = SavedState(path, thread or AtOnce())
        self._owners: dict[str, _Owner] = {}
        self._machines: dict[str, _Searched] = {}
        self._new: dict[_Searched, None] = {}
        self._search = OutputSearch(make_jobs(reactor), reactor, self._suspended)
        self._batches: dict[str, _Batch] = {}
        self._busy: set[str] = set()
        """Keys of rules with a batch in a process."""
        self._held_bytes = 0
        self._turn: IDelayedCall | None = None
        self._saving: IDelayedCall | None = None
        self._stopped = False

    # Machines.

    def add(self, uid: str, journal: IFollowedJournal) -> None:
        """Search a machine's output from now on, if its API object has a UID."""
        if not uid or uid in self._machines or self._stopped:
            return
        searched = _Searched(uid, journal, lambda: self._printed(searched))
        self._machines[uid] = searched
        for owner in self._owners.values():
            self._apply(searched, owner)

    def remove(self, uid: str) -> None:
        searched = self._machines.pop(uid, None)
        if searched is not None:
            searched.is_removed = True
            self._read_all(searched)
            self._end(searched, save=False)
            self._forget(searched)

    def _forget(self, searched: _Searched) -> None:
        if not searched.batches:
            self._saved_state.forget(searched.uid)

    def condition(self, uid: str) -> ConditionValue | None:
        """Return the condition ``ConsoleHealthy`` of a machine; ``None`` if no alert sets it."""
        searched = self._machines.get(uid)
        if searched is None or searched.rule is None or not searched.rule.has_conditions:
            return None
        return health_condition(self._saved_state, searched.journal, uid, searched.rule)

    def stop(self) -> Deferred[None]:
        self._stopped = True
        stopped = self._search.stop()
        for call in (self._turn, self._saving):
            if call is not None and call.active():
                call.cancel()
        for owner in self._owners.values():
            self._answer(owner)
        for searched in list(self._machines.values()):
            self._end(searched, save=True)
        self._machines.clear()
        self._saved_state.save()
        return stopped

    # Calls of owners.

    def set_alerts(
        self, request: console_pb2.SetAlertsRequest
    ) -> Deferred[console_pb2.SetAlertsResponse]:
        check_rules(request)
        return Deferred.fromCoroutine(self._set_alerts(request, self._owner(request.owner)))

    async def _set_alerts(
        self, request: console_pb2.SetAlertsRequest, owner: _Owner
    ) -> console_pb2.SetAlertsResponse:
        owner.requested = request
        suspended = dict(self._search.suspended)
        rules = await read_rules(request, suspended, self._reactor)
        if owner.requested is request and not self._stopped:
            if suspended != self._search.suspended:
                rules = replace(rules, generation="")  # the owner shall send them again
            self._apply_rules(owner, rules)
        problems = [
            console_pb2.AlertProblem(pattern=number, message=problem)
            for number, problem in rules.problems.items()
        ]
        return console_pb2.SetAlertsResponse(problems=problems)

    def _apply_rules(self, owner: _Owner, rules: Rules) -> None:
        owner.rules = rules
        for searched in list(self._machines.values()):
            if searched.owner is owner and searched.uid not in rules.by_uid:
                self._end(searched, save=True)
            else:
                self._apply(searched, owner)
        self._search.keep({key for each in self._owners.values() for key in each.rules.groups})

    def _suspended(self, key: str) -> None:
        for owner in self._owners.values():
            if key in owner.rules.groups:
                owner.rules = replace(owner.rules, generation="")
                self._answer(owner)

    def list_matches(
        self, request: console_pb2.ListMatchesRequest
    ) -> Deferred[console_pb2.ListMatchesResponse]:
        owner = self._owner(request.owner)
        if request.instance == self._instance:
            self._acknowledge(owner, request.acknowledged)
        self._answer(owner)
        if self._stopped:
            raise ServiceUnavailable("the machine runtime is shutting down")
        if owner.matches or not request.wait_seconds:
            return succeed(self._matches(owner))
        owner.listing = Deferred()
        seconds = min(request.wait_seconds, MOST_WAIT_SECONDS)
        owner.limit = self._reactor.callLater(seconds, self._answer, owner)
        return owner.listing

    def _owner(self, name: str) -> _Owner:
        if not name or len(name) > _SHOWN_BYTES:
            raise BadRequest("the owner of alerts needs a name")
        if name not in self._owners:
            self._expire_owner()
            self._owners[name] = _Owner()
        owner = self._owners[name]
        owner.called_at = self._reactor.seconds()
        return owner

    def _expire_owner(self) -> None:
        if len(self._owners) < MOST_OWNERS:
            return
        name, oldest = min(self._owners.items(), key=lambda item: item[1].called_at)
        if self._reactor.seconds() - oldest.called_at < EXPIRY_SECONDS:
            raise TooManyRequests(f"{MOST_OWNERS} owners have alerts here, the limit", 60)
        del self._owners[name]
        for searched in list(self._machines.values()):
            if searched.owner is oldest:
                self._end(searched, save=True)

    def _matches(self, owner: _Owner) -> console_pb2.ListMatchesResponse:
        listed = [match for match, _ in list(owner.matches)[:MOST_LISTED]]
        return console_pb2.ListMatchesResponse(
            instance=self._instance, generation=owner.rules.generation, matches=listed
        )

    def _answer(self, owner: _Owner) -> None:
        listing, owner.listing = owner.listing, None
        if owner.limit is not None and owner.limit.active():
            owner.limit.cancel()
        if listing is not None:
            listing.callback(self._matches(owner))

    def _acknowledge(self, owner: _Owner, number: int) -> None:
        changed: dict[_Searched, None] = {}
        while owner.matches and owner.matches[0][0].number <= number:
            match, searched = owner.matches.popleft()
            searched.waiting.pop(match.number, None)
            changed[searched] = None
        if changed:
            self._saved_state.save()  # before the cursors: matches behind them are not found again
        for searched in changed:
            self._save(searched)
        if changed:
            parked, owner.parked = owner.parked, {}
            for searched in parked:
                self._printed(searched)

    # Searching.

    def _apply(self, searched: _Searched, owner: _Owner) -> None:
        rule = owner.rules.by_uid.get(searched.uid)
        if rule is None:
            return
        searched.owner, searched.rule = owner, rule
        if searched.reader is None:
            self._printed(searched)  # short turns of the reactor open the journals of many machines

    def _open(self, searched: _Searched, rule: AlertRule) -> LineReader:
        reader = LineReader(searched.journal, self._first_offset(searched, rule))
        searched.reader = reader
        searched.journal.watch(searched.watcher)
        return reader

    def _first_offset(self, searched: _Searched, rule: AlertRule) -> int:
        journal, since = searched.journal, rule.since
        saved = journal.cursor(_CURSOR).load()
        if saved is not None and saved == journal.end:
            searched.saved = saved
            return saved
        if saved is None:
            since = max(since, self._now() - FIRST_SECONDS * _NANOSECONDS)
        first = journal.printed_since(since)
        return int(min(max(first, saved or 0), journal.end))

    def _printed(self, searched: _Searched) -> None:
        if searched.rule is None or self._stopped:
            return
        self._new[searched] = None
        if self._turn is None:
            self._turn = self._reactor.callLater(SEARCH_DELAY_SECONDS, self._take_turn)
        if self._saving is None:
            self._saving = self._reactor.callLater(SAVE_SECONDS, self._save_positions)

    def _take_turn(self) -> None:
        self._turn = None
        until = perf_counter() + TURN_SECONDS
        while self._new and self._held_bytes < MOST_HELD_BYTES:
            searched = next(iter(self._new))
            del self._new[searched]
            try:
                if self._read(searched):
                    self._new[searched] = None
            except OSError:
                searched.journal.watch(searched.watcher)  # where to begin is on the disk
            if perf_counter() >= until:
                break
        for key in [each for each in self._batches if each not in self._busy]:
            self._begin(key)
        if self._new and self._held_bytes < MOST_HELD_BYTES:
            self._continue()

    def _continue(self) -> None:
        if self._turn is None and not self._stopped:
            self._turn = self._reactor.callLater(0, self._take_turn)

    def _read(self, searched: _Searched) -> bool:
        owner, rule = searched.owner, searched.rule
        if owner is None or rule is None or (searched.batches and not searched.is_removed):
            return False
        reader = searched.reader or self._open(searched, rule)
        if len(owner.matches) >= MOST_WAITING:
            owner.parked[searched] = None
            return False
        batch = self._batches.setdefault(rule.key, _Batch(rule))
        if batch.size >= MOST_BATCH_BYTES and not searched.is_removed:
            batch.excluded[searched] = None
            return False
        first = reader.line_start
        pieces = reader.read()
        if pieces:
            if searched.unsearched is None:
                searched.unsearched = first
            self._add(batch, _Output(searched, owner, reader, pieces))
            return searched.is_removed and not reader.at_end
        if not reader.at_end:
            return True
        self._wait_for_rest(searched)
        return False

    def _wait_for_rest(self, searched: _Searched) -> None:
        reader = searched.reader
        if reader is not None and reader.incomplete and searched.quiet is None:
            searched.quiet_position = reader.position
            searched.quiet = self._reactor.callLater(QUIET_SECONDS, self._look_at_rest, searched)

    def _look_at_rest(self, searched: _Searched) -> None:
        searched.quiet = None
        reader, rule, owner = searched.reader, searched.rule, searched.owner
        if reader is None or rule is None or owner is None or not reader.incomplete:
            return
        if searched.batches or reader.position != searched.quiet_position or not reader.at_end:
            self._wait_for_rest(searched)
            return
        batch = self._batches.setdefault(rule.key, _Batch(rule))
        piece = Piece(reader.line_start, reader.incomplete, is_line=True)
        searched.unsearched = reader.line_start
        self._add(batch, _Output(searched, owner, reader, [piece], is_rest=True))
        self._continue()

    def _read_all(self, searched: _Searched) -> None:
        until = perf_counter() + TURN_SECONDS
        while perf_counter() < until and self._read(searched):
            pass
        self._continue()

    # Batches.

    def _add(self, batch: _Batch, output: _Output) -> None:
        size = _ENTRY_BYTES + sum(len(piece.data) for piece in output.pieces)
        batch.outputs.append(output)
        batch.size += size
        self._held_bytes += size
        output.searched.batches += 1

    def _begin(self, key: str) -> None:
        batch = self._batches.pop(key)
        self._new.update(batch.excluded)
        if batch.outputs:
            self._busy.add(key)
            searching = Deferred.fromCoroutine(self._search_batch(batch))
            searching.addErrback(self._failed).addBoth(self._searched, batch)

    async def _search_batch(self, batch: _Batch) -> None:
        turns = ShortTurns(self._reactor)
        outputs = [each for each in batch.outputs for _ in each.pieces]
        pieces = [piece for each in batch.outputs for piece in each.pieces]
        async for matches in self._search.find(batch.rule.key, batch.rule.groups, pieces):
            for match in matches:
                await turns.breathe()
                output = outputs[match.piece]
                searched, reader = output.searched, output.reader
                if self._stopped or not (searched.is_removed or searched.reader is reader):
                    continue
                if output.is_rest and reader.line_start == match.offset:
                    # The rest of the output is another line: the match must not be found twice.
                    reader.consume()
                self._matched(output, batch.rule, match.offset, match.text, match.numbers)

    def _failed(self, failure: Failure) -> None:
        self._log.failure("alerts", failure)

    def _searched(self, _: object, batch: _Batch) -> None:
        if self._stopped:
            return
        self._busy.discard(batch.rule.key)
        self._held_bytes -= batch.size
        for output in batch.outputs:
            searched = output.searched
            searched.batches -= 1
            if searched.is_removed:
                self._forget(searched)
            elif not searched.batches:
                searched.unsearched = None
                if searched.reader is None or not searched.reader.at_end:
                    self._new[searched] = None
                elif not output.is_rest:
                    self._wait_for_rest(searched)
        if self._new or self._batches:
            self._continue()

    def _matched(
        self, output: _Output, rule: AlertRule, offset: int, text: bytes, numbers: Sequence[int]
    ) -> None:
        searched = output.searched
        time_ns = 0
        with suppress(OSError):  # the time of the search is near
            time_ns = 0 if searched.is_removed else searched.journal.time_at(offset)
        time_ns = time_ns or self._now()
        ids = set()
        for pattern in (rule.patterns[number] for number in numbers):
            if pattern.id in ids:
                continue
            ids.add(pattern.id)
            if pattern.condition:
                self._set_unhealthy(searched, pattern, offset, text)
            last = self._saved_state.reported(searched.uid, pattern.id)
            if last is not None and time_ns - last < pattern.throttle_seconds * _NANOSECONDS:
                count = searched.suppressed.get(pattern.id, 0)
                searched.suppressed[pattern.id] = count + (time_ns > last)
                continue
            self._saved_state.report(searched.uid, pattern.id, time_ns)
            self._number += 1
            match = console_pb2.AlertMatch(
                number=self._number,
                machine_uid=searched.uid,
                pattern_id=pattern.id,
                epoch=searched.journal.epoch,
                offset=offset,
                time=time_ns,
                line=text,
                suppressed=searched.suppressed.pop(pattern.id, 0),
            )
            output.owner.matches.append((match, searched))
            searched.waiting[self._number] = offset
            self._reactor.callLater(0, self._answer, output.owner)

    def _set_unhealthy(
        self, searched: _Searched, pattern: console_pb2.AlertPattern, offset: int, text: bytes
    ) -> None:
        why = unhealthy(pattern, searched.journal, offset, text[:_SHOWN_BYTES])
        self._saved_state.set_unhealthy(searched.uid, why)

    # Positions.

    def _end(self, searched: _Searched, *, save: bool) -> None:
        searched.journal.unwatch(searched.watcher)
        if searched.quiet is not None:
            searched.quiet.cancel()
            searched.quiet = None
        if save:
            self._save(searched)
        self._new.pop(searched, None)
        if searched.owner is not None:
            searched.owner.parked.pop(searched, None)
        searched.reader = searched.rule = searched.owner = None

    def _save(self, searched: _Searched) -> None:
        if searched.reader is None or searched.safe_offset == searched.saved:
            return
        try:
            searched.journal.cursor(_CURSOR).save(searched.safe_offset)
        except OSError as error:
            why = error.strerror
            self._log.warn("the position of alerts cannot be written: {why}", why=why)
        else:
            searched.saved = searched.safe_offset

    def _save_positions(self) -> None:
        self._saving = None
        until = perf_counter() + TURN_SECONDS
        for searched in self._machines.values():
            if searched.reader is not None and searched.safe_offset != searched.saved:
                self._save(searched)
                if perf_counter() >= until:
                    self._saving = self._reactor.callLater(0.05, self._save_positions)
                    return
