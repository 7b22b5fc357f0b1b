from twisted_exec.iri.protos import event_pb2 as _event_pb2
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

class MachineState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MACHINE_PENDING: _ClassVar[MachineState]
    MACHINE_RUNNING: _ClassVar[MachineState]
    MACHINE_SUSPENDED: _ClassVar[MachineState]
    MACHINE_TERMINATED: _ClassVar[MachineState]
    MACHINE_TERMINATING: _ClassVar[MachineState]
    MACHINE_STOPPED: _ClassVar[MachineState]

class VolumeState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VOLUME_PENDING: _ClassVar[VolumeState]
    VOLUME_ATTACHED: _ClassVar[VolumeState]

class NetworkInterfaceState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NETWORK_INTERFACE_PENDING: _ClassVar[NetworkInterfaceState]
    NETWORK_INTERFACE_ATTACHED: _ClassVar[NetworkInterfaceState]
POWER_ON: Power
POWER_OFF: Power
MACHINE_PENDING: MachineState
MACHINE_RUNNING: MachineState
MACHINE_SUSPENDED: MachineState
MACHINE_TERMINATED: MachineState
MACHINE_TERMINATING: MachineState
MACHINE_STOPPED: MachineState
VOLUME_PENDING: VolumeState
VOLUME_ATTACHED: VolumeState
NETWORK_INTERFACE_PENDING: NetworkInterfaceState
NETWORK_INTERFACE_ATTACHED: NetworkInterfaceState

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
    __slots__ = ("power", "ignition_data", "volumes", "network_interfaces", "guest_config")
    POWER_FIELD_NUMBER: _ClassVar[int]
    CLASS_FIELD_NUMBER: _ClassVar[int]
    IGNITION_DATA_FIELD_NUMBER: _ClassVar[int]
    VOLUMES_FIELD_NUMBER: _ClassVar[int]
    NETWORK_INTERFACES_FIELD_NUMBER: _ClassVar[int]
    GUEST_CONFIG_FIELD_NUMBER: _ClassVar[int]
    power: Power
    ignition_data: bytes
    volumes: _containers.RepeatedCompositeFieldContainer[Volume]
    network_interfaces: _containers.RepeatedCompositeFieldContainer[NetworkInterface]
    guest_config: GuestConfig
    def __init__(self, power: _Optional[_Union[Power, str]] = ..., ignition_data: _Optional[bytes] = ..., volumes: _Optional[_Iterable[_Union[Volume, _Mapping]]] = ..., network_interfaces: _Optional[_Iterable[_Union[NetworkInterface, _Mapping]]] = ..., guest_config: _Optional[_Union[GuestConfig, _Mapping]] = ..., **kwargs) -> None: ...

class GuestConfig(_message.Message):
    __slots__ = ("hostname",)
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    hostname: str
    def __init__(self, hostname: _Optional[str] = ...) -> None: ...

class MachineStatus(_message.Message):
    __slots__ = ("observed_generation", "state", "image_ref", "volumes", "network_interfaces", "machine_conditions")
    OBSERVED_GENERATION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    IMAGE_REF_FIELD_NUMBER: _ClassVar[int]
    VOLUMES_FIELD_NUMBER: _ClassVar[int]
    NETWORK_INTERFACES_FIELD_NUMBER: _ClassVar[int]
    MACHINE_CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    observed_generation: int
    state: MachineState
    image_ref: str
    volumes: _containers.RepeatedCompositeFieldContainer[VolumeStatus]
    network_interfaces: _containers.RepeatedCompositeFieldContainer[NetworkInterfaceStatus]
    machine_conditions: _containers.RepeatedCompositeFieldContainer[MachineCondition]
    def __init__(self, observed_generation: _Optional[int] = ..., state: _Optional[_Union[MachineState, str]] = ..., image_ref: _Optional[str] = ..., volumes: _Optional[_Iterable[_Union[VolumeStatus, _Mapping]]] = ..., network_interfaces: _Optional[_Iterable[_Union[NetworkInterfaceStatus, _Mapping]]] = ..., machine_conditions: _Optional[_Iterable[_Union[MachineCondition, _Mapping]]] = ...) -> None: ...

class MachineCondition(_message.Message):
    __slots__ = ("type", "status", "reason", "message", "last_transition_time")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LAST_TRANSITION_TIME_FIELD_NUMBER: _ClassVar[int]
    type: str
    status: str
    reason: str
    message: str
    last_transition_time: int
    def __init__(self, type: _Optional[str] = ..., status: _Optional[str] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., last_transition_time: _Optional[int] = ...) -> None: ...

class ImageSpec(_message.Message):
    __slots__ = ("image",)
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    image: str
    def __init__(self, image: _Optional[str] = ...) -> None: ...

class LocalDisk(_message.Message):
    __slots__ = ("size_bytes", "image")
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    size_bytes: int
    image: ImageSpec
    def __init__(self, size_bytes: _Optional[int] = ..., image: _Optional[_Union[ImageSpec, _Mapping]] = ...) -> None: ...

class VolumeConnection(_message.Message):
    __slots__ = ("driver", "handle", "attributes", "secret_data", "encryption_data", "effective_storage_bytes")
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
    class EncryptionDataEntry(_message.Message):
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
    ENCRYPTION_DATA_FIELD_NUMBER: _ClassVar[int]
    EFFECTIVE_STORAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    driver: str
    handle: str
    attributes: _containers.ScalarMap[str, str]
    secret_data: _containers.ScalarMap[str, bytes]
    encryption_data: _containers.ScalarMap[str, bytes]
    effective_storage_bytes: int
    def __init__(self, driver: _Optional[str] = ..., handle: _Optional[str] = ..., attributes: _Optional[_Mapping[str, str]] = ..., secret_data: _Optional[_Mapping[str, bytes]] = ..., encryption_data: _Optional[_Mapping[str, bytes]] = ..., effective_storage_bytes: _Optional[int] = ...) -> None: ...

class Volume(_message.Message):
    __slots__ = ("name", "device", "local_disk", "connection")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    LOCAL_DISK_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_FIELD_NUMBER: _ClassVar[int]
    name: str
    device: str
    local_disk: LocalDisk
    connection: VolumeConnection
    def __init__(self, name: _Optional[str] = ..., device: _Optional[str] = ..., local_disk: _Optional[_Union[LocalDisk, _Mapping]] = ..., connection: _Optional[_Union[VolumeConnection, _Mapping]] = ...) -> None: ...

class VolumeStatus(_message.Message):
    __slots__ = ("name", "handle", "state")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    name: str
    handle: str
    state: VolumeState
    def __init__(self, name: _Optional[str] = ..., handle: _Optional[str] = ..., state: _Optional[_Union[VolumeState, str]] = ...) -> None: ...

class NetworkInterface(_message.Message):
    __slots__ = ("name", "network_id", "ips", "attributes")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    NETWORK_ID_FIELD_NUMBER: _ClassVar[int]
    IPS_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    network_id: str
    ips: _containers.RepeatedScalarFieldContainer[str]
    attributes: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., network_id: _Optional[str] = ..., ips: _Optional[_Iterable[str]] = ..., attributes: _Optional[_Mapping[str, str]] = ...) -> None: ...

class NetworkInterfaceStatus(_message.Message):
    __slots__ = ("name", "handle", "state")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    name: str
    handle: str
    state: NetworkInterfaceState
    def __init__(self, name: _Optional[str] = ..., handle: _Optional[str] = ..., state: _Optional[_Union[NetworkInterfaceState, str]] = ...) -> None: ...

class MachineClassCapabilities(_message.Message):
    __slots__ = ("resources",)
    class ResourcesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.ScalarMap[str, int]
    def __init__(self, resources: _Optional[_Mapping[str, int]] = ...) -> None: ...

class MachineClass(_message.Message):
    __slots__ = ("name", "capabilities")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    name: str
    capabilities: MachineClassCapabilities
    def __init__(self, name: _Optional[str] = ..., capabilities: _Optional[_Union[MachineClassCapabilities, _Mapping]] = ...) -> None: ...

class MachineClassStatus(_message.Message):
    __slots__ = ("machine_class", "quantity", "only_by_name")
    MACHINE_CLASS_FIELD_NUMBER: _ClassVar[int]
    QUANTITY_FIELD_NUMBER: _ClassVar[int]
    ONLY_BY_NAME_FIELD_NUMBER: _ClassVar[int]
    machine_class: MachineClass
    quantity: int
    only_by_name: bool
    def __init__(self, machine_class: _Optional[_Union[MachineClass, _Mapping]] = ..., quantity: _Optional[int] = ..., only_by_name: bool = ...) -> None: ...

class MachineFilter(_message.Message):
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

class EventFilter(_message.Message):
    __slots__ = ("id", "label_selector", "events_from_time", "events_to_time")
    class LabelSelectorEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_SELECTOR_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FROM_TIME_FIELD_NUMBER: _ClassVar[int]
    EVENTS_TO_TIME_FIELD_NUMBER: _ClassVar[int]
    id: str
    label_selector: _containers.ScalarMap[str, str]
    events_from_time: int
    events_to_time: int
    def __init__(self, id: _Optional[str] = ..., label_selector: _Optional[_Mapping[str, str]] = ..., events_from_time: _Optional[int] = ..., events_to_time: _Optional[int] = ...) -> None: ...

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

class ListEventsRequest(_message.Message):
    __slots__ = ("filter",)
    FILTER_FIELD_NUMBER: _ClassVar[int]
    filter: EventFilter
    def __init__(self, filter: _Optional[_Union[EventFilter, _Mapping]] = ...) -> None: ...

class ListEventsResponse(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_event_pb2.Event]
    def __init__(self, events: _Optional[_Iterable[_Union[_event_pb2.Event, _Mapping]]] = ...) -> None: ...

class ListMachinesRequest(_message.Message):
    __slots__ = ("filter",)
    FILTER_FIELD_NUMBER: _ClassVar[int]
    filter: MachineFilter
    def __init__(self, filter: _Optional[_Union[MachineFilter, _Mapping]] = ...) -> None: ...

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

class DeleteMachineRequest(_message.Message):
    __slots__ = ("machine_id",)
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    machine_id: str
    def __init__(self, machine_id: _Optional[str] = ...) -> None: ...

class DeleteMachineResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UpdateMachineAnnotationsRequest(_message.Message):
    __slots__ = ("machine_id", "annotations")
    class AnnotationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    ANNOTATIONS_FIELD_NUMBER: _ClassVar[int]
    machine_id: str
    annotations: _containers.ScalarMap[str, str]
    def __init__(self, machine_id: _Optional[str] = ..., annotations: _Optional[_Mapping[str, str]] = ...) -> None: ...

class UpdateMachineAnnotationsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UpdateMachinePowerRequest(_message.Message):
    __slots__ = ("machine_id", "power")
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    machine_id: str
    power: Power
    def __init__(self, machine_id: _Optional[str] = ..., power: _Optional[_Union[Power, str]] = ...) -> None: ...

class UpdateMachinePowerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AttachVolumeRequest(_message.Message):
    __slots__ = ("machine_id", "volume")
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    VOLUME_FIELD_NUMBER: _ClassVar[int]
    machine_id: str
    volume: Volume
    def __init__(self, machine_id: _Optional[str] = ..., volume: _Optional[_Union[Volume, _Mapping]] = ...) -> None: ...

class AttachVolumeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DetachVolumeRequest(_message.Message):
    __slots__ = ("machine_id", "name")
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    machine_id: str
    name: str
    def __init__(self, machine_id: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class DetachVolumeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UpdateVolumeRequest(_message.Message):
    __slots__ = ("machine_id", "volume")
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    VOLUME_FIELD_NUMBER: _ClassVar[int]
    machine_id: str
    volume: Volume
    def __init__(self, machine_id: _Optional[str] = ..., volume: _Optional[_Union[Volume, _Mapping]] = ...) -> None: ...

class UpdateVolumeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AttachNetworkInterfaceRequest(_message.Message):
    __slots__ = ("machine_id", "network_interface")
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    NETWORK_INTERFACE_FIELD_NUMBER: _ClassVar[int]
    machine_id: str
    network_interface: NetworkInterface
    def __init__(self, machine_id: _Optional[str] = ..., network_interface: _Optional[_Union[NetworkInterface, _Mapping]] = ...) -> None: ...

class AttachNetworkInterfaceResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DetachNetworkInterfaceRequest(_message.Message):
    __slots__ = ("machine_id", "name")
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    machine_id: str
    name: str
    def __init__(self, machine_id: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class DetachNetworkInterfaceResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("machine_class_status",)
    MACHINE_CLASS_STATUS_FIELD_NUMBER: _ClassVar[int]
    machine_class_status: _containers.RepeatedCompositeFieldContainer[MachineClassStatus]
    def __init__(self, machine_class_status: _Optional[_Iterable[_Union[MachineClassStatus, _Mapping]]] = ...) -> None: ...

class ExecRequest(_message.Message):
    __slots__ = ("machine_id",)
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    machine_id: str
    def __init__(self, machine_id: _Optional[str] = ...) -> None: ...

class ExecResponse(_message.Message):
    __slots__ = ("url",)
    URL_FIELD_NUMBER: _ClassVar[int]
    url: str
    def __init__(self, url: _Optional[str] = ...) -> None: ...
