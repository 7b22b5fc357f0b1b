"""
The AdmissionReview: request to a webhook and its response, without I/O.

Source: ``k8s.io/api/admission/v1`` and ``k8s.io/apiserver/pkg/admission/plugin/webhook/request``.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from twisted_exec.api import bodies
from twisted_exec.api.kinds import Object
from twisted_exec.api.status import APIError, from_status, one_line
from twisted_exec.apiserver.aggregated.admission.attributes import AdmissionAttributes

GROUP = "admission.k8s.io"
VERSIONS = ("v1", "v1beta1")
"""The versions that this server speaks."""

JSON_PATCH = "JSONPatch"

_MOST_LINES = 32
_MOST_ENTRIES = 64
"""Limit of the warnings of one response, and of its audit annotations; the rest is ignored."""


class InvalidResponse(Exception):
    """The webhook's response is malformed."""


@dataclass(frozen=True)
class WebhookResponse:
    """
    A webhook's response.

    :param status: details of a denial; may be empty.
    :param patch: operations of a JSON patch; empty for none.
    """

    allowed: bool
    status: Mapping[str, Any] = field(default_factory=dict)
    patch: Sequence[Any] = ()
    warnings: Sequence[str] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


def version_of(webhook_versions: Sequence[str]) -> str:
    """
    Return the first of a webhook's ``admissionReviewVersions`` that is supported.

    :raises InvalidResponse: none is.
    """
    for version in webhook_versions:
        if version in VERSIONS:
            return version
    raise InvalidResponse("webhook does not accept known AdmissionReview versions (v1, v1beta1)")


def request_facts(attributes: AdmissionAttributes) -> Object:
    """The ``request`` of a review without UID and objects."""
    kind = {"group": attributes.group, "version": attributes.version, "kind": attributes.kind}
    resource = {
        "group": attributes.group,
        "version": attributes.version,
        "resource": attributes.plural,
    }
    names = {
        "subResource": attributes.subresource,
        "requestSubResource": attributes.subresource,
        "name": attributes.name,
        "namespace": attributes.namespace,
    }
    return {
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        **{key: value for key, value in names.items() if value},
        "operation": attributes.operation,
        "userInfo": _user(attributes),
        "dryRun": attributes.dry_run,
        "options": attributes.options,
    }


def _user(attributes: AdmissionAttributes) -> Object:
    user = attributes.user
    user_info: Object = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
    }
    return {key: value for key, value in user_info.items() if value}


def review(uid: str, version: str, attributes: AdmissionAttributes) -> bytes:
    """The body of a review, as JSON."""
    request = {
        "uid": uid,
        **request_facts(attributes),
        "object": attributes.new,
        "oldObject": attributes.old,
    }
    return json.dumps(
        {"kind": "AdmissionReview", "apiVersion": f"{GROUP}/{version}", "request": request},
        separators=(",", ":"),
    ).encode()


def read_response(raw: bytes, uid: str, version: str, *, mutating: bool) -> WebhookResponse:
    """
    Parse a webhook's response.

    :raises InvalidResponse: the response is malformed.
    """
    response = _response(raw, uid, version)
    allowed = response.get("allowed", False)
    if not isinstance(allowed, bool):
        raise InvalidResponse("response.allowed is not a boolean")
    return WebhookResponse(
        allowed,
        _mapping(response, "status"),
        _patch(response, version) if _has_patch(response, version, mutating) else (),
        _warnings(response),
        _annotations(response),
    )


def _response(raw: bytes, uid: str, version: str) -> Mapping[str, Any]:
    try:
        document = bodies.decode_any("application/json", raw)
    except APIError:
        raise InvalidResponse("it is not JSON") from None
    if not isinstance(document, Mapping):
        raise InvalidResponse("it is not an AdmissionReview")
    response = document.get("response")
    if not isinstance(response, Mapping):
        raise InvalidResponse("webhook response was absent")
    if version != "v1":
        return response  # v1beta1 responses may omit the UID
    if response.get("uid") != uid:
        got = one_line(str(response.get("uid") or ""))
        raise InvalidResponse(f'expected response.uid="{uid}", got "{got}"')
    kind, group_version = document.get("kind"), document.get("apiVersion")
    if (kind, group_version) != ("AdmissionReview", f"{GROUP}/v1"):
        got = one_line(f"{group_version}, Kind={kind}")
        raise InvalidResponse(
            f"expected webhook response of {GROUP}/v1, Kind=AdmissionReview, got {got}"
        )
    return response


def _has_patch(response: Mapping[str, Any], version: str, mutating: bool) -> bool:
    patch, kind = response.get("patch"), response.get("patchType")
    if version != "v1":
        return mutating and bool(patch)
    if not mutating:
        if patch:
            raise InvalidResponse("validating webhook may not return response.patch")
        if kind is not None:
            raise InvalidResponse("validating webhook may not return response.patchType")
        return False
    if patch and kind is None:
        raise InvalidResponse("webhook returned response.patch but not response.patchType")
    if not patch and kind is not None:
        raise InvalidResponse("webhook returned response.patchType but not response.patch")
    if patch and kind != JSON_PATCH:
        raise InvalidResponse(f'unsupported patch type "{one_line(str(kind))}"')
    return bool(patch)


def _patch(response: Mapping[str, Any], version: str) -> Sequence[Any]:
    try:
        # As strict as for clients' bodies: a lone surrogate would be stored, and neither the object
        # nor a list that contains it could be encoded any more.
        raw = base64.b64decode(response["patch"], validate=True)
        operations = bodies.decode_any("application/json", raw)
    except (binascii.Error, TypeError, ValueError, APIError):
        raise InvalidResponse("response.patch is not a JSON patch in base64") from None
    if not isinstance(operations, list):
        raise InvalidResponse("response.patch is not a list of operations")
    return operations


def _mapping(response: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    mapping = response.get(key) or {}
    if not isinstance(mapping, Mapping):
        raise InvalidResponse(f"response.{key} is not an object")
    return mapping


def _warnings(response: Mapping[str, Any]) -> Sequence[str]:
    warnings = response.get("warnings") or []
    if not isinstance(warnings, list) or not all(isinstance(each, str) for each in warnings):
        raise InvalidResponse("response.warnings is not a list of strings")
    return warnings[:_MOST_ENTRIES]


def _annotations(response: Mapping[str, Any]) -> Mapping[str, str]:
    annotations = islice(_mapping(response, "auditAnnotations").items(), _MOST_ENTRIES)
    return {one_line(str(key)): one_line(str(value)) for key, value in annotations}


def denial(name: str, status: Mapping[str, Any]) -> APIError:
    """The error for the client whose request a webhook denied."""
    error = from_status(status, 400)
    why = printable(str(status.get("message") or "")) or one_line(str(status.get("reason") or ""))
    denied = f'admission webhook "{name}" denied the request'
    return APIError(
        f"{denied}: {why}" if why else f"{denied} without explanation",
        # A webhook may send 200 here; the denial must still be an error.
        code=max(error.code, 400),
        reason=one_line(str(status.get("reason") or "")),
        details=error.details,
        retry_after_seconds=error.retry_after_seconds,
    )


def printable(text: str) -> str:
    """Remove control characters from others' text for users; webhooks use several lines."""
    lines = [one_line(line) for line in text.strip().splitlines()[:_MOST_LINES]]
    return "\n".join(lines)
