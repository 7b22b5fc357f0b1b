"""
Options that say who is known: files of tokens, and ServiceAccounts; named as those of kube-apiserver.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from twisted.python.usage import UsageError

from twisted_exec.apiserver.identity.credentials import Accounts, Identities
from twisted_exec.apiserver.identity.oidc_options import OIDCOptions, issuers
from twisted_exec.program.options.declaration import ProgramOption
from twisted_exec.program.options.values import duration

_SHORTEST_LONGEST_SECONDS = 3600
"""Smallest acceptable limit for the lifetime of tokens, as in Kubernetes."""
_LONGEST_LONGEST_SECONDS = 1 << 32


LIST_OPTIONS = ("service-account-issuer", "service-account-key-file", "api-audiences")
"""Options of which each use adds to a list."""


class IdentityOptions(OIDCOptions):
    """Options of a program that authenticates users and programs."""

    group = "Users"

    more: Sequence[ProgramOption] = (
        ProgramOption("token-auth-file", "Tokens, as CSV: token,user,uid,groups.", is_path=True),
        ProgramOption(
            "service-account-signing-key-file",
            "Private key that signs ServiceAccount tokens (PEM).",
            is_path=True,
        ),
        ProgramOption(
            "service-account-max-token-expiration",
            "Longest lifetime of such tokens, such as 24h.",
            duration,
        ),
        ProgramOption(
            "service-account-jwks-uri",
            "External https URL of the public keys; default: on the first issuer's host.",
        ),
        ProgramOption(
            "enable-bootstrap-token-auth",
            "Accept bootstrap tokens: Secrets of type bootstrap.kubernetes.io/token in kube-system.",
            default=False,
        ),
    )

    def __init__(self) -> None:
        super().__init__()
        for name in LIST_OPTIONS:
            self[name] = []

    def opt_service_account_issuer(self, name: str) -> None:
        """
        Issuer of ServiceAccount tokens, such as https://HOST: the first issues new ones, all are
        accepted; may be repeated.
        """
        if not name or name in self["service-account-issuer"] or not name.isprintable():
            raise UsageError(f"--service-account-issuer {name!r} is empty, or there twice")
        if ":" in name and not _is_url(name):
            raise UsageError(f"--service-account-issuer {name!r} has a colon and is no URL")
        self["service-account-issuer"].append(name)

    def opt_service_account_key_file(self, path: str) -> None:
        """
        Further keys of accepted ServiceAccount tokens, besides the signing key (PEM); may be
        repeated.
        """
        self["service-account-key-file"].append(os.path.abspath(path))

    def opt_api_audiences(self, text: str) -> None:
        """Audiences of this server, separated by commas; may be repeated.  Default: the first issuer."""
        names = [name.strip() for name in text.split(",")]
        if not all(names):
            raise UsageError(f"--api-audiences {text!r} has an empty name")
        self["api-audiences"] += names

    def postOptions(self) -> None:
        """
        Check the options.

        :raises UsageError: an option is invalid.
        """
        identities(self)


def identities(options: Mapping[str, Any]) -> Identities:
    """
    Settings by :class:`IdentityOptions`.

    :raises UsageError: an option is invalid.
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
    arguments = (tuple(issuers), tuple(keys), signing or "", int(longest or 0), uri or "")
    return Accounts(*arguments)


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return bool(parts.scheme) and (bool(parts.netloc) or bool(parts.path)) and parts.port != 0
    except ValueError:
        return False
