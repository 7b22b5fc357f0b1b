"""
The options that say who is known, as kube-apiserver calls them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted_exec.apiserver.identities import Identities
from twisted_exec.apiserver.oidc_options import PATHS as OIDC_PATHS
from twisted_exec.apiserver.oidc_options import OIDCOptions, issuers

PATHS = ("token-auth-file", *OIDC_PATHS)
"""Those of them that name one file."""


class IdentityOptions(OIDCOptions):
    """Options of a program that knows people and programs by their credentials."""

    optParameters = [
        ["token-auth-file", None, None, "Tokens, as CSV: token,user,uid,groups."],
    ]


def identities(options: Mapping[str, Any]) -> Identities:
    """
    What :class:`IdentityOptions` say.

    :raises UsageError: something of it cannot be.
    """
    return Identities(token_file=options["token-auth-file"] or "", issuers=issuers(options))
