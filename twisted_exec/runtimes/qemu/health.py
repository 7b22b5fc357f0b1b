"""
How a running machine is: what QEMU tells, and what it is asked now and then.

A machine may stand still (no room on the host, stopped by somebody) and go on; QEMU may hang, and
then tells nothing.  KVM may fail what a guest does, which emulation can do: then the
machine ends, to be started again.

Source: QEMU, ``qapi/run-state.json`` (``RunState``) and ``qapi/block-core.json``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.runtimes.interfaces import MachineFacts
from twisted_exec.runtimes.qemu.qmp import QMPError

_SELDOM_SECONDS = 10.0
_DISK_FULL = "DiskFull"
_MESSAGES = {
    _DISK_FULL: "the host has no room for the machine's disks: it stands still, and goes on by "
    "itself when there is some",
    "InternalError": "QEMU cannot go on (internal-error): power the machine off and on",
}


class Health:
    """
    Watches one machine and tells its facts what changes.

    :param ask: sends a QMP command with its arguments; a coroutine function.
    :param fall_back: called when KVM fails the machine; :return: whether it ends now.
    :param tidy: called now and then.
    """

    def __init__(
        self,
        ask: Callable[..., Any],
        facts: MachineFacts,
        reactor: Any,
        *,
        fall_back: Callable[[], bool],
        tidy: Callable[[], None],
    ) -> None:
        self._ask = ask
        self._facts = facts
        self._reactor = reactor
        self._fall_back = fall_back
        self._tidy = tidy
        self._trouble = ""
        self._watching: Deferred[None] | None = None
        self._over = False
        self._told_at: dict[str, float] = {}

    def start(self, every_seconds: float) -> None:
        """Ask so often, from now on."""
        self._over = False  # it may have been, of an attempt to start that failed
        self._watching = Deferred.fromCoroutine(self._watch(every_seconds))
        self._watching.addErrback(lambda failure: None)

    def stop(self) -> None:
        """Ask no more."""
        self._over = True
        if self._watching is not None:
            self._watching.cancel()

    def told(self, event: str, data: dict[str, Any]) -> None:
        """An event of QEMU's."""
        # While there is no room it is set going again and again; whether there is is seen later.
        if event == "STOP" or (event == "RESUME" and self._trouble != _DISK_FULL):
            Deferred.fromCoroutine(self._look()).addErrback(lambda failure: None)
        elif event == "BLOCK_IO_ERROR" and data.get("action") != "stop":
            # The guest learns of it as of a disk that fails.
            why = str(data.get("reason") or "input/output error")
            self._seldom("Warning", "DiskError", f"a disk failed: {why}")
        elif event == "RESET" and data.get("guest"):
            self._seldom("Normal", "Reset", "the guest restarted")

    def _seldom(self, type: str, reason: str, message: str) -> None:
        """What a guest can have happen as often as it likes, which would drown all else."""
        now = self._reactor.seconds()
        if now - self._told_at.get(reason, -_SELDOM_SECONDS) >= _SELDOM_SECONDS:
            self._told_at[reason] = now
            self._facts.event(type, reason, message)

    async def _watch(self, every_seconds: float) -> None:
        while not self._over:
            await self._look()
            if self._trouble == _DISK_FULL:
                with contextlib.suppress(QMPError, ServiceUnavailable):
                    await self._ask("cont")
            self._tidy()
            await deferLater(self._reactor, every_seconds)

    async def _look(self) -> None:
        """Tell how the machine is, when that has changed."""
        try:
            status = (await self._ask("query-status")).get("status")
        except ServiceUnavailable as error:
            self._set(pb.MACHINE_RUNNING, "NotResponding", error.message)
            return
        except QMPError:
            return  # it is ending
        if status in ("running", "prelaunch", "shutdown"):
            self._set(pb.MACHINE_RUNNING, "", "")
        elif status == "io-error":
            self._stands_still(_DISK_FULL)
        elif status == "internal-error":
            if self._over or self._fall_back():
                self._over = True
            else:
                self._stands_still("InternalError")
        else:
            self._set(pb.MACHINE_SUSPENDED, "Paused", f"QEMU has stopped it: {status}")

    def _stands_still(self, reason: str) -> None:
        self._set(pb.MACHINE_SUSPENDED, reason, _MESSAGES[reason])

    def _set(self, state: int, reason: str, message: str) -> None:
        if self._over or reason == self._trouble:
            return
        self._trouble = reason
        self._facts.changed(state, reason, message)
        if reason:
            self._facts.event("Warning", reason, message)
        else:
            self._facts.event("Normal", "Resumed", "the machine goes on")
