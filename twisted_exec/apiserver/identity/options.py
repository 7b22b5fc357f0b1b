"""
The options that say who is known, as kube-apiserver calls them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from twisted.python.usage import UsageError

from twisted_exec.apiserver.identity.credentials import Accounts, Identities
from twisted_exec.apiserver.identity.oidc_options import PATHS as OIDC_PATHS
from twisted_exec.apiserver.identity.oidc_options import OIDCOptions, issuers
from twisted_exec.program.start import duration

PATHS = ("token-auth-file", "service-account-signing-key-file", *OIDC_PATHS)
"""Those of them that name one file."""

_SHORTEST_LONGEST_SECONDS = 3600
"""What tokens may be limited to at least, as in Kubernetes."""
_LONGEST_LONGEST_SECONDS = 1 << 32


class IdentityOptions(OIDCOptions):
    """Options of a program that knows people and programs by their credentials."""

    optParameters = [
        ["token-auth-file", None, None, "Tokens, as CSV: token,user,uid,groups."],
        [
            "service-account-signing-key-file",
            None,
            None,
            "Private key that signs tokens of ServiceAccounts (PEM).",
        ],
        [
            "service-account-max-token-expiration",
            None,
            None,
            "How long such tokens are good at most, such as 24h.",
            duration,
        ],
        [
            "service-account-jwks-uri",
            None,
            None,
            "Where others find their keys: an https URL; default: at the issuer.",
        ],
    ]
    optFlags = [
        [
            "enable-bootstrap-token-auth",
            None,
            "Know new poollets by Secrets of type bootstrap.kubernetes.io/token in kube-system.",
        ],
    ]

    def __init__(self) -> None:
        super().__init__()
        for name in ("service-account-issuer", "service-account-key-file", "api-audiences"):
            self[name] = []

    def opt_service_account_issuer(self, told: str) -> None:
        """Who issues tokens of ServiceAccounts, such as https://HOST: the first makes them, and those of all are good; may be repeated."""
        if not told or told in self["service-account-issuer"] or not told.isprintable():
            raise UsageError(f"--service-account-issuer {told!r} is empty, or there twice")
        if ":" in told and not _is_url(told):
            raise UsageError(f"--service-account-issuer {told!r} has a colon and is no URL")
        self["service-account-issuer"].append(told)

    def opt_service_account_key_file(self, path: str) -> None:
        """Keys whose tokens of ServiceAccounts are good, besides the signing key (PEM); may be repeated."""
        self["service-account-key-file"].append(os.path.abspath(path))

    def opt_api_audiences(self, told: str) -> None:
        """Who this server is to whom tokens are made out; with commas, or repeated.  Default: the first issuer."""
        names = [name.strip() for name in told.split(",")]
        if not all(names):
            raise UsageError(f"--api-audiences {told!r} has an empty name")
        self["api-audiences"] += names

    def postOptions(self) -> None:
        """
        :raises UsageError: something of it cannot be.
        """
        identities(self)


def identities(options: Mapping[str, Any]) -> Identities:
    """
    What :class:`IdentityOptions` say.

    :raises UsageError: something of it cannot be.
    """
    return Identities(
        token_file=options["token-auth-file"] or "",
        issuers=issuers(options),
        accounts=_accounts(options),
        bootstrap_tokens=bool(options["enable-bootstrap-token-auth"]),
        api_audiences=tuple(options["api-audiences"]),
    )


def _accounts(options: Mapping[str, Any]) -> Accounts | None:
    issuers, signing = (
        options[f"service-account-{name}"] for name in ("issuer", "signing-key-file")
    )
    keys, uri = (options[f"service-account-{name}"] for name in ("key-file", "jwks-uri"))
    longest = options["service-account-max-token-expiration"]
    if not issuers:
        for name, value in (
            ("signing-key-file", signing),
            ("key-file", keys),
            ("max-token-expiration", longest),
            ("jwks-uri", uri),
        ):
            if value:
                raise UsageError(f"--service-account-{name} needs --service-account-issuer")
        return None
    if not keys and not signing:
        raise UsageError(
            "--service-account-issuer needs --service-account-signing-key-file, or "
            "--service-account-key-file to know tokens and make none"
        )
    if longest and not _SHORTEST_LONGEST_SECONDS <= longest <= _LONGEST_LONGEST_SECONDS:
        raise UsageError("--service-account-max-token-expiration: give 1h or more")
    if uri and not (_is_url(uri) and uri.startswith("https:")):
        raise UsageError(f"--service-account-jwks-uri {uri!r} is no https URL")
    told = (tuple(issuers), tuple(keys), signing or "", int(longest or 0), uri or "")
    return Accounts(*told)


def _is_url(text: str) -> bool:
    try:
        found = urlsplit(text)
        return bool(found.scheme) and (bool(found.netloc) or bool(found.path)) and found.port != 0
    except ValueError:
        return False
