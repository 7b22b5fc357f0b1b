"""Lists of the runtime's machines, and machines there that no Machine has any more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.status import APIError
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.poollet.machines.actor import ActionRunner
from twisted_exec.poollet.machines.config import machine_uid
from twisted_exec.poollet.machines.references import Object
from twisted_exec.program.turns import ShortTurns

MAX_ORPHANS = 100
"""Limit of orphans deleted after one listing; the next listing continues."""


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
        machines_by_uid: dict[str, list[pb.Machine]] = {}
        turns = ShortTurns(self.clock)
        for machine in listed.machines:
            await turns.breathe()
            if uid := machine_uid(machine, self.actor.config.dialect):
                machines_by_uid.setdefault(uid, []).append(machine)
        for uid, several in machines_by_uid.items():
            if len(several) > 1:
                machines_by_uid[uid] = distinct(several)
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
