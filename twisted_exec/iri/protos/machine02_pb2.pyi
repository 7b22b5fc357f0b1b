from twisted_exec.iri.protos import machine_pb2 as _machine_pb2
from twisted_exec.iri.protos import meta_pb2 as _meta_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Machine(_message.Message):
    __slots__ = ("metadata", "spec", "status")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    metadata: _meta_pb2.ObjectMetadata
    spec: MachineSpec
    status: MachineStatus
    def __init__(self, metadata: _Optional[_Union[_meta_pb2.ObjectMetadata, _Mapping]] = ..., spec: _Optional[_Union[MachineSpec, _Mapping]] = ..., status: _Optional[_Union[MachineStatus, _Mapping]] = ...) -> None: ...

class MachineSpec(_message.Message):
    __slots__ = ("power", "image", "ignition_data", "volumes", "network_interfaces")
    POWER_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    CLASS_FIELD_NUMBER: _ClassVar[int]
    IGNITION_DATA_FIELD_NUMBER: _ClassVar[int]
    VOLUMES_FIELD_NUMBER: _ClassVar[int]
    NETWORK_INTERFACES_FIELD_NUMBER: _ClassVar[int]
    power: _machine_pb2.Power
    image: _machine_pb2.ImageSpec
    ignition_data: bytes
    volumes: _containers.RepeatedCompositeFieldContainer[Volume]
    network_interfaces: _containers.RepeatedCompositeFieldContainer[_machine_pb2.NetworkInterface]
    def __init__(self, power: _Optional[_Union[_machine_pb2.Power, str]] = ..., image: _Optional[_Union[_machine_pb2.ImageSpec, _Mapping]] = ..., ignition_data: _Optional[bytes] = ..., volumes: _Optional[_Iterable[_Union[Volume, _Mapping]]] = ..., network_interfaces: _Optional[_Iterable[_Union[_machine_pb2.NetworkInterface, _Mapping]]] = ..., **kwargs) -> None: ...

class MachineStatus(_message.Message):
    __slots__ = ("observed_generation", "state", "image_ref", "volumes", "network_interfaces")
    OBSERVED_GENERATION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    IMAGE_REF_FIELD_NUMBER: _ClassVar[int]
    VOLUMES_FIELD_NUMBER: _ClassVar[int]
    NETWORK_INTERFACES_FIELD_NUMBER: _ClassVar[int]
    observed_generation: int
    state: _machine_pb2.MachineState
    image_ref: str
    volumes: _containers.RepeatedCompositeFieldContainer[_machine_pb2.VolumeStatus]
    network_interfaces: _containers.RepeatedCompositeFieldContainer[_machine_pb2.NetworkInterfaceStatus]
    def __init__(self, observed_generation: _Optional[int] = ..., state: _Optional[_Union[_machine_pb2.MachineState, str]] = ..., image_ref: _Optional[str] = ..., volumes: _Optional[_Iterable[_Union[_machine_pb2.VolumeStatus, _Mapping]]] = ..., network_interfaces: _Optional[_Iterable[_Union[_machine_pb2.NetworkInterfaceStatus, _Mapping]]] = ...) -> None: ...

class EmptyDisk(_message.Message):
    __slots__ = ("size_bytes",)
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    size_bytes: int
    def __init__(self, size_bytes: _Optional[int] = ...) -> None: ...

class Volume(_message.Message):
    __slots__ = ("name", "device", "empty_disk", "connection")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    EMPTY_DISK_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_FIELD_NUMBER: _ClassVar[int]
    name: str
    device: str
    empty_disk: EmptyDisk
    connection: _machine_pb2.VolumeConnection
    def __init__(self, name: _Optional[str] = ..., device: _Optional[str] = ..., empty_disk: _Optional[_Union[EmptyDisk, _Mapping]] = ..., connection: _Optional[_Union[_machine_pb2.VolumeConnection, _Mapping]] = ...) -> None: ...

class ListMachinesResponse(_message.Message):
    __slots__ = ("machines",)
    MACHINES_FIELD_NUMBER: _ClassVar[int]
    machines: _containers.RepeatedCompositeFieldContainer[Machine]
    def __init__(self, machines: _Optional[_Iterable[_Union[Machine, _Mapping]]] = ...) -> None: ...

class CreateMachineRequest(_message.Message):
    __slots__ = ("machine",)
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    machine: Machine
    def __init__(self, machine: _Optional[_Union[Machine, _Mapping]] = ...) -> None: ...

class CreateMachineResponse(_message.Message):
    __slots__ = ("machine",)
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    machine: Machine
    def __init__(self, machine: _Optional[_Union[Machine, _Mapping]] = ...) -> None: ...

class AttachVolumeRequest(_message.Message):
    __slots__ = ("machine_id", "volume")
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    VOLUME_FIELD_NUMBER: _ClassVar[int]
    machine_id: str
    volume: Volume
    def __init__(self, machine_id: _Optional[str] = ..., volume: _Optional[_Union[Volume, _Mapping]] = ...) -> None: ...

class UpdateVolumeRequest(_message.Message):
    __slots__ = ("machine_id", "volume")
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    VOLUME_FIELD_NUMBER: _ClassVar[int]
    machine_id: str
    volume: Volume
    def __init__(self, machine_id: _Optional[str] = ..., volume: _Optional[_Union[Volume, _Mapping]] = ...) -> None: ...
