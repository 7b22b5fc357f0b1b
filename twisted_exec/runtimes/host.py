"""
A complete runtime: machines, stream server and runtime interface.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.python.components import proxyForInterface

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.console.acts import MESSAGE, Act
from twisted_exec.console.shared_console_limits import ConsoleLimits
from twisted_exec.iri.interfaces import (
    IConsoleAlerts,
    IConsoleRecordings,
    IMachineLogs,
    IMachineRuntime,
)
from twisted_exec.iri.request_cache import RequestCache, StreamLinks
from twisted_exec.journal.interfaces import IFollowedJournal
from twisted_exec.journal.store import JournalMetrics
from twisted_exec.program.interfaces import IAuditSink
from twisted_exec.runtimes.processes import ProcessTable
from twisted_exec.runtimes.recordings.metrics import RecordingMetrics
from twisted_exec.runtimes.service import MARK, MachineRuntime
from twisted_exec.runtimes.serving.resume_keys import read_secret
from twisted_exec.runtimes.serving.server import StreamHost
from twisted_exec.runtimes.serving.stream_server import StreamServer
from twisted_exec.runtimes.settings import Settings
from twisted_exec.screens.from_journal import Screens
from twisted_exec.screens.pool import ScreenProcesses
from twisted_exec.shipping.interfaces import Labels
from twisted_exec.shipping.service import Shipping
from twisted_exec.streaming.subject import Subject
from twisted_exec.tls.files import owner_only


class _RuntimeInterfaces(IMachineRuntime, IMachineLogs, IConsoleAlerts, IConsoleRecordings):
    """The interfaces that :class:`MachineRuntime` provides."""


# Forwards all methods to ``runtime``; start and stop are those of AsyncService.
_Runtime: Any = proxyForInterface(_RuntimeInterfaces, "runtime")


class RuntimeHost(_Runtime, StreamHost):  # type: ignore[misc]
    """
    Runs a runtime, and provides its interfaces.

    :raises TargetError: the IRI target is not valid.
    """

    label = "machine runtime"
    streams: StreamServer

    def __init__(
        self,
        settings: Settings,
        audit: IAuditSink,
        reactor: Any,
        *,
        checks: Sequence[Callable[[], object]] = (),
    ) -> None:
        StreamHost.__init__(self, settings, reactor, checks)
        table = ProcessTable(reactor, MARK)
        cache = self.cache = RequestCache(reactor)
        self.runtime = MachineRuntime(
            [each.build(reactor, table) for each in settings.classes],
            table,
            reactor,
            settings,
            state_directory=settings.state_directory,
            cache=cache,
            links=StreamLinks(
                exec_url=lambda token: self.streams.exec_url(token),
                log_url=lambda token: self.streams.log_url(token),
                recording_url=lambda token: self.streams.recording_url(token),
                is_awaited=lambda user, uid: self.streams.kept_sessions.waits_for(user, uid),
            ),
            journal_opened=self._ship,
            acted=self._acted,
            limits=ConsoleLimits(restart_seconds=settings.resume_seconds),
        )
        self._screen_processes = ScreenProcesses(reactor)
        self.streams = StreamServer(
            self._listening,
            self.runtime.attach,
            cache,
            audit,
            reactor,
            drain_seconds=settings.drain_seconds,
            limits=settings.sessions,
            read_log=self.runtime.read_log,
            resume_seconds=settings.resume_seconds,
            rejoin_seconds=settings.rejoin_seconds,
            screens=Screens(self._screen_processes, reactor),
            recordings=lambda: self.runtime.recordings,
        )
        self._serve(self.runtime, state=self._probe_state, classes=self._probe_classes)
        self.shipping: Shipping | None = None
        if settings.shipping is not None:
            self.shipping = Shipping(settings.shipping, self.streams.registry, reactor)
        JournalMetrics(self.streams.registry, self.runtime.journals)
        if settings.recording.make_store is not None:
            self.runtime.upload_metrics.register(self.streams.registry)
        RecordingMetrics(self.streams.registry, lambda: self.runtime.machines.recordings)

    def _acted(self, act: Act) -> None:
        sessions = self.streams.sessions.with_id(act.session)
        subject = sessions[0].subject if sessions else Subject(act.session, user=act.user)
        fields = {"other_user": act.other, "reason": act.message}
        if act.kind == MESSAGE:
            fields = {"message": act.message}
        self.streams.sessions.trail.record(act.kind, subject, fields)

    def _ship(self, facts: Mapping[str, str], journal: IFollowedJournal) -> None:
        if self.shipping is not None:
            labels = Labels(
                machine=facts.get("machine", ""),
                namespace=facts.get("namespace", ""),
                uid=facts.get("uid", ""),
                machine_class=facts.get("class", ""),
                others=self.shipping.labels,
            )
            self.shipping.add(labels, journal)

    async def start(self) -> None:
        self._check()
        await self.runtime.prepare()
        secret = os.path.join(self.settings.state_directory, "resume-secret")
        self.streams.kept_sessions.start(read_secret(secret))
        await self._listen(lambda: self.runtime.directory)
        self.runtime.startService()
        if self.shipping is not None:
            self.shipping.startService()
            for journal, facts in self.runtime.journals.deleted_machines():
                self._ship(facts, journal)  # lines that the last runtime has not sent
        self.streams.startService()
        self._serve_iri()

    async def stop(self) -> None:
        # Poollets always wait for matches of alerts: without answers their calls would take seconds.
        self.runtime.machines.stop_reports()
        stopping = [
            Deferred.fromCoroutine(self._stop_iri()),
            self.streams.stopService(),
            self._screen_processes.close(),
        ]
        if self.shipping is not None and self.shipping.running:
            stopping.append(self.shipping.stopService())  # before the journals close
        await gatherResults(stopping)
        await self.runtime.stopService()

    # Probes.

    def _probe_state(self) -> Deferred[object]:
        journals = self.runtime.journals
        if journals.stalled:
            raise OSError(f"{self.settings.state_directory}: {journals.stalled}")
        return journals.thread.run(self._write_probe)

    def _write_probe(self) -> None:
        path = os.path.join(self.settings.state_directory, "probe")
        with open(path, "w", opener=owner_only) as file:
            file.write("x")
        os.unlink(path)

    def _probe_classes(self) -> None:
        if not self.runtime.offered:
            raise ServiceUnavailable(
                "no machine class is offered; the log says what each one lacks"
            )
