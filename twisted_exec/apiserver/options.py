"""
Options of an API server, named as those of kube-apiserver and of Kubernetes' aggregated servers
where they have such options.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import urlsplit

from twisted.python.usage import UsageError

from twisted_exec.api.kinds import ADDRESS_TYPES
from twisted_exec.apiserver.aggregated.control_plane import Aggregated
from twisted_exec.apiserver.aggregated.trust import RequestHeaderOverrides, is_header_name
from twisted_exec.apiserver.identity.credentials import Accounts, Identities
from twisted_exec.apiserver.node_pods.kubelets import KubeletAccess
from twisted_exec.auth.jwt_keys import ALGORITHMS
from twisted_exec.auth.oidc.claims import Issuer, MappedClaim, checked_url
from twisted_exec.auth.oidc.configuration import Issuers
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.reloading import ReloadingConfig
from twisted_exec.program.options.declaration import ProgramOption, settings_of
from twisted_exec.program.options.sessions import BrowserOptions
from twisted_exec.program.options.values import duration
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
    Return the client of the web console by :class:`OIDCOptions`.

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
    defaults = {each.name: each.default for each in IdentityOptions.all_declared()}
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


_SHORTEST_LONGEST_SECONDS = 3600
"""Smallest acceptable limit for the lifetime of tokens, as in Kubernetes."""
_LONGEST_LONGEST_SECONDS = 1 << 32


# Options of which each use adds to a list.
_LISTS = ("service-account-issuer", "service-account-key-file", "api-audiences")


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
        for name in _LISTS:
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


_KUBELET_FILES = {
    "kubelet-client-certificate": "the client certificate for kubelets",
    "kubelet-client-key": "the private key of the client certificate",
    "kubelet-certificate-authority": "the CA of kubelets' serving certificates",
}
_ADDRESS_TYPES = "kubelet-preferred-address-types"
_DEFAULT_ADDRESS_TYPES = ",".join(ADDRESS_TYPES)
_KUBELET_TIMEOUT = "kubelet-timeout"


class KubeletOptions(BrowserOptions):
    """Options of a server that may have Pods on Nodes."""

    group = "Pods on Nodes"
    settings_class: ClassVar[type | None] = KubeletAccess


def check_kubelets(options: Mapping[str, Any]) -> None:
    """
    Check the options of :class:`KubeletOptions`.

    :raises UsageError: an option is missing or invalid.
    """
    if not any(options[name] for name in _KUBELET_FILES):
        if (options[_ADDRESS_TYPES], options[_KUBELET_TIMEOUT]) != (_DEFAULT_ADDRESS_TYPES, 5.0):
            option = (
                _ADDRESS_TYPES
                if options[_ADDRESS_TYPES] != _DEFAULT_ADDRESS_TYPES
                else _KUBELET_TIMEOUT
            )
            raise UsageError(
                f"--{option} needs --kubelet-client-certificate: no kubelet is reached"
            )
        return
    for name, what in _KUBELET_FILES.items():
        if not options[name]:
            raise UsageError(f"--{name} is missing: {what}")
    if options["pods-view"]:
        raise UsageError(
            "--pods-view cannot go with --kubelet-client-certificate: Pods are those of Nodes then"
        )
    types = settings_of(KubeletAccess, options).address_types
    unknown = [each for each in types if each not in ADDRESS_TYPES]
    if unknown:
        choices = ", ".join(ADDRESS_TYPES)
        raise UsageError(f"--{_ADDRESS_TYPES}: {unknown[0]!r} is none of {choices}")


def kubelet_access(options: Mapping[str, Any]) -> KubeletAccess | None:
    """Settings by :class:`KubeletOptions`; ``None`` without Pods on Nodes."""
    access = settings_of(KubeletAccess, options)
    return access if access.certificate else None


_AGENT = "exec-apiserver"
_NAMES = "requestheader-allowed-names"
_HEADERS = {
    _NAMES: "Common names of the host's proxies",
    "requestheader-username-headers": "Headers with the user's name",
    "requestheader-group-headers": "Headers with the user's groups",
    "requestheader-uid-headers": "Headers with the user's UID",
    "requestheader-extra-headers-prefix": "Prefixes of headers with the user's extra fields",
}
_HOSTS = "behind a host, that says who is known, and its ConfigMap by which CA"
_REFUSED = {
    "client-ca-file": _HOSTS,
    **dict.fromkeys(_LISTS, _HOSTS),
    "cluster-signing-cert-file": "behind a host, that signs certificates",
    "cluster-signing-key-file": "behind a host, that signs certificates",
    "cluster-signing-kube-apiserver-client-cert-file": "behind a host, that signs certificates",
    "cluster-signing-kube-apiserver-client-key-file": "behind a host, that signs certificates",
    "pods-view": "behind a host, Pods are the host's",
    "kubelet-client-certificate": "behind a host, Pods are the host's",
    "kubelet-client-key": "behind a host, Pods are the host's",
    "kubelet-certificate-authority": "behind a host, Pods are the host's",
}


def _words(text: str) -> tuple[str, ...]:
    words = tuple(word for each in text.split(",") if (word := each.strip()))
    if not words:
        raise ValueError("give one or more, joined by commas")
    return words


def _headers(text: str) -> tuple[str, ...]:
    words = _words(text)
    for word in words:
        if not is_header_name(word):
            raise ValueError(f"no header can be called {word!r}")
    return words


class AggregatedOptions(IdentityOptions):
    """Options of a server that may be behind a host."""

    group = "Behind another API server"

    more: Sequence[ProgramOption] = (
        ProgramOption(
            "kubeconfig",
            "How the host is reached; default: $KUBECONFIG, or the Pod's service account.",
            is_path=True,
        ),
        ProgramOption("context", "Instead of the kubeconfig's current context."),
        *(
            ProgramOption(
                name,
                f"{description}, separated by commas; default: as the host's ConfigMap says.",
                _words if name == _NAMES else _headers,
            )
            for name, description in _HEADERS.items()
        ),
        ProgramOption(
            "aggregated",
            "Serve behind another cluster's API server, its host, by APIService: the host "
            "authenticates and authorizes, and its namespaces and Events are used.",
            default=False,
        ),
    )


def check_aggregated(options: Mapping[str, Any]) -> None:
    """
    Check that the options suit a standalone or an aggregated server.

    :raises UsageError: an option applies only to standalone, or only to aggregated servers.
    """
    if not options["aggregated"]:
        for name in ("kubeconfig", "context", *_HEADERS):
            if options[name] is not None:
                raise UsageError(f"--{name} needs --aggregated: there is no host")
        return
    refused = {**dict.fromkeys(_identity_options(), _HOSTS), **_REFUSED}
    for name, why in refused.items():
        if _is_given(options, name):
            raise UsageError(f"--{name} cannot go with --aggregated: {why}")


def _identity_options() -> list[str]:
    shared = [each.name for each in BrowserOptions.all_declared()]
    return [each.name for each in IdentityOptions.all_declared() if each.name not in shared]


def aggregated(options: Mapping[str, Any]) -> Aggregated | None:
    """
    Settings by :class:`AggregatedOptions`; ``None`` for a standalone server.

    :raises KubeConfigError: there is no usable configuration for the host.
    """
    if not options["aggregated"]:
        return None
    config = ReloadingConfig(options["kubeconfig"], options["context"])

    def host(reactor: Any) -> KubeClient:
        return KubeClient(config.current(), reactor, renew=config.current, agent=_AGENT)

    return Aggregated(host, RequestHeaderOverrides(*(options[name] or () for name in _HEADERS)))
