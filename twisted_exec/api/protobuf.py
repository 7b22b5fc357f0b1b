r"""
Request bodies in protobuf, for kinds that kubectl only sends so.

A body is the prefix ``k8s\0`` and a ``runtime.Unknown`` with one message.

Source: ``generated.proto`` of ``k8s.io/api`` and ``k8s.io/apimachinery`` for field numbers.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from twisted_exec.api.protobuf_wire import read_fields
from twisted_exec.api.status import BadRequest, RequestEntityTooLarge, UnsupportedMediaType

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"


@dataclass(frozen=True)
class _Field:
    name: str
    message: Mapping[int, _Field] | None = None
    repeated: bool = False
    mapping: bool = False
    number: bool = False
    flag: bool = False
    pointer: bool = False
    moment: bool = False
    binary: bool = False


def _one(name: str, message: Mapping[int, _Field] | None = None) -> _Field:
    return _Field(name, message)


def _many(name: str, message: Mapping[int, _Field] | None = None) -> _Field:
    return _Field(name, message, repeated=True)


def _number(name: str) -> _Field:
    return _Field(name, number=True)


def _flag(name: str) -> _Field:
    return _Field(name, flag=True)


def _choice(name: str) -> _Field:
    """A boolean that may be absent, which differs from false."""
    return _Field(name, flag=True, pointer=True)


def _moment(name: str) -> _Field:
    return _Field(name, moment=True)


def _binary(name: str) -> _Field:
    return _Field(name, binary=True)


_STRING_ENTRY = {1: _one("key"), 2: _one("value")}
_OWNER = {
    1: _one("kind"),
    3: _one("name"),
    4: _one("uid"),
    5: _one("apiVersion"),
    6: _flag("controller"),
    7: _flag("blockOwnerDeletion"),
}
# Without managedFields, which only the server writes.
_METADATA = {
    1: _one("name"),
    2: _one("generateName"),
    3: _one("namespace"),
    5: _one("uid"),
    6: _one("resourceVersion"),
    7: _number("generation"),
    8: _moment("creationTimestamp"),
    9: _moment("deletionTimestamp"),
    10: _number("deletionGracePeriodSeconds"),
    11: _Field("labels", _STRING_ENTRY, mapping=True),
    12: _Field("annotations", _STRING_ENTRY, mapping=True),
    13: _many("ownerReferences", _OWNER),
    14: _many("finalizers"),
}
_RESOURCE = {
    1: _one("namespace"),
    2: _one("verb"),
    3: _one("group"),
    4: _one("version"),
    5: _one("resource"),
    6: _one("subresource"),
    7: _one("name"),
}
_ACCESS = {
    1: _one("resourceAttributes", _RESOURCE),
    2: _one("nonResourceAttributes", {1: _one("path"), 2: _one("verb")}),
}
_EXTRA_ENTRY = {1: _one("key"), 2: _one("value", {1: _many("items")})}
_SUBJECT_ACCESS = {
    **_ACCESS,
    3: _one("user"),
    4: _many("groups"),
    5: _Field("extra", _EXTRA_ENTRY, mapping=True),
    6: _one("uid"),
}
_RULE = {
    1: _many("verbs"),
    2: _many("apiGroups"),
    3: _many("resources"),
    4: _many("resourceNames"),
    5: _many("nonResourceURLs"),
}
_SUBJECT = {1: _one("kind"), 2: _one("apiGroup"), 3: _one("name"), 4: _one("namespace")}
_ROLE_REF = {1: _one("apiGroup"), 2: _one("kind"), 3: _one("name")}


_OBJECT_REFERENCE = {
    1: _one("kind"),
    2: _one("namespace"),
    3: _one("name"),
    4: _one("uid"),
    5: _one("apiVersion"),
    6: _one("resourceVersion"),
    7: _one("fieldPath"),
}
_SERIES = {1: _number("count"), 2: _moment("lastObservedTime")}
_SOURCE = {1: _one("component"), 2: _one("host")}
_EVENT = {
    1: _one("metadata", _METADATA),
    2: _one("involvedObject", _OBJECT_REFERENCE),
    3: _one("reason"),
    4: _one("message"),
    5: _one("source", _SOURCE),
    6: _moment("firstTimestamp"),
    7: _moment("lastTimestamp"),
    8: _number("count"),
    9: _one("type"),
    10: _moment("eventTime"),
    11: _one("series", _SERIES),
    12: _one("action"),
    13: _one("related", _OBJECT_REFERENCE),
    14: _one("reportingComponent"),
    15: _one("reportingInstance"),
}
_NEW_EVENT = {
    1: _one("metadata", _METADATA),
    2: _moment("eventTime"),
    3: _one("series", _SERIES),
    4: _one("reportingController"),
    5: _one("reportingInstance"),
    6: _one("action"),
    7: _one("reason"),
    8: _one("regarding", _OBJECT_REFERENCE),
    9: _one("related", _OBJECT_REFERENCE),
    10: _one("note"),
    11: _one("type"),
    12: _one("deprecatedSource", _SOURCE),
    13: _moment("deprecatedFirstTimestamp"),
    14: _moment("deprecatedLastTimestamp"),
    15: _number("deprecatedCount"),
}


def _object(**more: Mapping[int, _Field]) -> Mapping[int, _Field]:
    return {1: _one("metadata", _METADATA), **more.get("fields", {})}


_EXPRESSION = {1: _one("key"), 2: _one("operator"), 3: _many("values")}
_SELECTOR = {
    1: _Field("matchLabels", _STRING_ENTRY, mapping=True),
    2: _many("matchExpressions", _EXPRESSION),
}
_AGGREGATION = {1: _many("clusterRoleSelectors", _SELECTOR)}
_LEASE = {
    1: _one("holderIdentity"),
    2: _number("leaseDurationSeconds"),
    3: _moment("acquireTime"),
    4: _moment("renewTime"),
    5: _number("leaseTransitions"),
    6: _one("strategy"),
    7: _one("preferredHolder"),
}
_ROLE = _object(fields={2: _many("rules", _RULE)})
_CLUSTER_ROLE = _object(fields={2: _many("rules", _RULE), 3: _one("aggregationRule", _AGGREGATION)})
_BINDING = _object(fields={2: _many("subjects", _SUBJECT), 3: _one("roleRef", _ROLE_REF)})
_SUBJECT_REVIEW = _object(fields={2: _one("spec", _SUBJECT_ACCESS)})
_SIGNING_REQUEST = {
    1: _binary("request"),
    2: _one("username"),
    3: _one("uid"),
    4: _many("groups"),
    5: _many("usages"),
    6: _Field("extra", _EXTRA_ENTRY, mapping=True),
    7: _one("signerName"),
    8: _number("expirationSeconds"),
}
_SIGNING_CONDITION = {
    1: _one("type"),
    2: _one("reason"),
    3: _one("message"),
    4: _moment("lastUpdateTime"),
    5: _moment("lastTransitionTime"),
    6: _one("status"),
}
_SIGNING_STATUS = {1: _many("conditions", _SIGNING_CONDITION), 2: _binary("certificate")}
_TOKEN_REQUEST = {
    1: _many("audiences"),
    3: _one(
        "boundObjectRef", {1: _one("kind"), 2: _one("apiVersion"), 3: _one("name"), 4: _one("uid")}
    ),
    4: _number("expirationSeconds"),
}
_MESSAGES: Mapping[str, Mapping[int, _Field]] = {
    "Event": _EVENT,
    "events.k8s.io/v1/Event": _NEW_EVENT,
    "Lease": _object(fields={2: _one("spec", _LEASE)}),
    "Namespace": _object(fields={2: _one("spec", {1: _many("finalizers")})}),
    "Role": _ROLE,
    "ClusterRole": _CLUSTER_ROLE,
    "RoleBinding": _BINDING,
    "ClusterRoleBinding": _BINDING,
    "CertificateSigningRequest": _object(
        fields={2: _one("spec", _SIGNING_REQUEST), 3: _one("status", _SIGNING_STATUS)}
    ),
    "Secret": _object(
        fields={
            2: _Field("data", {1: _one("key"), 2: _binary("value")}, mapping=True),
            3: _one("type"),
            4: _Field("stringData", _STRING_ENTRY, mapping=True),
            5: _flag("immutable"),
        }
    ),
    "ServiceAccount": _object(
        fields={
            2: _many("secrets", _OBJECT_REFERENCE),
            3: _many("imagePullSecrets", {1: _one("name")}),
            4: _choice("automountServiceAccountToken"),
        }
    ),
    "TokenRequest": _object(fields={2: _one("spec", _TOKEN_REQUEST)}),
    "TokenReview": _object(fields={2: _one("spec", {1: _one("token"), 2: _many("audiences")})}),
    "SubjectAccessReview": _SUBJECT_REVIEW,
    "LocalSubjectAccessReview": _SUBJECT_REVIEW,
    "SelfSubjectAccessReview": _object(fields={2: _one("spec", _ACCESS)}),
    "SelfSubjectRulesReview": _object(fields={2: _one("spec", {1: _one("namespace")})}),
    "SelfSubjectReview": _object(),
    "DeleteOptions": {
        2: _one("preconditions", {1: _one("uid"), 2: _one("resourceVersion")}),
        4: _one("propagationPolicy"),
        5: _many("dryRun"),
    },
}


class _Decoder:
    def __init__(self, limit_values: int) -> None:
        self._limit_values, self._count = limit_values, 0

    def message(self, shape: Mapping[int, _Field], raw: memoryview) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for number, value in self.fields(raw):
            field = shape.get(number)
            if field is None:
                continue
            if field.mapping:
                entry = self.message(field.message or {}, _bytes(value))
                content = entry.get("value", "")
                # A map of lists wraps each list in a message of its own.
                content = content.get("items", []) if isinstance(content, dict) else content
                result.setdefault(field.name, {})[entry.get("key", "")] = content
                continue
            item = self._value(field, value)
            if field.repeated:
                result.setdefault(field.name, []).append(item)
            elif item or field.message is not None or field.pointer:
                result[field.name] = item
        return result

    def _value(self, field: _Field, value: memoryview | int) -> Any:
        if field.number or field.flag:
            number = _signed(value)
            return bool(number) if field.flag else number
        if field.moment:
            return _time({number: _signed(part) for number, part in self.fields(_bytes(value))})
        if field.binary:
            return base64.b64encode(_bytes(value)).decode("ascii")
        return _text(value) if field.message is None else self.message(field.message, _bytes(value))

    def fields(self, raw: memoryview) -> Iterator[tuple[int, memoryview | int]]:
        for field in _fields(raw):
            self._count += 1
            if self._count > self._limit_values:
                raise RequestEntityTooLarge(
                    f"the protobuf body has more than {self._limit_values} fields; a request of "
                    f"this kind may have up to {self._limit_values}: send less in one request"
                )
            yield field


def decode(raw: bytes, limit_values: int) -> dict[str, Any]:
    """
    Decode an object to its JSON form; most empty values are left out.

    :raises BadRequest: the body is malformed.
    :raises RequestEntityTooLarge: the body has more than ``limit_values`` fields.
    :raises UnsupportedMediaType: the kind is not supported in protobuf.
    """
    if not raw.startswith(_MAGIC):
        raise BadRequest("the protobuf body lacks its prefix")
    decoder = _Decoder(limit_values)
    envelope = dict(decoder.fields(memoryview(raw)[len(_MAGIC) :]))
    types = dict(decoder.fields(_bytes(envelope.get(1, b""))))
    version, kind = _text(types.get(1, b"")), _text(types.get(2, b""))
    shape = _MESSAGES.get(f"{version}/{kind}") or _MESSAGES.get(kind)
    if shape is None:
        raise UnsupportedMediaType(
            f"{kind or 'an object'} is not read as protobuf here: send application/json"
        )
    body = decoder.message(shape, _bytes(envelope.get(2, b"")))
    return {"apiVersion": version, "kind": kind, **body}


def _signed(value: memoryview | int) -> int:
    if not isinstance(value, int):
        raise BadRequest("the protobuf body has a message where a number belongs")
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value


def _time(parts: Mapping[int, int]) -> str:
    if not parts:
        return ""
    try:
        since = timedelta(seconds=parts.get(1, 0), microseconds=parts.get(2, 0) // 1000)
        text = (datetime(1970, 1, 1, tzinfo=UTC) + since).isoformat()
    except OverflowError:
        raise BadRequest("the protobuf body has a time out of range") from None
    return text.replace("+00:00", "Z")


def _bytes(value: memoryview | bytes | int) -> memoryview:
    if isinstance(value, int):
        raise BadRequest("the protobuf body has a number where a message belongs")
    return memoryview(value)


def _text(value: memoryview | bytes | int) -> str:
    try:
        return bytes(_bytes(value)).decode("utf-8")
    except UnicodeDecodeError:
        raise BadRequest("the protobuf body has a string that is not UTF-8") from None


def _fields(raw: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    try:
        yield from read_fields(raw)
    except ValueError as problem:
        raise BadRequest(f"the protobuf body {problem}") from None
