"""
The tools that only read: machines, screens, logs, people at a console.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.interfaces import IDelayedCall

from twisted_exec.api.dialects import DIALECTS, Dialect
from twisted_exec.api.logs import LogOptions
from twisted_exec.api.patterns import Pattern, PatternError, Search
from twisted_exec.api.screens import ScreenForm, ScreenOptions
from twisted_exec.api.status import APIError, BadGateway
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.console.menu import MachineAccess
from twisted_exec.cli.console.people import Person, people_at
from twisted_exec.cli.failures import InputError
from twisted_exec.cli.mcp.consoles import AGENT
from twisted_exec.cli.mcp.output import (
    ANSWER_BYTES,
    FACTS_BYTES,
    Enough,
    Transcript,
    screen_rows,
)
from twisted_exec.cli.mcp.table import DEFAULT_TAIL
from twisted_exec.cli.times import since_time
from twisted_exec.kube.downloads import MachineLog
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.machine_requests import opened_among, served_dialects
from twisted_exec.kube.transport import IdleConnections
from twisted_exec.streaming.text.download import Download
from twisted_exec.streaming.text.resumption import ResumedLog
from twisted_exec.wire.log_frames import FrameDecoder

REQUEST_SECONDS = 30.0
READ_SECONDS = 20.0
"""Time limit of one look at a log."""
PAGE = 100
"""Machines of one answer."""
_LOOK_SECONDS = 0.1
"""How often the last line, which has no end yet, is searched at most: a prompt has none."""
_WAITED_BYTES = 8 << 10

Facts = dict[str, Any]


def search_of(pattern: str | None) -> Search | None:
    """
    Return the search for a regular expression.

    :raises InputError: it is not valid.
    """
    if pattern is None:
        return None
    try:
        return Search(Pattern(pattern, is_regex=True))
    except PatternError as problem:
        raise InputError(f"pattern: {problem}") from None


def moment(name: str, text: str | None) -> int | None:
    """
    Return nanoseconds since the epoch.

    :param name: of the parameter.
    :raises InputError: it is no time.
    """
    if text is None:
        return None
    try:
        return since_time(text)
    except argparse.ArgumentTypeError as problem:
        raise InputError(f"{name}: {problem}") from None


class Reader:
    """
    Reads as one user.

    :ivar config: with the namespace.
    :param connections: for all requests but those for logs.
    """

    def __init__(self, config: ClientConfig, reactor: Any, connections: IdleConnections) -> None:
        self.config, self._reactor, self._connections = config, reactor, connections

    def client(self) -> CommandClient:
        return self._client(self.config)

    def _client(self, config: ClientConfig) -> CommandClient:
        return CommandClient(
            config,
            self._reactor,
            timeout_seconds=REQUEST_SECONDS,
            agent=AGENT,
            connections=self._connections,
        )

    async def machines(self, namespace: str, selector: str, offset: int) -> Facts:
        """Return a page of machines; an empty namespace is all."""
        client = self.client()
        machines: list[Mapping[str, Any]] = []
        most = offset + PAGE
        try:
            for dialect in await served_dialects(client, DIALECTS):
                listed = await client.list_first(
                    dialect.workload,
                    namespace,
                    most=most - len(machines),
                    label_selector=selector,
                    trim=_short,
                )
                machines += [{**each, "resource": dialect.workload.qualified} for each in listed]
                if len(machines) > most:
                    break
        finally:
            await client.close()
        shown = _fitting(machines[offset:most])
        facts: Facts = {"machines": shown}
        if len(machines) > offset + len(shown):
            facts["next_offset"] = offset + len(shown)
        return facts

    async def screen(self, namespace: str, name: str, at: int | None) -> tuple[Facts, list[str]]:
        """Return facts about a screen, and its rows."""
        query = ScreenOptions(at_nanoseconds=at, form=ScreenForm.JSON).query()

        def read(config: ClientConfig, dialect: Dialect) -> Deferred[Object]:
            return self._client(config).read(dialect.workload, name, namespace, "screen", query)

        screen = await opened_among(
            read, self.config, self._reactor, DIALECTS, REQUEST_SECONDS, None
        )
        try:
            lines = [str(each["text"]) for each in screen["lines"]]
            cursor = screen.get("cursor") or {}
            facts: Facts = {
                "epoch": str(screen["epoch"])[:64],
                "next_offset": int(screen["offset"]),
                "columns": int(screen["columns"]),
                "rows": int(screen["rows"]),
                "cursor": {key: int(cursor[key]) for key in ("row", "column") if key in cursor},
            }
        except (ValueError, LookupError, TypeError, RecursionError):
            raise BadGateway(
                "the server's answer is no screen; its release may be an earlier one"
            ) from None
        return facts, screen_rows(lines)

    async def is_off(self, namespace: str, name: str) -> bool:
        """Return whether the power of a machine is to be Off; false if the user may not read the machine."""
        client = self.client()
        try:
            for dialect in DIALECTS:
                try:
                    machine = await client.get(dialect.workload, name, namespace)
                except APIError:
                    continue
                return bool((machine.get("spec") or {}).get("power") == "Off")
            return False
        finally:
            await client.close()

    async def log(
        self, namespace: str, name: str, arguments: Mapping[str, Any]
    ) -> tuple[Facts, list[str]]:
        """Return facts about a part of a log, and its rows."""
        search = search_of(arguments.get("pattern"))
        offset, since = arguments.get("offset"), moment("since", arguments.get("since"))
        tail = arguments.get("tail_lines")
        if offset is not None and (since is not None or tail is not None):
            raise InputError("offset goes without since and tail_lines")
        if offset is None and since is None and tail is None and search is None:
            tail = DEFAULT_TAIL
        options = LogOptions(
            from_offset=offset,
            epoch=arguments.get("epoch"),
            since_nanoseconds=since,
            until_nanoseconds=moment("until", arguments.get("until")),
            tail_lines=tail,
            frames=True,
        )
        reading = _Reading(self._reactor, search=search)
        is_whole = await reading.read(self._log(namespace, name), options, READ_SECONDS)
        facts = reading.facts()
        if not is_whole:
            facts["more"] = True
        return facts, reading.rows

    async def wait(
        self, namespace: str, name: str, arguments: Mapping[str, Any]
    ) -> tuple[Facts, list[str]]:
        """Wait for a pattern in a log; return as :meth:`log` does."""
        search = search_of(arguments["pattern"])
        offset = arguments.get("offset")
        options = LogOptions(
            follow=True,
            from_offset=offset,
            epoch=arguments.get("epoch"),
            tail_lines=None if offset is not None else 0,
            frames=True,
        )
        waiting = _Reading(self._reactor, until=search)
        timeout_seconds = arguments["timeout_seconds"]
        is_over = await waiting.read(self._log(namespace, name), options, timeout_seconds)
        facts = {"matched": waiting.has_matched, **waiting.facts()}
        if is_over and not waiting.has_matched:
            facts["log"] = "ended; list_machines says whether the machine still exists"
        return facts, waiting.rows

    def _log(self, namespace: str, name: str) -> MachineLog:
        return MachineLog(
            self.config,
            namespace,
            name,
            self._reactor,
            timeout_seconds=REQUEST_SECONDS,
            agent=AGENT,
            has_frames=True,
        )

    async def people(self, namespace: str, name: str) -> Sequence[Person]:
        """Return the sessions at a console."""
        return await people_at(self.access(namespace, name), "")

    def access(self, namespace: str, name: str) -> MachineAccess:
        """Return the machine at its API server."""
        config = replace(self.config, namespace=namespace)
        return MachineAccess(config, DIALECTS[0], name, AGENT, self._reactor, self._connections)


class _Reading:
    """
    A look at a log: what is there now, as far as it fits.

    :param until: go on until a line matches.
    """

    def __init__(
        self, reactor: Any, *, search: Search | None = None, until: Search | None = None
    ) -> None:
        self._reactor, self._search, self._until = reactor, search, until
        self._decoder = FrameDecoder()
        self._epoch = ""
        self._asked: LogOptions | None = None
        self._transcript: Transcript | None = None
        self._reading: Deferred[None] | None = None
        self._looking: IDelayedCall | None = None  # for a last line without its end

    async def read(self, log: MachineLog, options: LogOptions, seconds: float) -> bool:
        """
        Read a log.

        :return: whether it was read to its end.
        :raises APIError: the server refuses, or cannot be reached.
        """
        self._asked = options
        reading = Deferred.fromCoroutine(log.read(options, self._received, self._opened))
        self._reading = reading.addTimeout(seconds, self._reactor)
        try:
            await self._reading
        except (Enough, TimeoutError):
            return False
        except CancelledError:
            if not self.has_matched:
                raise
            return False
        finally:
            if self._looking is not None:
                self._looking.cancel()
            if self._transcript is not None:
                self._transcript.finish()
        return True

    def _look(self) -> None:
        self._looking = None
        if self.has_matched and self._reading is not None:
            self._reading.cancel()

    @property
    def has_matched(self) -> bool:
        """Whether a line ends the wait, also a last one without its end."""
        transcript = self._transcript
        return transcript is not None and (transcript.has_matched or transcript.rest_matches())

    def _opened(self, log: Download | ResumedLog) -> None:
        if not isinstance(log, ResumedLog):
            raise BadGateway(
                "this server's logs have no offsets; its release may be an earlier one"
            )
        position, asked = log.position, self._asked
        assert asked is not None
        self._epoch = position.epoch
        start = position.offset
        # The offset of a journal that is gone says nothing about this one.
        if asked.from_offset is not None and asked.epoch in (None, position.epoch):
            start = asked.from_offset
        self._transcript = Transcript(
            start,
            search=self._search,
            until=self._until,
            limit_bytes=ANSWER_BYTES - FACTS_BYTES if self._until is None else _WAITED_BYTES,
        )

    def _received(self, data: bytes) -> None:
        assert self._transcript is not None  # the log is open
        for frame in self._decoder.feed(data):
            self._transcript.feed(frame)
        if self._until is not None and self._looking is None:
            self._looking = self._reactor.callLater(_LOOK_SECONDS, self._look)

    @property
    def rows(self) -> list[str]:
        return [] if self._transcript is None else self._transcript.rows

    def facts(self) -> Facts:
        facts: Facts = {"epoch": self._epoch}
        return facts if self._transcript is None else facts | self._transcript.facts()


def _fitting(items: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the first items that fit into an answer."""
    size = ANSWER_BYTES - FACTS_BYTES
    for number, item in enumerate(items):
        size -= len(json.dumps(item)) + 2
        if size < 0:
            return items[:number]
    return items


def _short(machine: Mapping[str, Any]) -> dict[str, Any]:
    metadata, spec, status = (machine.get(key) or {} for key in ("metadata", "spec", "status"))
    return {
        "name": str(metadata.get("name") or ""),
        "namespace": str(metadata.get("namespace") or ""),
        "state": str(status.get("state") or "Pending"),
        "power": str(spec.get("power") or "On"),
    }
