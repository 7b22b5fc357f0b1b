"""
What the runtime knows of its machines: records, without processes or I/O.

Machines are known by an id that is chosen here, and made at most once for the UID of the
API object that asks for them.  What labels and annotations mean to the poollet is its own
business; they are kept and given back.  The exception is the label with the UID.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from twisted_exec.api.dialects import Owner, owner_of
from twisted_exec.api.status import BadRequest, NotFound, TooManyRequests
from twisted_exec.iri.protos import event_pb2, meta_pb2
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.streaming.interfaces import Subject

_MAX_EVENTS = 1000
_MAX_MACHINES = 10_000


@dataclass
class Record:
    """
    One machine.  ``spec`` is what is wanted, ``state`` what is.

    :param ignition_data: a secret; not in ``spec``, which is told to whoever asks.
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
        What is from now on.

        :param reason: in one word, why it does not run although it was switched on; or empty.
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

    @property
    def _owner(self) -> Owner:
        return owner_of(self.metadata.labels)

    @property
    def uid(self) -> str:
        """Of the API object, or empty when a poollet told none."""
        return self._owner.uid

    @property
    def namespace(self) -> str:
        """Of the API object, or empty."""
        return self._owner.namespace

    @property
    def name(self) -> str:
        """Of the API object, or empty."""
        return self._owner.name

    @property
    def label(self) -> str:
        """``NAMESPACE/NAME``, or the id when nobody told a name."""
        return f"{self.namespace}/{self.name}" if self.name else self.id

    def subject(self) -> Subject:
        """The machine's part of a session's facts."""
        return Subject(
            session="",
            namespace=self.namespace,
            machine=self.name or self.id,
            uid=self.uid,
            resource=self._owner.resource,
        )

    def to_machine(self) -> pb.Machine:
        """A copy, as the interface tells it.  What the machine has, it has while it is on."""
        is_on = self.state in (pb.MACHINE_RUNNING, pb.MACHINE_SUSPENDED)
        volume_state = pb.VOLUME_ATTACHED if is_on else pb.VOLUME_PENDING
        interface_state = pb.NETWORK_INTERFACE_ATTACHED if is_on else pb.NETWORK_INTERFACE_PENDING
        status = pb.MachineStatus(
            observed_generation=self.metadata.generation,
            state=self.state,  # type: ignore[arg-type]
            machine_conditions=self.conditions,
            volumes=[
                pb.VolumeStatus(name=one.name, handle=self._handle(one.name), state=volume_state)
                for one in self.spec.volumes
            ],
            network_interfaces=[
                pb.NetworkInterfaceStatus(
                    name=one.name, handle=self._handle(one.name), state=interface_state
                )
                for one in self.spec.network_interfaces
            ],
        )
        return pb.Machine(metadata=self.metadata, spec=self.spec, status=status)

    def _handle(self, name: str) -> str:
        """The runtime's own word for a part of the machine."""
        return f"{self.id}/{name}"


@dataclass
class Machines:
    """
    All machines of a runtime.

    :param quantities: how many machines of each class may exist.
    """

    quantities: Mapping[str, int]
    events: deque[event_pb2.Event] = field(default_factory=lambda: deque(maxlen=_MAX_EVENTS))
    _by_id: dict[str, Record] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Record]:
        return iter(list(self._by_id.values()))

    def __len__(self) -> int:
        return len(self._by_id)

    def create(self, wanted: pb.Machine, now_nanoseconds: int) -> tuple[Record, bool]:
        """
        A machine as wanted; the one that exists already when its UID does.

        :return: the machine, and whether it is new.
        :raises BadRequest: no such class.
        :raises TooManyRequests: there are as many machines of the class as may be.
        """
        uid = owner_of(wanted.metadata.labels).uid
        for record in self._by_id.values():
            if uid and record.uid == uid:
                return record, False
        self._check_room(str(getattr(wanted.spec, "class")))
        metadata = meta_pb2.ObjectMetadata(
            id=uuid.uuid4().hex,
            annotations=wanted.metadata.annotations,
            labels=wanted.metadata.labels,
            generation=1,
            created_at=now_nanoseconds,
        )
        record = self.add(pb.Machine(metadata=metadata, spec=wanted.spec))
        return record, True

    def add(self, machine: pb.Machine) -> Record:
        """A machine whose metadata and spec are known, such as one that was kept."""
        spec = pb.MachineSpec()
        spec.CopyFrom(machine.spec)
        record = Record(machine.metadata, spec, ignition_data=spec.ignition_data)
        spec.ignition_data = b""
        self._by_id[record.id] = record
        return record

    def _check_room(self, class_name: str) -> None:
        if class_name not in self.quantities:
            offered = ", ".join(sorted(self.quantities)) or "none"
            raise BadRequest(
                f"this runtime has no machine class {class_name!r}; it offers: {offered}"
            )
        count = sum(1 for record in self._by_id.values() if record.class_name == class_name)
        if count >= self.quantities[class_name] or len(self._by_id) >= _MAX_MACHINES:
            raise TooManyRequests(
                f"this runtime has {count} of {self.quantities[class_name]} machines of class "
                f"{class_name!r}: delete one, or use another pool",
                retry_after_seconds=30,
            )

    def get(self, machine_id: str) -> Record:
        """:raises NotFound: nobody has this id."""
        record = self._by_id.get(machine_id)
        if record is None:
            raise NotFound("machines", machine_id)
        return record

    def find(self, filter: pb.MachineFilter) -> list[Record]:
        """Machines with this id and all of these labels; an empty filter means all."""
        return [
            record
            for record in self._by_id.values()
            if _matches(record.metadata, filter.id, filter.label_selector)
        ]

    def remove(self, machine_id: str) -> None:
        self._by_id.pop(machine_id, None)

    def set_power(self, record: Record, power: int) -> bool:
        """Change what is wanted; :return: whether it was something else before."""
        if record.spec.power == power:
            return False
        record.spec.power = power  # type: ignore[assignment]
        record.metadata.generation += 1
        return True

    def add_event(
        self, record: Record, type: str, reason: str, message: str, now_nanoseconds: int
    ) -> None:
        """Remember what happened; the oldest of very many are forgotten."""
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
        """Events of the filter's machines and time, oldest first; 0 is no limit."""
        first, last = filter.events_from_time, filter.events_to_time
        return [
            event
            for event in self.events
            if _matches(event.spec.involved_object_meta, filter.id, filter.label_selector)
            and first <= event.spec.event_time
            and (not last or event.spec.event_time <= last)
        ]


def _matches(metadata: meta_pb2.ObjectMetadata, id: str, selector: Mapping[str, str]) -> bool:
    if id and metadata.id != id:
        return False
    return all(metadata.labels.get(key) == value for key, value in selector.items())
