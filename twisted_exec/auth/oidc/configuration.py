"""
OIDC issuers from kube-apiserver's AuthenticationConfiguration, or from its older options.

As there, an unknown field is refused rather than ignored, because it may have been meant to
restrict access. Source: ``k8s.io/apiserver/pkg/apis/apiserver`` (types and validation).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.yaml_reader import Rules, YAMLProblem, parse_yaml
from twisted_exec.auth.oidc.claims import (
    CLAIMS,
    USER,
    Expression,
    Issuer,
    MappedClaim,
    ValidationRule,
    checked_url,
)
from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import Reloading

_VERSIONS = [f"apiserver.config.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1")]
_KIND = "AuthenticationConfiguration"
_RULES = Rules(values=1 << 14)
_MOST_ISSUERS = 64
_MOST_MESSAGE_CHARACTERS = 300
_EMAIL = re.compile(r"claims\.\??email\b|claims\[\??[\"']email[\"']\]")
_VERIFIED = re.compile(r"\bemail_verified\b")
_EXTRA_KEY = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[-a-z0-9._~/%]+")
_KUBERNETES_KEY = re.compile(r"(.*\.)?(k8s|kubernetes)\.io/.*")


@dataclass(frozen=True)
class Issuers:
    """
    A server's configured issuers: by options, or in a file.

    :param configuration: path of an AuthenticationConfiguration; empty for none.
    :param ca_file: path of the CA of ``issuer`` (PEM); empty for the system's.
    """

    configuration: str = ""
    issuer: Issuer | None = None
    ca_file: str = ""

    def __bool__(self) -> bool:
        return bool(self.configuration or self.issuer)

    def reloading(
        self, clock: IReactorTime, own: Collection[str] = (), audience: str = ""
    ) -> Reloading[tuple[Issuer, ...]]:
        """
        Return the issuers, which follow changes of the file.

        :param own: issuer names of this server's own tokens, which no provider may have.
        :param audience: one that each issuer's ``audiences`` must contain; empty for any.
        :raises TLSConfigError: from :meth:`.Reloading.load`, if the file is not usable.
        """

        def checked(content: bytes = b"") -> tuple[Issuer, ...]:
            issuers = self._parse(content)
            conflicting = [issuer.url for issuer in issuers if issuer.url in own]
            if conflicting:
                raise TLSConfigError(
                    f"identity provider {conflicting[0]!r} is this server itself, as issuer of "
                    "ServiceAccounts' tokens"
                )
            others = [each.url for each in issuers if audience not in ("", *each.audiences)]
            if others:
                raise TLSConfigError(
                    f"identity provider {others[0]!r}: issuer.audiences does not contain {audience!r}, "
                    "the URL of this server for its clients; add it"
                )
            return issuers

        path = self.configuration or self.ca_file
        return Reloading([path] if path else [], checked, clock)

    def _parse(self, content: bytes) -> tuple[Issuer, ...]:
        if self.configuration:
            return read_configuration(content, f"authentication config {self.configuration!r}")
        if self.issuer is None:
            return ()
        if self.ca_file:
            pem.certificates(content, f"CA of the identity provider {self.ca_file!r}")
        return (replace(self.issuer, ca_pem=content or self.issuer.ca_pem),)


class _Fault(Exception):
    """A fault of the configuration; the message begins with its field."""


def read_configuration(content: bytes, what: str) -> tuple[Issuer, ...]:
    """
    Parse the issuers of an AuthenticationConfiguration in YAML or JSON.

    :param what: the file, for messages.
    :raises TLSConfigError: the configuration is invalid.
    """
    try:
        document = parse_yaml(content, _RULES)
        if not isinstance(document, Mapping):
            raise TLSConfigError(f"{what} is not a YAML object")
        return _issuers(document)
    except (_Fault, YAMLProblem) as fault:
        # Field names come from the file: they may contain line ends and terminal controls.
        message = "".join(mark if mark.isprintable() else " " for mark in str(fault))
        raise TLSConfigError(f"{what}: {message[:_MOST_MESSAGE_CHARACTERS]}") from None


def _issuers(document: Mapping[str, Any]) -> tuple[Issuer, ...]:
    if document.get("apiVersion") not in _VERSIONS or document.get("kind") != _KIND:
        raise _Fault(f"it is no {_KIND} of {', '.join(_VERSIONS)}")
    _refuse_unknown(document, "", ("apiVersion", "kind", "jwt", "anonymous"))
    anonymous = _object(document, "anonymous", "")
    _refuse_unknown(anonymous, "anonymous.", ("enabled",))
    if anonymous.get("enabled", False) is not False:
        raise _Fault("anonymous.enabled: this server serves no anonymous users")
    entries = _objects(document, "jwt", "")
    if len(entries) > _MOST_ISSUERS:
        raise _Fault(f"jwt: there are more than {_MOST_ISSUERS} issuers")
    issuers = tuple(_issuer(each, f"jwt[{index}].") for index, each in enumerate(entries))
    for name in ("url", "discovery"):
        places = [getattr(issuer, name) for issuer in issuers]
        if len(set(places)) != len(places):
            raise _Fault(f"jwt: two issuers have the same {name} URL")
    return issuers


def _issuer(entry: Mapping[str, Any], path: str) -> Issuer:
    rules = ("claimValidationRules", "userValidationRules")
    _refuse_unknown(entry, path, ("issuer", "claimMappings", *rules))
    issuer, here = _object(entry, "issuer", path), f"{path}issuer."
    url, discovery = _urls(issuer, here)
    mappings = _object(entry, "claimMappings", path)
    where = f"{path}claimMappings."
    _refuse_unknown(mappings, where, ("username", "groups", "uid", "extra"))
    username = _mapped_claim(mappings, "username", where)
    if username is None:
        raise _Fault(f"{where}username.claim is missing: the claim that names the user")
    extra = _extra(mappings, where)
    claim_rules = _expression_rules(entry, "claimValidationRules", path, CLAIMS)
    others = [each.expression for each in claim_rules] + [each for _, each in extra]
    _check_email(username, others)
    return Issuer(
        url=url,
        discovery_url=discovery,
        audiences=_audiences(issuer, here),
        username=username,
        groups=_mapped_claim(mappings, "groups", where),
        uid=_uid(mappings, where),
        extra=extra,
        required=_required_claims(entry, path),
        claim_rules=claim_rules,
        user_rules=_expression_rules(entry, "userValidationRules", path, USER),
        ca_pem=_ca_pem(issuer, here),
    )


def _urls(issuer: Mapping[str, Any], path: str) -> tuple[str, str]:
    policies = ("audiences", "audienceMatchPolicy")
    _refuse_unknown(issuer, path, ("url", "discoveryURL", "certificateAuthority", *policies))
    url = _url(issuer, "url", path)
    if not _text(issuer, "discoveryURL", path):
        return url, ""
    discovery = _url(issuer, "discoveryURL", path)
    if discovery == url:
        raise _Fault(f"{path}discoveryURL is the url itself; leave it out")
    return url, discovery


def _url(obj: Mapping[str, Any], name: str, path: str) -> str:
    try:
        return checked_url(obj.get(name))
    except ValueError as problem:
        raise _Fault(f"{path}{name} {problem}") from None


def _audiences(issuer: Mapping[str, Any], path: str) -> tuple[str, ...]:
    audiences = _field(issuer, "audiences", [])
    if not isinstance(audiences, list) or not all(
        isinstance(each, str) and each for each in audiences
    ):
        raise _Fault(f"{path}audiences is not a list of texts")
    if not audiences:
        raise _Fault(f"{path}audiences is missing: the audiences that tokens must have")
    if len(set(audiences)) != len(audiences):
        raise _Fault(f"{path}audiences has a value more than once")
    policy = _text(issuer, "audienceMatchPolicy", path)
    if policy not in ("", "MatchAny") or (not policy and len(audiences) > 1):
        raise _Fault(f"{path}audienceMatchPolicy must be MatchAny")
    return tuple(audiences)


def _mapped_claim(
    mappings: Mapping[str, Any], name: str, path: str
) -> MappedClaim | Expression | None:
    mapping, here = _object(mappings, name, path), f"{path}{name}."
    _refuse_unknown(mapping, here, ("claim", "prefix", "expression"))
    claim = _text(mapping, "claim", here)
    if _text(mapping, "expression", here):
        if claim or mapping.get("prefix") is not None:
            raise _Fault(
                f"{here}expression: there is a claim or a prefix as well; give one of them"
            )
        return _expression(mapping, "expression", here)
    if claim and mapping.get("prefix") is None:
        raise _Fault(f'{here}prefix is missing: the prefix of names of this issuer; "" for none')
    prefix = _text(mapping, "prefix", here)
    if prefix and not claim:
        raise _Fault(f"{here}claim is missing: it belongs to the prefix")
    return MappedClaim(claim, prefix) if claim else None


def _uid(mappings: Mapping[str, Any], path: str) -> str | Expression:
    mapping = _object(mappings, "uid", path)
    _refuse_unknown(mapping, f"{path}uid.", ("claim", "expression"))
    claim = _text(mapping, "claim", f"{path}uid.")
    if not _text(mapping, "expression", f"{path}uid."):
        return claim
    if claim:
        raise _Fault(f"{path}uid.expression: there is a claim as well; give one of them")
    return _expression(mapping, "expression", f"{path}uid.")


def _extra(mappings: Mapping[str, Any], path: str) -> tuple[tuple[str, Expression], ...]:
    extra: dict[str, Expression] = {}
    for index, mapping in enumerate(_objects(mappings, "extra", path)):
        here = f"{path}extra[{index}]."
        _refuse_unknown(mapping, here, ("key", "valueExpression"))
        key = _text(mapping, "key", here)
        if not _EXTRA_KEY.fullmatch(key) or key in extra:
            raise _Fault(f"{here}key: give another, of small letters, such as example.com/team")
        if _KUBERNETES_KEY.fullmatch(key):
            raise _Fault(f"{here}key: {key.partition('/')[0]} is Kubernetes' own")
        extra[key] = _expression(mapping, "valueExpression", here)
    return tuple(extra.items())


def _expression_rules(
    obj: Mapping[str, Any], name: str, path: str, about: str
) -> tuple[ValidationRule, ...]:
    rules = []
    for index, rule in enumerate(_objects(obj, name, path)):
        here = f"{path}{name}[{index}]."
        if about == USER or _text(rule, "expression", here):
            _refuse_unknown(rule, here, ("expression", "message"))
            message = _text(rule, "message", here)
            if not message.isprintable():
                raise _Fault(f"{here}message is more than one line")
            rules.append(ValidationRule(_expression(rule, "expression", here, about), message))
    return tuple(rules)


def _expression(obj: Mapping[str, Any], name: str, path: str, about: str = CLAIMS) -> Expression:
    text = _text(obj, name, path)
    if not text.strip():
        raise _Fault(f"{path}{name} is missing")
    expression = Expression(text, f"{path}{name}", about)
    try:
        expression.check()
    except ValueError as problem:
        raise _Fault(f"{path}{name}: {problem}") from None
    return expression


def _check_email(username: MappedClaim | Expression, others: Sequence[Expression]) -> None:
    """Check that a username from an email comes with an expression that checks ``email_verified``."""
    if not isinstance(username, Expression) or not _EMAIL.search(username.text):
        return
    if not any(_VERIFIED.search(each.text) for each in (username, *others)):
        raise _Fault(
            f"{username.field} uses claims.email: claims.email_verified must be used in it, in an "
            "extra or in a rule as well"
        )


def _required_claims(obj: Mapping[str, Any], path: str) -> tuple[tuple[str, str], ...]:
    required: dict[str, str] = {}
    for index, rule in enumerate(_objects(obj, "claimValidationRules", path)):
        here = f"{path}claimValidationRules[{index}]."
        if _text(rule, "expression", here):
            continue
        _refuse_unknown(rule, here, ("claim", "requiredValue"))
        claim = _text(rule, "claim", here)
        if not claim:
            raise _Fault(f"{here}claim is missing")
        if claim in required:
            raise _Fault(f"{here}claim: there is a rule for {claim!r} already")
        required[claim] = _text(rule, "requiredValue", here)
    return tuple(required.items())


def _ca_pem(issuer: Mapping[str, Any], path: str) -> bytes:
    text = _text(issuer, "certificateAuthority", path).encode("utf-8")
    if text:
        try:
            pem.certificates(text, f"{path}certificateAuthority")
        except TLSConfigError as problem:
            raise _Fault(str(problem)) from None
    return text


def _refuse_unknown(obj: Mapping[str, Any], path: str, fields: Collection[str]) -> None:
    for name in obj:
        if name not in fields:
            raise _Fault(f"{path}{name} is not a known field")


def _object(obj: Mapping[str, Any], name: str, path: str) -> Mapping[str, Any]:
    value = _field(obj, name, {})
    if not isinstance(value, Mapping):
        raise _Fault(f"{path}{name} is not an object")
    return value


def _objects(obj: Mapping[str, Any], name: str, path: str) -> Sequence[Mapping[str, Any]]:
    value = _field(obj, name, [])
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
        raise _Fault(f"{path}{name} is not a list of objects")
    return value


def _text(obj: Mapping[str, Any], name: str, path: str) -> str:
    value = _field(obj, name, "")
    if not isinstance(value, str):
        raise _Fault(f"{path}{name} is not a text")
    return value


def _field(obj: Mapping[str, Any], name: str, default: Any) -> Any:
    """Return a field, or the default if it is missing or ``null``."""
    value = obj.get(name)
    return default if value is None else value
