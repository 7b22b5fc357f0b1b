from twisted_exec.iri.protos import meta_pb2 as _meta_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Event(_message.Message):
    __slots__ = ("spec",)
    SPEC_FIELD_NUMBER: _ClassVar[int]
    spec: EventSpec
    def __init__(self, spec: _Optional[_Union[EventSpec, _Mapping]] = ...) -> None: ...

class EventSpec(_message.Message):
    __slots__ = ("involved_object_meta", "reason", "message", "type", "event_time", "action")
    INVOLVED_OBJECT_META_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    EVENT_TIME_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    involved_object_meta: _meta_pb2.ObjectMetadata
    reason: str
    message: str
    type: str
    event_time: int
    action: str
    def __init__(self, involved_object_meta: _Optional[_Union[_meta_pb2.ObjectMetadata, _Mapping]] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., type: _Optional[str] = ..., event_time: _Optional[int] = ..., action: _Optional[str] = ...) -> None: ...
