"""
Options for OIDC issuers, named as kube-apiserver's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from twisted.python.usage import UsageError

from twisted_exec.auth.jose.keys import ALGORITHMS
from twisted_exec.auth.oidc.configuration import Issuers
from twisted_exec.auth.oidc.issuer import Claim, Issuer, checked_url
from twisted_exec.program.options import BrowserOptions
from twisted_exec.web.oidc import SCOPES, WebClient

PATHS = ("authentication-config", "oidc-ca-file", "oidc-web-client-secret-file")
"""The options that name one file each."""

_PREFIX, _WEB_PREFIX = "oidc-", "oidc-web-"
_NO_PREFIX = "-"
_SCOPE = re.compile(r"[\x21\x23-\x2b\x2d-\x5b\x5d-\x7e]+")
"""Characters of RFC 6749 §3.3, without the comma, which separates scopes here."""


def _url(text: str) -> str:
    try:
        return checked_url(text)
    except ValueError as error:
        raise ValueError(f"{text!r} {error}") from None


def _algorithms(text: str) -> tuple[str, ...]:
    names = tuple(each.strip() for each in text.split(","))
    unknown = [each for each in names if each not in ALGORITHMS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is none of {', '.join(ALGORITHMS)}")
    return names


class OIDCOptions(BrowserOptions):
    """Options of a program that authenticates users by an identity provider."""

    group = "Identity providers (OIDC)"

    optParameters = [
        [
            "authentication-config",
            None,
            None,
            "Identity providers, as an AuthenticationConfiguration (YAML); instead of --oidc-...",
        ],
        ["oidc-issuer-url", None, None, "https URL of the identity provider.", _url],
        ["oidc-client-id", None, None, "Required audience of its tokens."],
        ["oidc-username-claim", None, "sub", "Claim of a token with the user name."],
        [
            "oidc-username-prefix",
            None,
            None,
            "Prefix of user names; - for none.  Default: the issuer and #, for all claims but "
            "email.",
        ],
        ["oidc-groups-claim", None, None, "Claim of a token with the groups."],
        ["oidc-groups-prefix", None, None, "Prefix of group names."],
        [
            "oidc-signing-algs",
            None,
            "RS256",
            "Accepted signature algorithms, separated by commas.",
        ],
        ["oidc-ca-file", None, None, "CA of its certificate (PEM); default: the system's CAs."],
        [
            "oidc-web-client-id",
            None,
            None,
            "Client of the web console there, whose tokens are accepted, too.",
        ],
        [
            "oidc-web-client-secret-file",
            None,
            None,
            "File with the secret of that client; only for providers that demand one.",
        ],
        [
            "oidc-web-scopes",
            None,
            ",".join(SCOPES),
            "Scopes that the web console requests, separated by commas.",
        ],
    ]

    def __init__(self) -> None:
        super().__init__()
        self["oidc-required-claim"] = {}

    def opt_oidc_required_claim(self, text: str) -> None:
        """A claim that tokens must have, such as hd=example.org; may be repeated."""
        for each in text.split(","):
            claim, equals, value = each.partition("=")
            if not claim or not equals:
                raise UsageError(f"--oidc-required-claim: {each!r} is not CLAIM=VALUE")
            if claim in self["oidc-required-claim"]:
                raise UsageError(f"--oidc-required-claim: {claim!r} is required already")
            self["oidc-required-claim"][claim] = value

    def postOptions(self) -> None:
        """
        :raises UsageError: an option is invalid.
        """
        issuers(self)
        web_client(self)


def issuers(options: Mapping[str, Any]) -> Issuers:
    """
    Settings by :class:`OIDCOptions`.

    :raises UsageError: an option is invalid.
    """
    present = [
        name
        for name in options
        if name.startswith(_PREFIX)
        and not name.startswith(_WEB_PREFIX)
        and _is_given(options, name)
    ]
    if options["authentication-config"]:
        if present:
            raise UsageError(f"--authentication-config and --{present[0]}: give one of them")
        return Issuers(configuration=options["authentication-config"])
    if not present:
        return Issuers()
    for needed, what in (
        ("oidc-issuer-url", "the issuer of the tokens"),
        ("oidc-client-id", "their required audience"),
        ("oidc-username-claim", "the claim with the user name"),
    ):
        if not options[needed]:
            raise UsageError(f"--{needed} is missing: {what}; it belongs to --{present[0]}")
    if options["oidc-groups-prefix"] and not options["oidc-groups-claim"]:
        raise UsageError("--oidc-groups-claim is missing: it belongs to --oidc-groups-prefix")
    return Issuers(issuer=_issuer(options), ca_file=options["oidc-ca-file"] or "")


def web_client(options: Mapping[str, Any]) -> WebClient | None:
    """
    Return the client of the web console by :class:`OIDCOptions`, if there is one.

    :raises UsageError: an option is invalid.
    """
    client_id = options["oidc-web-client-id"]
    present = [
        name for name in options if name.startswith(_WEB_PREFIX) and _is_given(options, name)
    ]
    if not present:
        return None
    if not client_id:
        raise UsageError(f"--oidc-web-client-id is missing: it belongs to --{present[0]}")
    if not options["oidc-issuer-url"] and not options["authentication-config"]:
        raise UsageError("--oidc-web-client-id needs --oidc-issuer-url or --authentication-config")
    scopes = tuple(each.strip() for each in options["oidc-web-scopes"].split(","))
    if "openid" not in scopes or not all(map(_SCOPE.fullmatch, scopes)):
        raise UsageError("--oidc-web-scopes: give a list such as openid,email,groups")
    return WebClient(client_id, scopes, options["oidc-web-client-secret-file"] or "")


def _is_given(options: Mapping[str, Any], name: str) -> bool:
    defaults = {name: default for name, _, default, *_ in OIDCOptions.optParameters}
    return bool(options[name]) and options[name] != defaults.get(name)


def _issuer(options: Mapping[str, Any]) -> Issuer:
    try:
        # Here too, because usage.Options does not coerce defaults.
        algorithms = _algorithms(options["oidc-signing-algs"])
    except ValueError as error:
        raise UsageError(f"--oidc-signing-algs: {error}") from None
    groups = options["oidc-groups-claim"]
    audiences = (options["oidc-client-id"], options["oidc-web-client-id"])
    return Issuer(
        url=options["oidc-issuer-url"],
        audiences=tuple(filter(None, dict.fromkeys(audiences))),
        username=Claim(options["oidc-username-claim"], _username_prefix(options)),
        groups=Claim(groups, options["oidc-groups-prefix"] or "") if groups else None,
        required=tuple(options["oidc-required-claim"].items()),
        algorithms=algorithms,
    )


def _username_prefix(options: Mapping[str, Any]) -> str:
    """
    Return the prefix of user names: as configured, else ``ISSUER#``, or none for emails, which are
    unique.
    """
    prefix: str = options["oidc-username-prefix"] or ""
    if prefix == _NO_PREFIX:
        return ""
    if not prefix and options["oidc-username-claim"] != "email":
        return f"{options['oidc-issuer-url']}#"
    return prefix
