from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LogRequest(_message.Message):
    __slots__ = ("machine_id",)
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    machine_id: str
    def __init__(self, machine_id: _Optional[str] = ...) -> None: ...

class LogResponse(_message.Message):
    __slots__ = ("url",)
    URL_FIELD_NUMBER: _ClassVar[int]
    url: str
    def __init__(self, url: _Optional[str] = ...) -> None: ...

class SetAlertsRequest(_message.Message):
    __slots__ = ("owner", "generation", "patterns", "machines")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PATTERNS_FIELD_NUMBER: _ClassVar[int]
    MACHINES_FIELD_NUMBER: _ClassVar[int]
    owner: str
    generation: str
    patterns: _containers.RepeatedCompositeFieldContainer[AlertPattern]
    machines: _containers.RepeatedCompositeFieldContainer[AlertMachine]
    def __init__(self, owner: _Optional[str] = ..., generation: _Optional[str] = ..., patterns: _Optional[_Iterable[_Union[AlertPattern, _Mapping]]] = ..., machines: _Optional[_Iterable[_Union[AlertMachine, _Mapping]]] = ...) -> None: ...

class AlertPattern(_message.Message):
    __slots__ = ("id", "literal", "regex", "condition", "throttle_seconds")
    ID_FIELD_NUMBER: _ClassVar[int]
    LITERAL_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    id: str
    literal: str
    regex: str
    condition: str
    throttle_seconds: int
    def __init__(self, id: _Optional[str] = ..., literal: _Optional[str] = ..., regex: _Optional[str] = ..., condition: _Optional[str] = ..., throttle_seconds: _Optional[int] = ...) -> None: ...

class AlertMachine(_message.Message):
    __slots__ = ("uid", "patterns", "since")
    UID_FIELD_NUMBER: _ClassVar[int]
    PATTERNS_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    uid: str
    patterns: _containers.RepeatedScalarFieldContainer[int]
    since: int
    def __init__(self, uid: _Optional[str] = ..., patterns: _Optional[_Iterable[int]] = ..., since: _Optional[int] = ...) -> None: ...

class SetAlertsResponse(_message.Message):
    __slots__ = ("problems",)
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    problems: _containers.RepeatedCompositeFieldContainer[AlertProblem]
    def __init__(self, problems: _Optional[_Iterable[_Union[AlertProblem, _Mapping]]] = ...) -> None: ...

class AlertProblem(_message.Message):
    __slots__ = ("pattern", "message")
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    pattern: int
    message: str
    def __init__(self, pattern: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class ListMatchesRequest(_message.Message):
    __slots__ = ("owner", "instance", "acknowledged", "wait_seconds")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    owner: str
    instance: str
    acknowledged: int
    wait_seconds: int
    def __init__(self, owner: _Optional[str] = ..., instance: _Optional[str] = ..., acknowledged: _Optional[int] = ..., wait_seconds: _Optional[int] = ...) -> None: ...

class ListMatchesResponse(_message.Message):
    __slots__ = ("instance", "generation", "matches")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    instance: str
    generation: str
    matches: _containers.RepeatedCompositeFieldContainer[AlertMatch]
    def __init__(self, instance: _Optional[str] = ..., generation: _Optional[str] = ..., matches: _Optional[_Iterable[_Union[AlertMatch, _Mapping]]] = ...) -> None: ...

class AlertMatch(_message.Message):
    __slots__ = ("number", "machine_uid", "pattern_id", "epoch", "offset", "time", "line", "suppressed")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    MACHINE_UID_FIELD_NUMBER: _ClassVar[int]
    PATTERN_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    SUPPRESSED_FIELD_NUMBER: _ClassVar[int]
    number: int
    machine_uid: str
    pattern_id: str
    epoch: str
    offset: int
    time: int
    line: bytes
    suppressed: int
    def __init__(self, number: _Optional[int] = ..., machine_uid: _Optional[str] = ..., pattern_id: _Optional[str] = ..., epoch: _Optional[str] = ..., offset: _Optional[int] = ..., time: _Optional[int] = ..., line: _Optional[bytes] = ..., suppressed: _Optional[int] = ...) -> None: ...

class SetRecordingsRequest(_message.Message):
    __slots__ = ("owner", "generation", "recordings")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RECORDINGS_FIELD_NUMBER: _ClassVar[int]
    owner: str
    generation: str
    recordings: _containers.RepeatedCompositeFieldContainer[DesiredRecording]
    def __init__(self, owner: _Optional[str] = ..., generation: _Optional[str] = ..., recordings: _Optional[_Iterable[_Union[DesiredRecording, _Mapping]]] = ...) -> None: ...

class DesiredRecording(_message.Message):
    __slots__ = ("uid", "machine_uid", "namespace", "name", "machine_name", "input", "since", "ended", "released", "user", "policies")
    UID_FIELD_NUMBER: _ClassVar[int]
    MACHINE_UID_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MACHINE_NAME_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    uid: str
    machine_uid: str
    namespace: str
    name: str
    machine_name: str
    input: str
    since: int
    ended: bool
    released: bool
    user: str
    policies: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, uid: _Optional[str] = ..., machine_uid: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., machine_name: _Optional[str] = ..., input: _Optional[str] = ..., since: _Optional[int] = ..., ended: bool = ..., released: bool = ..., user: _Optional[str] = ..., policies: _Optional[_Iterable[str]] = ...) -> None: ...

class SetRecordingsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRecordingsRequest(_message.Message):
    __slots__ = ("owner", "instance", "acknowledged", "wait_seconds")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    owner: str
    instance: str
    acknowledged: int
    wait_seconds: int
    def __init__(self, owner: _Optional[str] = ..., instance: _Optional[str] = ..., acknowledged: _Optional[int] = ..., wait_seconds: _Optional[int] = ...) -> None: ...

class ListRecordingsResponse(_message.Message):
    __slots__ = ("instance", "generation", "recordings")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RECORDINGS_FIELD_NUMBER: _ClassVar[int]
    instance: str
    generation: str
    recordings: _containers.RepeatedCompositeFieldContainer[RecordingStatus]
    def __init__(self, instance: _Optional[str] = ..., generation: _Optional[str] = ..., recordings: _Optional[_Iterable[_Union[RecordingStatus, _Mapping]]] = ...) -> None: ...

class RecordingStatus(_message.Message):
    __slots__ = ("number", "uid", "machine_uid", "state", "message", "epoch", "first", "end", "head", "start_time", "end_time", "owner", "location", "reason")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    MACHINE_UID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    number: int
    uid: str
    machine_uid: str
    state: str
    message: str
    epoch: str
    first: int
    end: int
    head: str
    start_time: int
    end_time: int
    owner: str
    location: str
    reason: str
    def __init__(self, number: _Optional[int] = ..., uid: _Optional[str] = ..., machine_uid: _Optional[str] = ..., state: _Optional[str] = ..., message: _Optional[str] = ..., epoch: _Optional[str] = ..., first: _Optional[int] = ..., end: _Optional[int] = ..., head: _Optional[str] = ..., start_time: _Optional[int] = ..., end_time: _Optional[int] = ..., owner: _Optional[str] = ..., location: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class RecordingRequest(_message.Message):
    __slots__ = ("uid",)
    UID_FIELD_NUMBER: _ClassVar[int]
    uid: str
    def __init__(self, uid: _Optional[str] = ...) -> None: ...

class RecordingResponse(_message.Message):
    __slots__ = ("url",)
    URL_FIELD_NUMBER: _ClassVar[int]
    url: str
    def __init__(self, url: _Optional[str] = ...) -> None: ...
