"""
Secrets, such as a machine's ignition, a volume's keys, or a bootstrap token.

Sources: ``k8s.io/api/core/v1`` and ``pkg/apis/core/validation`` of Kubernetes.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from twisted_exec.api import fields
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.bootstrap_tokens import REDACTED, SECRET_TYPE, causes_of
from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import boolean, mapping, string

OPAQUE = "Opaque"
ACCOUNT_TOKEN = "kubernetes.io/service-account-token"
"""Type of Secrets with tokens of ServiceAccounts."""
_LONGEST_KEY = 253
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_DOCKER = {
    "kubernetes.io/dockercfg": ".dockercfg",
    "kubernetes.io/dockerconfigjson": ".dockerconfigjson",
}
_REQUIRED = {
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    **{kind: (key,) for kind, key in _DOCKER.items()},
}
"""Keys that a Secret of a type must have."""
_BASIC = "kubernetes.io/basic-auth", ("username", "password")


def value_of(secret: Mapping[str, Any], key: str) -> bytes | None:
    """Return a decoded value; ``None`` if the key is missing or not base64."""
    text = (secret.get("data") or {}).get(key)
    return None if text is None else _decoded(text)


def values_of(secret: Mapping[str, Any]) -> dict[str, bytes]:
    """Return all decoded values, without invalid ones."""
    decoded = {key: _decoded(text) for key, text in (secret.get("data") or {}).items()}
    return {key: value for key, value in decoded.items() if value is not None}


def _decoded(text: str) -> bytes | None:
    """Decode base64 as Go does: line breaks are ignored, other characters are not."""
    try:
        return base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        return None


def _prepare(secret: Object) -> None:
    data = secret.get("data")
    if isinstance(data, dict):
        for key, text in data.items():
            raw = _decoded(text)
            if raw is not None:
                data[key] = base64.b64encode(raw).decode("ascii")
    plain = secret.pop("stringData", None)
    if plain:
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in plain.items()}
        secret["data"] = {**(data or {}), **encoded}


def _key_problem(key: str) -> str:
    if len(key) > _LONGEST_KEY:
        return f"must be no more than {_LONGEST_KEY} characters"
    if not _KEY.fullmatch(key):
        return (
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' "
            f"(e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is "
            f"'{_KEY.pattern}')"
        )
    if key in (".", ".."):
        return f"must not be '{key}'"
    return "must not start with '..'" if key.startswith("..") else ""


def _validate(secret: Object) -> list[Cause]:
    data = secret.get("data", {})
    causes = []
    for key, text in data.items():
        if problem := _key_problem(key):
            causes.append(fields.invalid(f"data[{key}]", key, problem))
        if _decoded(text) is None:
            causes.append(fields.invalid(f"data[{key}]", REDACTED, "must be base64"))
    return causes or list(_type_causes(secret))


def _type_causes(secret: Object) -> Iterator[Cause]:
    kind, data = secret["type"], secret.get("data", {})
    for key in _REQUIRED.get(kind, ()):
        if key not in data:
            yield fields.required(f"data[{key}]")
    if kind == _BASIC[0] and not any(key in data for key in _BASIC[1]):
        yield from (fields.required(f"data[{key}]") for key in _BASIC[1])
    if kind == SECRET_TYPE:
        yield from causes_of(secret["metadata"]["name"], values_of(secret))
    if kind in _DOCKER and _DOCKER[kind] in data:
        try:
            json.loads(value_of(secret, _DOCKER[kind]) or b"")
        except (ValueError, RecursionError):
            yield fields.invalid(f"data[{_DOCKER[kind]}]", REDACTED, "must be JSON")


def _changed(new: Object, old: Object) -> list[Cause]:
    causes = []
    if new["type"] != old.get("type", OPAQUE):
        causes.append(fields.invalid("type", new["type"], "field is immutable"))
    if old.get("immutable"):
        problem = "field is immutable when `immutable` is set"
        if not new.get("immutable"):
            causes.append(fields.forbidden("immutable", problem))
        if new.get("data", {}) != old.get("data", {}):
            causes.append(fields.forbidden("data", problem))
    return causes


SECRETS = Kind(
    resource=Resource("", "v1", "secrets", "Secret"),
    singular="secret",
    description="Secret holds confidential data, such as a machine's ignition.",
    schema={
        "data": mapping(
            string("A value in base64.", format="byte"),
            "data is the content of the secret: base64 values by key.",
        ),
        "stringData": mapping(
            string("A value as plain text."),
            "stringData is content as plain text. It is write-only, and is merged into data.",
        ),
        "type": string(
            "type is the type of the secret, which determines its keys.", default=OPAQUE
        ),
        "immutable": boolean("immutable prevents changes of the content if true."),
    },
    columns=(
        Column("Type", lambda secret: secret.get("type", OPAQUE)),
        Column("Data", lambda secret: str(len(secret.get("data", {})))),
    ),
    confidential=True,
    fields={"type": lambda secret: str(secret.get("type", OPAQUE))},
    prepare=_prepare,
    validate=_validate,
    validate_update=_changed,
)
