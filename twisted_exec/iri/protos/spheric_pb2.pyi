from twisted_exec.iri.protos import meta_pb2 as _meta_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Power(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    POWER_ON: _ClassVar[Power]
    POWER_OFF: _ClassVar[Power]

class InstanceState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INSTANCE_PENDING: _ClassVar[InstanceState]
    INSTANCE_RUNNING: _ClassVar[InstanceState]
    INSTANCE_SUSPENDED: _ClassVar[InstanceState]
    INSTANCE_TERMINATED: _ClassVar[InstanceState]

class DiskState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DISK_PENDING: _ClassVar[DiskState]
    DISK_ATTACHED: _ClassVar[DiskState]

class NetworkInterfaceState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NETWORK_INTERFACE_PENDING: _ClassVar[NetworkInterfaceState]
    NETWORK_INTERFACE_ATTACHED: _ClassVar[NetworkInterfaceState]
POWER_ON: Power
POWER_OFF: Power
INSTANCE_PENDING: InstanceState
INSTANCE_RUNNING: InstanceState
INSTANCE_SUSPENDED: InstanceState
INSTANCE_TERMINATED: InstanceState
DISK_PENDING: DiskState
DISK_ATTACHED: DiskState
NETWORK_INTERFACE_PENDING: NetworkInterfaceState
NETWORK_INTERFACE_ATTACHED: NetworkInterfaceState

class Instance(_message.Message):
    __slots__ = ("metadata", "spec", "status")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    metadata: _meta_pb2.ObjectMetadata
    spec: InstanceSpec
    status: InstanceStatus
    def __init__(self, metadata: _Optional[_Union[_meta_pb2.ObjectMetadata, _Mapping]] = ..., spec: _Optional[_Union[InstanceSpec, _Mapping]] = ..., status: _Optional[_Union[InstanceStatus, _Mapping]] = ...) -> None: ...

class InstanceSpec(_message.Message):
    __slots__ = ("power", "image", "type", "cpu_count", "memory_bytes", "ignition_data", "disks", "network_interfaces")
    POWER_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    CPU_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    IGNITION_DATA_FIELD_NUMBER: _ClassVar[int]
    DISKS_FIELD_NUMBER: _ClassVar[int]
    NETWORK_INTERFACES_FIELD_NUMBER: _ClassVar[int]
    power: Power
    image: ImageSpec
    type: str
    cpu_count: int
    memory_bytes: int
    ignition_data: bytes
    disks: _containers.RepeatedCompositeFieldContainer[Disk]
    network_interfaces: _containers.RepeatedCompositeFieldContainer[NetworkInterface]
    def __init__(self, power: _Optional[_Union[Power, str]] = ..., image: _Optional[_Union[ImageSpec, _Mapping]] = ..., type: _Optional[str] = ..., cpu_count: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., ignition_data: _Optional[bytes] = ..., disks: _Optional[_Iterable[_Union[Disk, _Mapping]]] = ..., network_interfaces: _Optional[_Iterable[_Union[NetworkInterface, _Mapping]]] = ...) -> None: ...

class ImageSpec(_message.Message):
    __slots__ = ("image",)
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    image: str
    def __init__(self, image: _Optional[str] = ...) -> None: ...

class InstanceStatus(_message.Message):
    __slots__ = ("observed_generation", "state", "image_ref", "disks", "network_interfaces")
    OBSERVED_GENERATION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    IMAGE_REF_FIELD_NUMBER: _ClassVar[int]
    DISKS_FIELD_NUMBER: _ClassVar[int]
    NETWORK_INTERFACES_FIELD_NUMBER: _ClassVar[int]
    observed_generation: int
    state: InstanceState
    image_ref: str
    disks: _containers.RepeatedCompositeFieldContainer[DiskStatus]
    network_interfaces: _containers.RepeatedCompositeFieldContainer[NetworkInterfaceStatus]
    def __init__(self, observed_generation: _Optional[int] = ..., state: _Optional[_Union[InstanceState, str]] = ..., image_ref: _Optional[str] = ..., disks: _Optional[_Iterable[_Union[DiskStatus, _Mapping]]] = ..., network_interfaces: _Optional[_Iterable[_Union[NetworkInterfaceStatus, _Mapping]]] = ...) -> None: ...

class EmptyDisk(_message.Message):
    __slots__ = ("size_bytes",)
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    size_bytes: int
    def __init__(self, size_bytes: _Optional[int] = ...) -> None: ...

class DiskConnection(_message.Message):
    __slots__ = ("driver", "handle", "attributes", "secret_data")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class SecretDataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    SECRET_DATA_FIELD_NUMBER: _ClassVar[int]
    driver: str
    handle: str
    attributes: _containers.ScalarMap[str, str]
    secret_data: _containers.ScalarMap[str, bytes]
    def __init__(self, driver: _Optional[str] = ..., handle: _Optional[str] = ..., attributes: _Optional[_Mapping[str, str]] = ..., secret_data: _Optional[_Mapping[str, bytes]] = ...) -> None: ...

class Disk(_message.Message):
    __slots__ = ("name", "device", "empty_disk", "connection")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    EMPTY_DISK_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_FIELD_NUMBER: _ClassVar[int]
    name: str
    device: str
    empty_disk: EmptyDisk
    connection: DiskConnection
    def __init__(self, name: _Optional[str] = ..., device: _Optional[str] = ..., empty_disk: _Optional[_Union[EmptyDisk, _Mapping]] = ..., connection: _Optional[_Union[DiskConnection, _Mapping]] = ...) -> None: ...

class DiskStatus(_message.Message):
    __slots__ = ("name", "state")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: DiskState
    def __init__(self, name: _Optional[str] = ..., state: _Optional[_Union[DiskState, str]] = ...) -> None: ...

class NetworkInterfaceSubnetMetadata(_message.Message):
    __slots__ = ("network_name", "network_uid", "subnet_name", "subnet_uid")
    NETWORK_NAME_FIELD_NUMBER: _ClassVar[int]
    NETWORK_UID_FIELD_NUMBER: _ClassVar[int]
    SUBNET_NAME_FIELD_NUMBER: _ClassVar[int]
    SUBNET_UID_FIELD_NUMBER: _ClassVar[int]
    network_name: str
    network_uid: str
    subnet_name: str
    subnet_uid: str
    def __init__(self, network_name: _Optional[str] = ..., network_uid: _Optional[str] = ..., subnet_name: _Optional[str] = ..., subnet_uid: _Optional[str] = ...) -> None: ...

class NetworkInterface(_message.Message):
    __slots__ = ("name", "subnet_metadata", "ips", "subnet_cidrs")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUBNET_METADATA_FIELD_NUMBER: _ClassVar[int]
    IPS_FIELD_NUMBER: _ClassVar[int]
    SUBNET_CIDRS_FIELD_NUMBER: _ClassVar[int]
    name: str
    subnet_metadata: NetworkInterfaceSubnetMetadata
    ips: _containers.RepeatedScalarFieldContainer[str]
    subnet_cidrs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., subnet_metadata: _Optional[_Union[NetworkInterfaceSubnetMetadata, _Mapping]] = ..., ips: _Optional[_Iterable[str]] = ..., subnet_cidrs: _Optional[_Iterable[str]] = ...) -> None: ...

class NetworkInterfaceStatus(_message.Message):
    __slots__ = ("name", "handle", "state")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    name: str
    handle: str
    state: NetworkInterfaceState
    def __init__(self, name: _Optional[str] = ..., handle: _Optional[str] = ..., state: _Optional[_Union[NetworkInterfaceState, str]] = ...) -> None: ...

class InstanceFilter(_message.Message):
    __slots__ = ("id", "label_selector")
    class LabelSelectorEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_SELECTOR_FIELD_NUMBER: _ClassVar[int]
    id: str
    label_selector: _containers.ScalarMap[str, str]
    def __init__(self, id: _Optional[str] = ..., label_selector: _Optional[_Mapping[str, str]] = ...) -> None: ...

class RuntimeResources(_message.Message):
    __slots__ = ("cpu_count", "memory_bytes", "instance_quantities")
    class InstanceQuantitiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    CPU_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_QUANTITIES_FIELD_NUMBER: _ClassVar[int]
    cpu_count: int
    memory_bytes: int
    instance_quantities: _containers.ScalarMap[str, int]
    def __init__(self, cpu_count: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., instance_quantities: _Optional[_Mapping[str, int]] = ...) -> None: ...

class VersionRequest(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: str
    def __init__(self, version: _Optional[str] = ...) -> None: ...

class VersionResponse(_message.Message):
    __slots__ = ("runtime_name", "runtime_version")
    RUNTIME_NAME_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_VERSION_FIELD_NUMBER: _ClassVar[int]
    runtime_name: str
    runtime_version: str
    def __init__(self, runtime_name: _Optional[str] = ..., runtime_version: _Optional[str] = ...) -> None: ...

class ListInstancesRequest(_message.Message):
    __slots__ = ("filter",)
    FILTER_FIELD_NUMBER: _ClassVar[int]
    filter: InstanceFilter
    def __init__(self, filter: _Optional[_Union[InstanceFilter, _Mapping]] = ...) -> None: ...

class ListInstancesResponse(_message.Message):
    __slots__ = ("instances",)
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    instances: _containers.RepeatedCompositeFieldContainer[Instance]
    def __init__(self, instances: _Optional[_Iterable[_Union[Instance, _Mapping]]] = ...) -> None: ...

class CreateInstanceRequest(_message.Message):
    __slots__ = ("instance",)
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    instance: Instance
    def __init__(self, instance: _Optional[_Union[Instance, _Mapping]] = ...) -> None: ...

class CreateInstanceResponse(_message.Message):
    __slots__ = ("instance",)
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    instance: Instance
    def __init__(self, instance: _Optional[_Union[Instance, _Mapping]] = ...) -> None: ...

class DeleteInstanceRequest(_message.Message):
    __slots__ = ("instance_id",)
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    def __init__(self, instance_id: _Optional[str] = ...) -> None: ...

class DeleteInstanceResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UpdateInstanceAnnotationsRequest(_message.Message):
    __slots__ = ("instance_id", "annotations")
    class AnnotationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    ANNOTATIONS_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    annotations: _containers.ScalarMap[str, str]
    def __init__(self, instance_id: _Optional[str] = ..., annotations: _Optional[_Mapping[str, str]] = ...) -> None: ...

class UpdateInstanceAnnotationsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UpdateInstancePowerRequest(_message.Message):
    __slots__ = ("instance_id", "power")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    power: Power
    def __init__(self, instance_id: _Optional[str] = ..., power: _Optional[_Union[Power, str]] = ...) -> None: ...

class UpdateInstancePowerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AttachDiskRequest(_message.Message):
    __slots__ = ("instance_id", "disk")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    DISK_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    disk: Disk
    def __init__(self, instance_id: _Optional[str] = ..., disk: _Optional[_Union[Disk, _Mapping]] = ...) -> None: ...

class AttachDiskResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DetachDiskRequest(_message.Message):
    __slots__ = ("instance_id", "name")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    name: str
    def __init__(self, instance_id: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class DetachDiskResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AttachNetworkInterfaceRequest(_message.Message):
    __slots__ = ("instance_id", "network_interface")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    NETWORK_INTERFACE_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    network_interface: NetworkInterface
    def __init__(self, instance_id: _Optional[str] = ..., network_interface: _Optional[_Union[NetworkInterface, _Mapping]] = ...) -> None: ...

class AttachNetworkInterfaceResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DetachNetworkInterfaceRequest(_message.Message):
    __slots__ = ("instance_id", "name")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    name: str
    def __init__(self, instance_id: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class DetachNetworkInterfaceResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("capacity", "allocatable")
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    ALLOCATABLE_FIELD_NUMBER: _ClassVar[int]
    capacity: RuntimeResources
    allocatable: RuntimeResources
    def __init__(self, capacity: _Optional[_Union[RuntimeResources, _Mapping]] = ..., allocatable: _Optional[_Union[RuntimeResources, _Mapping]] = ...) -> None: ...

class ExecRequest(_message.Message):
    __slots__ = ("instance_id",)
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    def __init__(self, instance_id: _Optional[str] = ...) -> None: ...

class ExecResponse(_message.Message):
    __slots__ = ("url",)
    URL_FIELD_NUMBER: _ClassVar[int]
    url: str
    def __init__(self, url: _Optional[str] = ...) -> None: ...
