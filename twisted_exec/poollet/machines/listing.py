"""Lists of the runtime's machines, and machines there that no Machine has any more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.status import APIError
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.poollet.machines.actor import ActionRunner
from twisted_exec.poollet.machines.config import machine_uid
from twisted_exec.poollet.machines.references import Object

MAX_ORPHANS = 100
"""Limit of orphans deleted after one listing; the next listing continues."""
_AT_ONCE = 5000


def by_uid(machines: Iterable[pb.Machine], dialect: Dialect) -> dict[str, list[pb.Machine]]:
    """Group the runtime's machines by the UID of their Machine."""
    machines_by_uid: dict[str, list[pb.Machine]] = {}
    for machine in machines:
        uid = machine_uid(machine, dialect)
        if uid:
            machines_by_uid.setdefault(uid, []).append(machine)
    return machines_by_uid


def distinct(machines: Iterable[pb.Machine]) -> list[pb.Machine]:
    """Return each machine once, whatever a runtime repeats."""
    unique = {machine.metadata.id: machine for machine in machines}
    return list(unique.values())


@dataclass
class MachineListing:
    """
    One listing of the runtime's machines: groups them by Machine, and deletes orphans.

    A runtime may list anything, such as foreign machines, duplicates, and many thousands. That must
    not block the process or end a machine that this pool did not create.

    :param synced: whether ``machines`` is complete.
    """

    actor: ActionRunner
    clock: IReactorTime
    machines: Callable[[], Iterable[Object]]
    synced: Callable[[], bool]

    _log = Logger()

    async def ask(self) -> dict[str, list[pb.Machine]]:
        """Return the machines by UID of their Machine. Raises :class:`APIError`."""
        listed = await self.actor.runtime.list_machines(pb.ListMachinesRequest())
        machines = listed.machines
        if len(machines) <= _AT_ONCE:
            machines_by_uid = by_uid(machines, self.actor.config.dialect)
        else:
            machines_by_uid = await self._sort_slowly(machines)
        for uid, several in machines_by_uid.items():
            if len(several) > 1:
                machines_by_uid[uid] = distinct(several)
        return machines_by_uid

    async def _sort_slowly(self, machines: Iterable[pb.Machine]) -> dict[str, list[pb.Machine]]:
        machines_by_uid: dict[str, list[pb.Machine]] = {}
        rest = list(machines)
        while rest:
            some, rest = rest[:_AT_ONCE], rest[_AT_ONCE:]
            for uid, ones in by_uid(some, self.actor.config.dialect).items():
                machines_by_uid.setdefault(uid, []).extend(ones)
            # A turn of the reactor, not a pause.
            await deferLater(self.clock, 0)
        return machines_by_uid

    async def clean_up(self, observed: dict[str, list[pb.Machine]]) -> None:
        """
        Delete the runtime's machines whose Machine is no longer in this pool.

        A machine is deleted only if it has this pool's label and the API server has confirmed that:
        the copy behind ``machines`` may be stale.
        """
        config = self.actor.config
        if not self.synced():
            return
        known_uids = {machine["metadata"]["uid"] for machine in self.machines()}
        orphans = [
            machine
            for uid, machines in observed.items()
            if uid not in known_uids
            for machine in machines
            if machine.metadata.labels.get(config.pool_label) == config.pool
        ]
        if not orphans:
            return
        try:
            listed = await self.actor.client.list(
                config.dialect.workload, field_selector=f"{config.dialect.pool_field}={config.pool}"
            )
            existing_uids = {machine["metadata"]["uid"] for machine in listed["items"]}
            orphaned = [
                machine
                for machine in orphans
                if machine_uid(machine, config.dialect) not in existing_uids
            ]
            for orphan in orphaned[:MAX_ORPHANS]:
                uid = machine_uid(orphan, config.dialect)
                self._log.info("deleting orphan {id} of {uid}", id=orphan.metadata.id, uid=uid)
                await self.actor.delete(orphan.metadata.id)
        except APIError as error:
            self._log.warn("cleaning up orphans: {why}", why=error.message)
