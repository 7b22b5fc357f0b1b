"""
The health of a running virtual machine, as its QEMU reports it: suspended, or with failed disks.

The texts about a start that failed, a panic and a lost line are in :mod:`.driver`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from math import inf
from typing import Any

from twisted.internet.defer import Deferred

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.control.loop import PokedLoop
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.runtimes.interfaces import MachineFacts
from twisted_exec.runtimes.qemu.qmp import QMPError

_EVENT_INTERVAL_SECONDS = 10.0
_DISK_FULL = "DiskFull"
_MESSAGES = {
    _DISK_FULL: "the host has no space for the machine's disks: the machine is suspended, and resumes "
    "when there is space",
    "InternalError": "QEMU cannot continue (internal-error): power the machine off and on",
}


class GuestHealth:
    """
    Watches one machine and reports changes to its facts.

    Source: QEMU, ``qapi/run-state.json`` (``RunState``) and ``qapi/block-core.json``.
    """

    def __init__(
        self,
        ask: Callable[..., Any],
        facts: MachineFacts,
        reactor: Any,
        *,
        fall_back: Callable[[], bool],
        tidy: Callable[[], None],
        is_idle: Callable[[], bool] = lambda: False,
    ) -> None:
        self._ask = ask
        self._facts = facts
        self._reactor = reactor
        self._fall_back = fall_back
        self._tidy = tidy
        self._is_idle = is_idle
        self._trouble = ""
        self._loop = PokedLoop(self._look, reactor)
        self._every_seconds = 0.0
        self._over = False
        self._event_times: dict[str, float] = {}

    def start(self, every_seconds: float) -> None:
        self._over = False  # true after a failed attempt to start
        self._every_seconds = every_seconds
        self._loop.start()

    def stop(self) -> None:
        self._over = True
        self._loop.stop()

    def event_received(self, event: str, data: dict[str, Any]) -> None:
        # While the disk is full, each ``cont`` causes a RESUME that proves nothing.
        if event == "STOP" or (event == "RESUME" and self._trouble != _DISK_FULL):
            Deferred.fromCoroutine(self._query()).addErrback(lambda failure: None)
        elif event == "BLOCK_IO_ERROR" and data.get("action") != "stop":
            # QEMU reports an I/O error to the guest.
            why = str(data.get("reason") or "input/output error")
            self._post_limited("Warning", "DiskError", f"a disk failed: {why}")
        elif event == "RESET" and data.get("guest"):
            self._post_limited("Normal", "Reset", "the guest restarted")

    def _post_limited(self, type: str, reason: str, message: str) -> None:
        now = self._reactor.seconds()
        if now - self._event_times.get(reason, -_EVENT_INTERVAL_SECONDS) >= _EVENT_INTERVAL_SECONDS:
            self._event_times[reason] = now
            self._facts.event(type, reason, message)

    async def _look(self) -> float:
        if self._over:
            return inf
        await self._query()
        if self._trouble == _DISK_FULL:
            with contextlib.suppress(QMPError, ServiceUnavailable):
                await self._ask("cont")
        self._tidy()
        return self._every_seconds

    async def _query(self) -> None:
        try:
            status = (await self._ask("query-status")).get("status")
        except ServiceUnavailable as error:
            self._set(pb.MACHINE_RUNNING, "NotResponding", error.message)
            return
        except QMPError:
            return  # the machine is ending
        is_idle = status == "paused" and self._is_idle()
        if is_idle or status in ("running", "prelaunch", "shutdown"):
            self._set(pb.MACHINE_RUNNING, "", "")
        elif status == "io-error":
            self._suspended(_DISK_FULL)
        elif status == "internal-error":
            if self._over or self._fall_back():
                self._over = True
            else:
                self._suspended("InternalError")
        else:
            self._set(pb.MACHINE_SUSPENDED, "Paused", f"QEMU has stopped the machine: {status}")

    def _suspended(self, reason: str) -> None:
        self._set(pb.MACHINE_SUSPENDED, reason, _MESSAGES[reason])

    def _set(self, state: int, reason: str, message: str) -> None:
        if self._over or reason == self._trouble:
            return
        self._trouble = reason
        self._facts.changed(state, reason, message)
        if reason:
            self._facts.event("Warning", reason, message)
        else:
            self._facts.event("Normal", "Resumed", "the machine has resumed")
