"""
CertificateSigningRequests: certificates that are asked for through the API.

Whoever makes one is noted in it by the server and asks for no one else.  Subresource
``approval`` says yes or no, once and for ever; ``status`` brings the certificate.

Source: ``k8s.io/api/certificates/v1``, ``pkg/apis/certificates/validation`` and
``pkg/registry/certificates`` of Kubernetes.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from twisted_exec.api import fields, names, times
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.common.schemas import strings
from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import array, integer, mapping, moment, string, struct

GROUP = "certificates.k8s.io"
APPROVED, DENIED, FAILED = "Approved", "Denied", "Failed"
DIGITAL_SIGNATURE, KEY_ENCIPHERMENT = "digital signature", "key encipherment"
SERVER_AUTH, CLIENT_AUTH = "server auth", "client auth"
SHORTEST_SECONDS = 600

_DECISIONS = (APPROVED, DENIED)
_LIMIT_REQUEST_BYTES = 32 << 10
_LONGEST_SIGNER = 571
_SIGNER_PATH = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?")
_USAGES = (
    "signing",
    DIGITAL_SIGNATURE,
    "content commitment",
    KEY_ENCIPHERMENT,
    "key agreement",
    "data encipherment",
    "cert sign",
    "crl sign",
    "encipher only",
    "decipher only",
    "any",
    SERVER_AUTH,
    CLIENT_AUTH,
    "code signing",
    "email protection",
    "s/mime",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "timestamping",
    "ocsp signing",
    "microsoft sgc",
    "netscape sgc",
)


def request_of(csr: Mapping[str, Any]) -> x509.CertificateSigningRequest:
    """
    What is asked for.

    :raises ValueError: it cannot be read, or its maker has not the key; the text says which.
    """
    try:
        pem = base64.b64decode(csr["spec"]["request"], validate=False)
    except binascii.Error:
        raise ValueError("must be base64") from None
    if len(pem) > _LIMIT_REQUEST_BYTES:
        raise ValueError(f"may not be more than {_LIMIT_REQUEST_BYTES} bytes")
    if b"-----BEGIN CERTIFICATE REQUEST-----" not in pem:
        raise ValueError("PEM block type must be CERTIFICATE REQUEST")
    try:
        request = x509.load_pem_x509_csr(pem)
        signed = request.is_signature_valid
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError("must be a PKCS#10 request that can be read") from None
    if not signed:
        raise ValueError("its signature is not that of its key")
    return request


def condition_of(csr: Mapping[str, Any], kind: str) -> Object | None:
    """Its condition of this type, or ``None``."""
    found = csr.get("status", {}).get("conditions", [])
    return next((each for each in found if each.get("type") == kind), None)


def certificate_of(csr: Mapping[str, Any]) -> str:
    """The certificate that it came to, in base64; empty for none."""
    return str(csr.get("status", {}).get("certificate", ""))


def _validate(csr: Object) -> list[Cause]:
    spec = csr["spec"]
    found = list(_signer_causes(spec.get("signerName", "")))
    usages = spec.get("usages", [])
    if not usages:
        found.append(fields.required("spec.usages"))
    for index, usage in enumerate(usages):
        if usage not in _USAGES:
            found.append(fields.not_supported(f"spec.usages[{index}]", usage, _USAGES))
        elif usage in usages[:index]:
            found.append(fields.duplicate(f"spec.usages[{index}]", usage))
    try:
        request_of(csr)
    except ValueError as problem:
        found.append(fields.invalid("spec.request", "", str(problem)))
    return found


def _signer_causes(name: str) -> Iterator[Cause]:
    field = "spec.signerName"
    domain, slash, path = name.partition("/")
    if not name:
        yield fields.required(field)
    elif not slash or "." not in domain or names.dns_subdomain(domain):
        yield fields.invalid(field, name, "must be a fully qualified domain, a slash and a path")
    elif len(name) > _LONGEST_SIGNER or not _SIGNER_PATH.fullmatch(path):
        yield fields.invalid(field, name, "must have a path of letters, digits, '-', '.' and '/'")
    elif name == "kubernetes.io/legacy-unknown":
        yield fields.invalid(field, name, "the legacy signerName is not allowed via this API")


def _keep_spec(new: Object, old: Object) -> None:
    """What is asked for never changes."""
    new["spec"] = dict(old["spec"])


def _carry_status(subresource: str, new: Object, old: Object) -> None:
    """Who decides brings no certificate, and who brings it does not decide."""
    before, status = old.get("status", {}), new.setdefault("status", {})
    deciding = subresource == "approval"

    def conditions(obj: Object, *, decisions: bool) -> list[Object]:
        found = obj.get("conditions", [])
        return [each for each in found if (each.get("type") in _DECISIONS) is decisions]

    theirs = conditions(status, decisions=deciding)
    kept = conditions(before, decisions=not deciding)
    merged = [*theirs, *kept] if deciding else [*kept, *theirs]
    new["status"] = {**(before if deciding else status), "conditions": merged}
    if not merged:
        del new["status"]["conditions"]


def _validate_status(new: Object, old: Object) -> list[Cause]:
    found: list[Cause] = []
    seen: set[str] = set()
    for index, each in enumerate(new["status"].get("conditions", [])):
        here, kind = f"status.conditions[{index}]", each["type"]
        if kind in seen:
            found.append(fields.duplicate(f"{here}.type", kind))
        seen.add(kind)
        if kind in (*_DECISIONS, FAILED) and each["status"] != "True":
            found.append(fields.not_supported(f"{here}.status", each["status"], ["True"]))
    if {*_DECISIONS} <= seen:
        told = "Approved and Denied conditions are mutually exclusive"
        found.append(fields.invalid("status.conditions", DENIED, told))
    for kind in (*_DECISIONS, FAILED):
        if condition_of(old, kind) and kind not in seen:
            told = f"updates may not remove a condition of type {kind!r}"
            found.append(fields.forbidden("status.conditions", told))
    return found + list(_certificate_causes(certificate_of(new), certificate_of(old)))


def _certificate_causes(new: str, old: str) -> Iterator[Cause]:
    if new == old:
        return
    if old:
        yield fields.forbidden("status.certificate", "updates may not modify or remove it")
        return
    try:
        x509.load_pem_x509_certificates(base64.b64decode(new))
    except ValueError:
        yield fields.invalid("status.certificate", "", "must be PEM certificates in base64")


def _condition(csr: Object) -> str:
    told = [kind for kind in _DECISIONS if condition_of(csr, kind)] or ["Pending"]
    told += ["Failed"] if condition_of(csr, FAILED) else []
    return ",".join([*told, *(["Issued"] if certificate_of(csr) else [])])


def _duration(csr: Object) -> str:
    seconds = csr["spec"].get("expirationSeconds")
    return times.human(seconds) if seconds else "<none>"


_SPEC = struct(
    {
        "request": string("A PKCS#10 request as PEM, in base64.", format="byte"),
        "signerName": string("Who is to sign it."),
        "expirationSeconds": integer(
            "How long the certificate should be good; the signer may shorten it.",
            minimum=SHORTEST_SECONDS,
            maximum=2**31 - 1,
        ),
        "usages": strings("What the key is for, such as digital signature and server auth."),
        "username": string("Who made this object; set by the server."),
        "uid": string("The UID of who made it; set by the server."),
        "groups": strings("The groups of who made it; set by the server."),
        "extra": mapping(strings(""), "What else is known of who made it; set by the server."),
    },
    required=["request", "signerName"],
    description="What is asked for, and by whom; it cannot be changed.",
)
_STATUS = struct(
    {
        "conditions": array(
            struct(
                {
                    "type": string("Approved, Denied or Failed."),
                    "status": string("True.", enum=["True", "False", "Unknown"]),
                    "reason": string("Why, in one word for programs."),
                    "message": string("Why, for people."),
                    "lastUpdateTime": moment("When it was told last."),
                    "lastTransitionTime": moment("When its status changed last."),
                },
                required=["type", "status"],
            ),
            "What was decided, and what came of it.",
            keys=["type"],
        ),
        "certificate": string("The certificate as PEM, in base64.", format="byte"),
    },
    description="What became of it.",
)

CERTIFICATESIGNINGREQUESTS = Kind(
    resource=Resource(
        GROUP, "v1", "certificatesigningrequests", "CertificateSigningRequest", namespaced=False
    ),
    singular="certificatesigningrequest",
    short_names=("csr",),
    description="CertificateSigningRequest asks for a certificate.",
    schema={"spec": _SPEC, "status": _STATUS},
    required=("spec",),
    own_columns=True,
    columns=(
        Column("Name", lambda csr: csr["metadata"]["name"]),
        Column("Age", lambda csr: csr["metadata"].get("creationTimestamp"), moment=True),
        Column("SignerName", lambda csr: csr["spec"]["signerName"]),
        Column("Requestor", lambda csr: csr["spec"].get("username", "")),
        Column("RequestedDuration", _duration),
        Column("Condition", _condition),
    ),
    has_status=True,
    status_parts=("approval",),
    name_rule=names.path_segment,
    fields={"spec.signerName": lambda csr: str(csr["spec"].get("signerName", ""))},
    carry_over=_keep_spec,
    validate=_validate,
    carry_status=_carry_status,
    validate_status=_validate_status,
)
