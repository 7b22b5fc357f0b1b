"""
The records of a runtime's machines, and its newest events, sans I/O.
"""

from __future__ import annotations

import re
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from twisted_exec.api.dialects import Owner, owner_of
from twisted_exec.api.display import listed
from twisted_exec.api.status import BadRequest, NotFound, TooManyRequests
from twisted_exec.iri.protos import event_pb2, meta_pb2
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.streaming.subject import Subject

_MAX_EVENTS = 1000
_MAX_MACHINES = 10_000
_MAX_LISTED = 5
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass
class MachineRecord:
    """
    One machine: desired ``spec`` and observed ``state``.

    :param ignition_data: secret; not in ``spec``, because clients can read that.
    """

    metadata: meta_pb2.ObjectMetadata
    spec: pb.MachineSpec
    state: int = pb.MACHINE_PENDING
    conditions: list[pb.MachineCondition] = field(default_factory=list)
    ignition_data: bytes = field(default=b"", repr=False)

    def set_state(
        self, state: int, reason: str = "", message: str = "", now_nanoseconds: int = 0
    ) -> None:
        """
        Set the observed state.

        :param reason: why the condition ``Ready`` is false, in one word; empty for no such
            condition.
        """
        self.state = state
        self.conditions = []
        if reason:
            self.conditions.append(
                pb.MachineCondition(
                    type="Ready",
                    status="False",
                    reason=reason,
                    message=message,
                    last_transition_time=now_nanoseconds,
                )
            )

    @property
    def id(self) -> str:
        return self.metadata.id

    @property
    def class_name(self) -> str:
        return str(getattr(self.spec, "class"))

    @cached_property
    def _owner(self) -> Owner:
        return owner_of(self.metadata.labels)

    @property
    def uid(self) -> str:
        """UID of the API object; empty if the poollet does not pass it on."""
        return self._owner.uid

    @property
    def journal_key(self) -> str:
        """The key of the console's journal: the UID if it is a UUID, else the id."""
        return self.uid if _UUID.fullmatch(self.uid) else self.id

    @property
    def namespace(self) -> str:
        return self._owner.namespace

    @property
    def name(self) -> str:
        return self._owner.name

    @property
    def label(self) -> str:
        """``NAMESPACE/NAME``, or the id if the name is unknown."""
        return f"{self.namespace}/{self.name}" if self.name else self.id

    def subject(self) -> Subject:
        return Subject(
            session="",
            namespace=self.namespace,
            machine=self.name or self.id,
            uid=self.uid,
            resource=self._owner.resource,
        )

    def facts(self) -> dict[str, str]:
        """Return the machine's name, namespace, UID and class."""
        return {
            "machine": self.name or self.id,
            "namespace": self.namespace,
            "uid": self.uid,
            "class": self.class_name,
        }

    def to_machine(self) -> pb.Machine:
        is_on = self.state in (pb.MACHINE_RUNNING, pb.MACHINE_SUSPENDED)
        volume_state = pb.VOLUME_ATTACHED if is_on else pb.VOLUME_PENDING
        interface_state = pb.NETWORK_INTERFACE_ATTACHED if is_on else pb.NETWORK_INTERFACE_PENDING
        status = pb.MachineStatus(
            observed_generation=self.metadata.generation,
            state=self.state,  # type: ignore[arg-type]
            machine_conditions=self.conditions,
            volumes=[
                pb.VolumeStatus(name=each.name, handle=self._handle(each.name), state=volume_state)
                for each in self.spec.volumes
            ],
            network_interfaces=[
                pb.NetworkInterfaceStatus(
                    name=each.name, handle=self._handle(each.name), state=interface_state
                )
                for each in self.spec.network_interfaces
            ],
        )
        return pb.Machine(metadata=self.metadata, spec=self.spec, status=status)

    def stored(self) -> pb.Machine:
        """Return metadata and spec with the ignition data, for :meth:`MachineRecords.add`."""
        machine = pb.Machine(metadata=self.metadata, spec=self.spec)
        machine.spec.ignition_data = self.ignition_data
        return machine

    def _handle(self, name: str) -> str:
        return f"{self.id}/{name}"


@dataclass
class MachineRecords:
    """
    All machines of a runtime.

    :param quantities: the maximal number of machines of each class, spare machines included.
    """

    quantities: Mapping[str, int]
    events: deque[event_pb2.Event] = field(default_factory=lambda: deque(maxlen=_MAX_EVENTS))
    _by_id: dict[str, MachineRecord] = field(default_factory=dict)
    _by_uid: dict[str, MachineRecord] = field(default_factory=dict)

    def __iter__(self) -> Iterator[MachineRecord]:
        return iter(list(self._by_id.values()))

    def __len__(self) -> int:
        return len(self._by_id)

    def create(self, template: pb.Machine, now_nanoseconds: int) -> tuple[MachineRecord, bool]:
        """
        Create a machine, unless there is one for the same UID.

        :return: the machine, and true if it is new.
        :raises BadRequest: there is no such class.
        :raises TooManyRequests: the class, or the runtime, has its maximal number of machines.
        """
        existing = self.of_uid(owner_of(template.metadata.labels).uid)
        if existing is not None:
            return existing, False
        self._check_quantity(str(getattr(template.spec, "class")))
        metadata = meta_pb2.ObjectMetadata(
            id=uuid.uuid4().hex,
            annotations=template.metadata.annotations,
            labels=template.metadata.labels,
            generation=1,
            created_at=now_nanoseconds,
        )
        record = self.add(pb.Machine(metadata=metadata, spec=template.spec))
        return record, True

    def add(self, machine: pb.Machine) -> MachineRecord:
        """Add a machine with its metadata, for example one from an earlier runtime."""
        spec = pb.MachineSpec()
        spec.CopyFrom(machine.spec)
        record = MachineRecord(machine.metadata, spec, ignition_data=spec.ignition_data)
        spec.ignition_data = b""
        self._by_id[record.id] = record
        if record.uid:
            self._by_uid[record.uid] = record
        return record

    def _check_quantity(self, class_name: str) -> None:
        if class_name not in self.quantities:
            offered = ", ".join(sorted(self.quantities)) or "none"
            raise BadRequest(
                f"this runtime has no machine class {class_name!r}; it offers: {offered}"
            )
        same = [record for record in self._by_id.values() if record.class_name == class_name]
        if len(same) >= self.quantities[class_name] or len(self._by_id) >= _MAX_MACHINES:
            raise TooManyRequests(
                f"this runtime has {len(same)} of {self.quantities[class_name]} machines of class "
                f"{class_name!r}: delete one, or use another pool{_broken(same)}",
                retry_after_seconds=30,
            )

    def get(self, machine_id: str) -> MachineRecord:
        """:raises NotFound: there is no machine with this id."""
        record = self._by_id.get(machine_id)
        if record is None:
            raise NotFound("machines", machine_id)
        return record

    def of_uid(self, uid: str) -> MachineRecord | None:
        return self._by_uid.get(uid)

    def of_journal(self, key: str) -> MachineRecord | None:
        return self._by_uid.get(key) or self._by_id.get(key)

    def find(self, filter: pb.MachineFilter) -> list[MachineRecord]:
        """Return the machines with this id and all of these labels; an empty filter matches all."""
        return [
            record
            for record in self._by_id.values()
            if _matches(record.metadata, filter.id, filter.label_selector)
        ]

    def remove(self, machine_id: str) -> None:
        record = self._by_id.pop(machine_id, None)
        if record is not None and self._by_uid.get(record.uid) is record:
            del self._by_uid[record.uid]

    def set_power(self, record: MachineRecord, power: int) -> bool:
        """Set the desired power; return true if it was different."""
        if record.spec.power == power:
            return False
        record.spec.power = power  # type: ignore[assignment]
        record.metadata.generation += 1
        return True

    def add_event(
        self, record: MachineRecord, type: str, reason: str, message: str, now_nanoseconds: int
    ) -> None:
        self.events.append(
            event_pb2.Event(
                spec=event_pb2.EventSpec(
                    involved_object_meta=record.metadata,
                    reason=reason,
                    message=message,
                    type=type,
                    event_time=now_nanoseconds,
                    action=reason,
                )
            )
        )

    def find_events(self, filter: pb.EventFilter) -> list[event_pb2.Event]:
        """Return Events by machine and time, oldest first; a time of 0 is no limit."""
        first, last = filter.events_from_time, filter.events_to_time
        return [
            event
            for event in self.events
            if _matches(event.spec.involved_object_meta, filter.id, filter.label_selector)
            and first <= event.spec.event_time
            and (not last or event.spec.event_time <= last)
        ]


def _broken(machines: Iterable[MachineRecord]) -> str:
    broken = [
        f'"{record.label}" ({record.conditions[0].reason})'
        for record in machines
        if record.state == pb.MACHINE_PENDING and record.conditions
    ]
    return f"; not running: {listed(broken, _MAX_LISTED)}" if broken else ""


def _matches(metadata: meta_pb2.ObjectMetadata, id: str, selector: Mapping[str, str]) -> bool:
    if id and metadata.id != id:
        return False
    return all(metadata.labels.get(key) == value for key, value in selector.items())
