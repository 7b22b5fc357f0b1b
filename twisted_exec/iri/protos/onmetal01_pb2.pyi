from twisted_exec.iri.protos import machine_pb2 as _machine_pb2
from twisted_exec.iri.protos import meta_pb2 as _meta_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MachineState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MACHINE_PENDING: _ClassVar[MachineState]
    MACHINE_RUNNING: _ClassVar[MachineState]
    MACHINE_SUSPENDED: _ClassVar[MachineState]
    MACHINE_TERMINATED: _ClassVar[MachineState]
MACHINE_PENDING: MachineState
MACHINE_RUNNING: MachineState
MACHINE_SUSPENDED: MachineState
MACHINE_TERMINATED: MachineState

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
    __slots__ = ("power", "image", "ignition", "volumes", "network_interfaces")
    POWER_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    CLASS_FIELD_NUMBER: _ClassVar[int]
    IGNITION_FIELD_NUMBER: _ClassVar[int]
    VOLUMES_FIELD_NUMBER: _ClassVar[int]
    NETWORK_INTERFACES_FIELD_NUMBER: _ClassVar[int]
    power: _machine_pb2.Power
    image: _machine_pb2.ImageSpec
    ignition: IgnitionSpec
    volumes: _containers.RepeatedCompositeFieldContainer[VolumeAttachment]
    network_interfaces: _containers.RepeatedCompositeFieldContainer[NetworkInterfaceAttachment]
    def __init__(self, power: _Optional[_Union[_machine_pb2.Power, str]] = ..., image: _Optional[_Union[_machine_pb2.ImageSpec, _Mapping]] = ..., ignition: _Optional[_Union[IgnitionSpec, _Mapping]] = ..., volumes: _Optional[_Iterable[_Union[VolumeAttachment, _Mapping]]] = ..., network_interfaces: _Optional[_Iterable[_Union[NetworkInterfaceAttachment, _Mapping]]] = ..., **kwargs) -> None: ...

class IgnitionSpec(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class MachineStatus(_message.Message):
    __slots__ = ("observed_generation", "state", "image_ref", "volumes", "network_interfaces")
    OBSERVED_GENERATION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    IMAGE_REF_FIELD_NUMBER: _ClassVar[int]
    VOLUMES_FIELD_NUMBER: _ClassVar[int]
    NETWORK_INTERFACES_FIELD_NUMBER: _ClassVar[int]
    observed_generation: int
    state: MachineState
    image_ref: str
    volumes: _containers.RepeatedCompositeFieldContainer[_machine_pb2.VolumeStatus]
    network_interfaces: _containers.RepeatedCompositeFieldContainer[_machine_pb2.NetworkInterfaceStatus]
    def __init__(self, observed_generation: _Optional[int] = ..., state: _Optional[_Union[MachineState, str]] = ..., image_ref: _Optional[str] = ..., volumes: _Optional[_Iterable[_Union[_machine_pb2.VolumeStatus, _Mapping]]] = ..., network_interfaces: _Optional[_Iterable[_Union[_machine_pb2.NetworkInterfaceStatus, _Mapping]]] = ...) -> None: ...

class EmptyDisk(_message.Message):
    __slots__ = ("size_bytes",)
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    size_bytes: int
    def __init__(self, size_bytes: _Optional[int] = ...) -> None: ...

class VolumeAttachment(_message.Message):
    __slots__ = ("name", "device", "volume_id", "empty_disk")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    VOLUME_ID_FIELD_NUMBER: _ClassVar[int]
    EMPTY_DISK_FIELD_NUMBER: _ClassVar[int]
    name: str
    device: str
    volume_id: str
    empty_disk: EmptyDisk
    def __init__(self, name: _Optional[str] = ..., device: _Optional[str] = ..., volume_id: _Optional[str] = ..., empty_disk: _Optional[_Union[EmptyDisk, _Mapping]] = ...) -> None: ...

class NetworkInterfaceAttachment(_message.Message):
    __slots__ = ("name", "network_interface_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NETWORK_INTERFACE_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    network_interface_id: str
    def __init__(self, name: _Optional[str] = ..., network_interface_id: _Optional[str] = ...) -> None: ...

class MachineClassCapabilities(_message.Message):
    __slots__ = ("cpu_millis", "memory_bytes")
    CPU_MILLIS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    cpu_millis: int
    memory_bytes: int
    def __init__(self, cpu_millis: _Optional[int] = ..., memory_bytes: _Optional[int] = ...) -> None: ...

class MachineClass(_message.Message):
    __slots__ = ("name", "capabilities")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    name: str
    capabilities: MachineClassCapabilities
    def __init__(self, name: _Optional[str] = ..., capabilities: _Optional[_Union[MachineClassCapabilities, _Mapping]] = ...) -> None: ...

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

class CreateVolumeAttachmentRequest(_message.Message):
    __slots__ = ("machine_id", "volume")
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    VOLUME_FIELD_NUMBER: _ClassVar[int]
    machine_id: str
    volume: VolumeAttachment
    def __init__(self, machine_id: _Optional[str] = ..., volume: _Optional[_Union[VolumeAttachment, _Mapping]] = ...) -> None: ...

class CreateNetworkInterfaceAttachmentRequest(_message.Message):
    __slots__ = ("machine_id", "network_interface")
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    NETWORK_INTERFACE_FIELD_NUMBER: _ClassVar[int]
    machine_id: str
    network_interface: NetworkInterfaceAttachment
    def __init__(self, machine_id: _Optional[str] = ..., network_interface: _Optional[_Union[NetworkInterfaceAttachment, _Mapping]] = ...) -> None: ...

class ListMachineClassesResponse(_message.Message):
    __slots__ = ("machine_classes",)
    MACHINE_CLASSES_FIELD_NUMBER: _ClassVar[int]
    machine_classes: _containers.RepeatedCompositeFieldContainer[MachineClass]
    def __init__(self, machine_classes: _Optional[_Iterable[_Union[MachineClass, _Mapping]]] = ...) -> None: ...

class ListObjectsRequest(_message.Message):
    __slots__ = ("filter",)
    FILTER_FIELD_NUMBER: _ClassVar[int]
    filter: _machine_pb2.MachineFilter
    def __init__(self, filter: _Optional[_Union[_machine_pb2.MachineFilter, _Mapping]] = ...) -> None: ...

class ListObjectsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
