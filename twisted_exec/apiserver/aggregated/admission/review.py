"""
The AdmissionReview: what a webhook is asked, and what its answer means, without I/O.

Source: ``k8s.io/api/admission/v1`` and ``k8s.io/apiserver/pkg/admission/plugin/webhook/request``;
the texts are those of kube-apiserver, so that whoever knows them finds them.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from twisted_exec.api import body
from twisted_exec.api.kinds import Object
from twisted_exec.api.status import APIError, from_status, one_line
from twisted_exec.apiserver.aggregated.admission.matching import Asked

GROUP = "admission.k8s.io"
VERSIONS = ("v1", "v1beta1")
"""Which we can ask in."""

JSON_PATCH = "JSONPatch"

_SHOWN_LINES = 32
_MOST_TOLD = 64
"""Warnings, and audit annotations."""


class InvalidAnswer(Exception):
    """A webhook's answer means nothing; the message is one line."""


@dataclass(frozen=True)
class Answer:
    """
    :param status: why not; may be empty.
    :param patch: the operations of a JSON patch, empty for none.
    """

    allowed: bool
    status: Mapping[str, Any] = field(default_factory=dict)
    patch: Sequence[Any] = ()
    warnings: Sequence[str] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


def version_of(webhook_versions: Sequence[str]) -> str:
    """
    The first of a webhook's ``admissionReviewVersions`` that we know.

    :raises InvalidAnswer: there is none.
    """
    for version in webhook_versions:
        if version in VERSIONS:
            return version
    raise InvalidAnswer("webhook does not accept known AdmissionReview versions (v1, v1beta1)")


def request_facts(asked: Asked) -> Object:
    """The ``request`` of a review without its UID and the objects, as CEL sees it, too."""
    kind = {"group": asked.group, "version": asked.version, "kind": asked.kind}
    resource = {"group": asked.group, "version": asked.version, "resource": asked.plural}
    names = {
        "subResource": asked.subresource,
        "requestSubResource": asked.subresource,
        "name": asked.name,
        "namespace": asked.namespace,
    }
    return {
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        **{key: value for key, value in names.items() if value},
        "operation": asked.operation,
        "userInfo": _user(asked),
        "dryRun": asked.dry_run,
        "options": asked.options,
    }


def _user(asked: Asked) -> Object:
    user = asked.user
    told: Object = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
    }
    return {key: value for key, value in told.items() if value}


def review(uid: str, version: str, asked: Asked) -> bytes:
    """The body of a review, JSON."""
    request = {"uid": uid, **request_facts(asked), "object": asked.new, "oldObject": asked.old}
    return json.dumps(
        {"kind": "AdmissionReview", "apiVersion": f"{GROUP}/{version}", "request": request},
        separators=(",", ":"),
    ).encode()


def read_answer(raw: bytes, uid: str, version: str, *, mutating: bool) -> Answer:
    """
    Read a webhook's answer.

    :param uid: of the review that it must belong to.
    :raises InvalidAnswer: it is none.
    """
    response = _response(raw, uid, version)
    allowed = response.get("allowed", False)
    if not isinstance(allowed, bool):
        raise InvalidAnswer("response.allowed is not a boolean")
    return Answer(
        allowed,
        _mapping(response, "status"),
        _patch(response, version) if _patched(response, version, mutating) else (),
        _warnings(response),
        _annotations(response),
    )


def _response(raw: bytes, uid: str, version: str) -> Mapping[str, Any]:
    try:
        told = body.decode_any("application/json", raw)
    except APIError:
        raise InvalidAnswer("it is not JSON") from None
    if not isinstance(told, Mapping):
        raise InvalidAnswer("it is not an AdmissionReview")
    response = told.get("response")
    if not isinstance(response, Mapping):
        raise InvalidAnswer("webhook response was absent")
    if version != "v1":
        return response  # in v1beta1 nobody need say whose answer it is
    if response.get("uid") != uid:
        got = one_line(str(response.get("uid") or ""))
        raise InvalidAnswer(f'expected response.uid="{uid}", got "{got}"')
    kind, group_version = told.get("kind"), told.get("apiVersion")
    if (kind, group_version) != ("AdmissionReview", f"{GROUP}/v1"):
        got = one_line(f"{group_version}, Kind={kind}")
        raise InvalidAnswer(
            f"expected webhook response of {GROUP}/v1, Kind=AdmissionReview, got {got}"
        )
    return response


def _patched(response: Mapping[str, Any], version: str, mutating: bool) -> bool:
    patch, kind = response.get("patch"), response.get("patchType")
    if version != "v1":
        return mutating and bool(patch)
    if not mutating:
        if patch:
            raise InvalidAnswer("validating webhook may not return response.patch")
        if kind is not None:
            raise InvalidAnswer("validating webhook may not return response.patchType")
        return False
    if patch and kind is None:
        raise InvalidAnswer("webhook returned response.patch but not response.patchType")
    if not patch and kind is not None:
        raise InvalidAnswer("webhook returned response.patchType but not response.patch")
    if patch and kind != JSON_PATCH:
        raise InvalidAnswer(f'unsupported patch type "{one_line(str(kind))}"')
    return bool(patch)


def _patch(response: Mapping[str, Any], version: str) -> Sequence[Any]:
    try:
        # As strictly as what clients send: half a character would be stored, and nobody could be
        # shown that object, or a list with it.
        raw = base64.b64decode(response["patch"], validate=True)
        operations = body.decode_any("application/json", raw)
    except (binascii.Error, TypeError, ValueError, APIError):
        raise InvalidAnswer("response.patch is not a JSON patch in base64") from None
    if not isinstance(operations, list):
        raise InvalidAnswer("response.patch is not a list of operations")
    return operations


def _mapping(response: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    told = response.get(key) or {}
    if not isinstance(told, Mapping):
        raise InvalidAnswer(f"response.{key} is not an object")
    return told


def _warnings(response: Mapping[str, Any]) -> Sequence[str]:
    told = response.get("warnings") or []
    if not isinstance(told, list) or not all(isinstance(each, str) for each in told):
        raise InvalidAnswer("response.warnings is not a list of strings")
    return told[:_MOST_TOLD]


def _annotations(response: Mapping[str, Any]) -> Mapping[str, str]:
    told = islice(_mapping(response, "auditAnnotations").items(), _MOST_TOLD)
    return {one_line(str(key)): one_line(str(value)) for key, value in told}


def denial(name: str, status: Mapping[str, Any]) -> APIError:
    """
    What the client of a request gets that a webhook did not allow.

    :param name: the webhook's.
    :param status: of its answer; it may say nothing at all.
    """
    error = from_status(status, 400)
    why = shown(str(status.get("message") or "")) or one_line(str(status.get("reason") or ""))
    denied = f'admission webhook "{name}" denied the request'
    return APIError(
        f"{denied}: {why}" if why else f"{denied} without explanation",
        # A denial with the code of a success would be one.
        code=max(error.code, 400),
        reason=one_line(str(status.get("reason") or "")),
        details=error.details,
        retry_after_seconds=error.retry_after_seconds,
    )


def shown(text: str) -> str:
    """What others say to a user, without controls; webhooks lay out their reasons on lines."""
    lines = [one_line(line) for line in text.strip().splitlines()[:_SHOWN_LINES]]
    return "\n".join(lines)
