"""
Options of OIDC, named as those of kube-apiserver.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from twisted.python.usage import UsageError

from twisted_exec.auth.jwt_keys import ALGORITHMS
from twisted_exec.auth.oidc.claims import Issuer, MappedClaim, checked_url
from twisted_exec.auth.oidc.configuration import Issuers
from twisted_exec.program.options.declaration import ProgramOption
from twisted_exec.program.options.sessions import BrowserOptions
from twisted_exec.web.oidc import SCOPES, WebClient

_OIDC_PREFIX, _WEB_PREFIX = "oidc-", "oidc-web-"
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

    more: Sequence[ProgramOption] = (
        ProgramOption(
            "authentication-config",
            "Identity providers, as an AuthenticationConfiguration (YAML); instead of --oidc-...",
            is_path=True,
        ),
        ProgramOption("oidc-issuer-url", "https URL of the identity provider.", _url),
        ProgramOption("oidc-client-id", "Required audience of its tokens."),
        ProgramOption("oidc-username-claim", "Claim of a token with the user name.", default="sub"),
        ProgramOption(
            "oidc-username-prefix",
            "Prefix of user names; - for none.  Default: the issuer and #, for all claims but "
            "email.",
        ),
        ProgramOption("oidc-groups-claim", "Claim of a token with the groups."),
        ProgramOption("oidc-groups-prefix", "Prefix of group names."),
        ProgramOption(
            "oidc-signing-algs",
            "Accepted signature algorithms, separated by commas.",
            default="RS256",
        ),
        ProgramOption(
            "oidc-ca-file", "CA of its certificate (PEM); default: the system's CAs.", is_path=True
        ),
        ProgramOption(
            "oidc-web-client-id", "Client of the web console there, whose tokens are accepted, too."
        ),
        ProgramOption(
            "oidc-web-client-secret-file",
            "File with the secret of that client; only for providers that demand one.",
            is_path=True,
        ),
        ProgramOption(
            "oidc-web-scopes",
            "Scopes that the web console requests, separated by commas.",
            default=",".join(SCOPES),
        ),
    )

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
        Check the options.

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
        if name.startswith(_OIDC_PREFIX)
        and not name.startswith(_WEB_PREFIX)
        and is_given(options, name, OIDCOptions.all_declared())
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
    Return the client of the web console by :class:`OIDCOptions`.

    :raises UsageError: an option is invalid.
    """
    client_id = options["oidc-web-client-id"]
    present = [
        name
        for name in options
        if name.startswith(_WEB_PREFIX) and is_given(options, name, OIDCOptions.all_declared())
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


def is_given(options: Mapping[str, Any], name: str, declared: Iterable[ProgramOption]) -> bool:
    """Return whether an option has a value that is not its default."""
    defaults = {each.name: each.default for each in declared}
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
        username=MappedClaim(options["oidc-username-claim"], _username_prefix(options)),
        groups=MappedClaim(groups, options["oidc-groups-prefix"] or "") if groups else None,
        required=tuple(options["oidc-required-claim"].items()),
        algorithms=algorithms,
    )


def _username_prefix(options: Mapping[str, Any]) -> str:
    prefix: str = options["oidc-username-prefix"] or ""
    if prefix == _NO_PREFIX:
        return ""
    if not prefix and options["oidc-username-claim"] != "email":
        return f"{options['oidc-issuer-url']}#"
    return prefix
