"""
Hot plugging of disks.

To unplug a card, QEMU sends a request to the guest (ACPI) and reports when the guest has released
the card.  A guest may also release a card without a request; then only the block device behind it
remains to be removed.

Source: QEMU, ``docs/interop/qmp-intro.rst`` and ``qapi/{block-core,qdev}.json``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError

from twisted_exec.api.status import Conflict
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.runtimes.qemu.command_line import Disk, node_name
from twisted_exec.runtimes.qemu.disks import Disks
from twisted_exec.runtimes.qemu.qmp import QMPError


class HotPlugSlots:
    """
    The PCI slots of one running machine.

    :param ask: coroutine function that sends a QMP command with arguments.
    :param machine: QEMU's machine type.
    :param unplug_seconds: time that the guest has to release a disk.
    """

    def __init__(
        self,
        ask: Callable[..., Any],
        disks: Disks,
        machine: str,
        reactor: Any,
        unplug_seconds: float,
    ) -> None:
        self._ask = ask
        self._disks = disks
        self._machine = machine
        self._reactor, self._unplug_seconds = reactor, unplug_seconds
        self._waiting: dict[str, Deferred[None]] = {}
        self._ejected: set[str] = set()

    def ejected(self, card: str) -> None:
        """Handle ``DEVICE_DELETED``, with or without a request of ours."""
        self._ejected.add(card)
        waiting = self._waiting.get(card)
        if waiting is not None and not waiting.called:
            waiting.callback(None)

    async def attach(self, volume: pb.Volume) -> None:
        """
        Create and plug a disk.

        :raises APIError: that failed; the disk is deleted again.
        """
        self._must_be_pluggable()
        disk = await self._disks.make(volume)
        try:
            await self._ask("blockdev-add", **disk.blockdev())
            await self._plug(disk)
        except QMPError as error:
            self._disks.remove(volume.name)
            raise Conflict(f"QEMU does not accept volume {volume.name!r}: {error}") from None

    async def _plug(self, disk: Disk) -> None:
        self._ejected.discard(disk.device()["id"])
        try:
            await self._ask("device_add", **disk.device())
        except QMPError:
            await self._ask("blockdev-del", **{"node-name": disk.node})
            raise

    async def detach(self, name: str) -> None:
        """
        Unplug and delete a disk.

        :raises Conflict: the guest does not release the disk, or the machine type has no hot
            plugging.
        """
        self._must_be_pluggable()
        card = Disk(name, "").device()["id"]
        released = self._waiting.setdefault(card, Deferred())
        try:
            await self._unplug(card, released)
            await self._ask("blockdev-del", **{"node-name": node_name(name)})
        except TimeoutError:
            raise Conflict(
                f"the guest has not released volume {name!r} for {self._unplug_seconds:.0f} s: unmount it "
                "there, or power the machine off"
            ) from None
        except QMPError as error:
            raise Conflict(f"QEMU does not release volume {name!r}: {error}") from None
        finally:
            self._waiting.pop(card, None)
        self._disks.remove(name)

    async def _unplug(self, card: str, released: Deferred[None]) -> None:
        if card in self._ejected:
            return
        try:
            await self._ask("device_del", id=card)
        except QMPError as error:
            if error.kind != "DeviceNotFound":  # else the guest is releasing it now
                raise
        await released.addTimeout(self._unplug_seconds, self._reactor)

    async def resize(self, volume: pb.Volume) -> None:
        """
        Enlarge a disk.

        :raises Conflict: QEMU refused.
        """
        size = self._disks.size(volume)
        try:
            await self._ask("block_resize", **{"node-name": node_name(volume.name), "size": size})
        except QMPError as error:
            raise Conflict(f"volume {volume.name!r} cannot be resized: {error}") from None

    def _must_be_pluggable(self) -> None:
        if self._machine != "pc":
            raise Conflict(
                f"disks of a running {self._machine} machine cannot be changed: power it off, or use a "
                "class with machine: pc"
            )
