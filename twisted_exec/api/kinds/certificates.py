"""
CertificateSigningRequests: requests for certificates through the API.

Subresource ``approval`` approves or denies a request, once and finally; ``status`` receives the
certificate.

Sources: ``k8s.io/api/certificates/v1``, ``pkg/apis/certificates/validation`` and
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
from twisted_exec.api.conditions import condition_of
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.kinds.schemas import strings
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
    Parse the request.

    :raises ValueError: the request is not usable.
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
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
        raise ValueError("must be a valid PKCS#10 request") from None
    if not signed:
        raise ValueError("the signature does not match the key")
    return request


def certificate_of(csr: Mapping[str, Any]) -> str:
    """Return the issued certificate in base64; empty if there is none."""
    return str(csr.get("status", {}).get("certificate", ""))


def _validate(csr: Object) -> list[Cause]:
    spec = csr["spec"]
    causes = list(_signer_causes(spec.get("signerName", "")))
    usages = spec.get("usages", [])
    if not usages:
        causes.append(fields.required("spec.usages"))
    usages_before: set[str] = set()
    for index, usage in enumerate(usages):
        if usage not in _USAGES:
            causes.append(fields.not_supported(f"spec.usages[{index}]", usage, _USAGES))
        elif usage in usages_before:
            causes.append(fields.duplicate(f"spec.usages[{index}]", usage))
        usages_before.add(usage)
    try:
        request_of(csr)
    except ValueError as problem:
        causes.append(fields.invalid("spec.request", "", str(problem)))
    return causes


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
    new["spec"] = dict(old["spec"])


def _carry_status(subresource: str, new: Object, old: Object) -> None:
    """Approval cannot set the certificate, and a status update cannot approve."""
    before, status = old.get("status", {}), new.setdefault("status", {})
    deciding = subresource == "approval"

    def conditions(obj: Object, *, decisions: bool) -> list[Object]:
        items = obj.get("conditions", [])
        return [each for each in items if (each.get("type") in _DECISIONS) is decisions]

    theirs = conditions(status, decisions=deciding)
    carried = conditions(before, decisions=not deciding)
    merged = [*theirs, *carried] if deciding else [*carried, *theirs]
    new["status"] = {**(before if deciding else status), "conditions": merged}
    if not merged:
        del new["status"]["conditions"]


def _validate_status(new: Object, old: Object) -> list[Cause]:
    causes: list[Cause] = []
    types: set[str] = set()
    for index, each in enumerate(new["status"].get("conditions", [])):
        here, kind = f"status.conditions[{index}]", each["type"]
        if kind in types:
            causes.append(fields.duplicate(f"{here}.type", kind))
        types.add(kind)
        if kind in (*_DECISIONS, FAILED) and each["status"] != "True":
            causes.append(fields.not_supported(f"{here}.status", each["status"], ["True"]))
    if {*_DECISIONS} <= types:
        problem = "Approved and Denied conditions are mutually exclusive"
        causes.append(fields.invalid("status.conditions", DENIED, problem))
    for kind in (*_DECISIONS, FAILED):
        if condition_of(old, kind) and kind not in types:
            problem = f"updates may not remove a condition of type {kind!r}"
            causes.append(fields.forbidden("status.conditions", problem))
    return causes + list(_certificate_causes(certificate_of(new), certificate_of(old)))


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
    words = [kind for kind in _DECISIONS if condition_of(csr, kind)] or ["Pending"]
    words += ["Failed"] if condition_of(csr, FAILED) else []
    return ",".join([*words, *(["Issued"] if certificate_of(csr) else [])])


def _duration(csr: Object) -> str:
    seconds = csr["spec"].get("expirationSeconds")
    return times.human(seconds) if seconds else "<none>"


_SPEC = struct(
    {
        "request": string("request is a PKCS#10 request, PEM in base64.", format="byte"),
        "signerName": string("signerName is the requested signer."),
        "expirationSeconds": integer(
            "expirationSeconds is the requested validity of the certificate. The signer may shorten it.",
            minimum=SHORTEST_SECONDS,
            maximum=2**31 - 1,
        ),
        "usages": strings(
            "usages are the requested key usages, such as digital signature and server auth."
        ),
        "username": string(
            "username is the name of the user who created the request. Set by the server."
        ),
        "uid": string("uid is the UID of the user who created the request. Set by the server."),
        "groups": strings(
            "groups are the groups of the user who created the request. Set by the server."
        ),
        "extra": mapping(
            strings(""),
            "extra is additional information about the user who created the request. Set by the server.",
        ),
    },
    required=["request", "signerName"],
    description="spec is the request and its creator. It is immutable.",
)
_STATUS = struct(
    {
        "conditions": array(
            struct(
                {
                    "type": string("type is Approved, Denied or Failed."),
                    "status": string("status is always True.", enum=["True", "False", "Unknown"]),
                    "reason": string("reason is a one-word CamelCase reason."),
                    "message": string("message is a human-readable description."),
                    "lastUpdateTime": moment(
                        "lastUpdateTime is the last time the condition was updated."
                    ),
                    "lastTransitionTime": moment(
                        "lastTransitionTime is the last time the condition's status changed."
                    ),
                },
                required=["type", "status"],
            ),
            "conditions are the decision on the request, and failures to issue.",
            keys=["type"],
        ),
        "certificate": string(
            "certificate is the issued certificate chain, PEM in base64.", format="byte"
        ),
    },
    description="status is the decision and the issued certificate.",
)

CERTIFICATESIGNINGREQUESTS = Kind(
    resource=Resource(
        GROUP, "v1", "certificatesigningrequests", "CertificateSigningRequest", namespaced=False
    ),
    singular="certificatesigningrequest",
    short_names=("csr",),
    description="CertificateSigningRequest is a request for a certificate.",
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
