"""
Credentials of physical spaces: reduced kubeconfigs, ServiceAccounts and their tokens.

In physical spaces of ``kcp`` and ``local``, tokens of a ServiceAccount of ours replace the
provider's own credentials: a user with the administrator's token is indistinguishable from the
administrator. A token of our account gives access to one physical space, expires, and is revoked by
deleting the account.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twisted_exec.api.kinds import CLUSTERROLEBINDINGS, NAMESPACES, SERVICEACCOUNTS, TOKENREQUESTS
from twisted_exec.api.resource import Resource
from twisted_exec.api.spaces import MANAGED_BY, MANAGER
from twisted_exec.api.status import AlreadyExists, APIError, BadGateway, Conflict
from twisted_exec.api.times import seconds
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.kubeconfig.entries import ConfigFile, ConfigFiles
from twisted_exec.kube.kubeconfig.expiry import expiry_of
from twisted_exec.kube.kubeconfig.loader import load_inline
from twisted_exec.kube.kubeconfig.writer import written
from twisted_exec.spacemanager.interfaces import BROKEN, Access, Physical, SpaceInfo
from twisted_exec.spaces.kubeconfigs import unwrapped

NAMESPACE = MANAGER
"""Namespace of our accounts in each physical space."""

TOKEN_SECONDS = 86400
"""Default of the requested lifetime of a token; the server may grant less."""

ROLE = "cluster-admin"

Place = Callable[[Resource], Resource]
"""Maps a resource of the physical space to its path at the provider; for most, the identity."""


class KubeconfigVerdicts:
    """The last refusal of each physical space's kubeconfigs."""

    def __init__(self) -> None:
        self._refused: dict[Physical, SpaceInfo] = {}

    def note(self, info: SpaceInfo) -> SpaceInfo:
        """Remember the verdict of a single request."""
        if info.state == BROKEN:
            self._refused[info.physical] = info
        else:
            self._refused.pop(info.physical, None)
        return info

    def applied(self, infos: Iterable[SpaceInfo]) -> Sequence[SpaceInfo]:
        """Apply the verdicts to a complete list, and sort it."""
        by_name = {info.physical: self._of(info) for info in infos}
        for physical in self._refused.keys() - by_name.keys():
            del self._refused[physical]
        return [by_name[physical] for physical in sorted(by_name)]

    def _of(self, info: SpaceInfo) -> SpaceInfo:
        refused = self._refused.get(info.physical)
        return refused if refused is not None and refused.version == info.version else info


def clean(content: bytes, source: str, name: str, context: str = "") -> Access:
    """
    Reduce a kubeconfig to one cluster, one user and one context.

    :raises KubeConfigError: it is not usable, not self-contained, or has no credentials.
    """
    content = unwrapped(content, source)
    # Without the environment: this process's proxy settings are of no use to others.
    return of_config(load_inline(content, source, context or None, environ={}), name)


def combined(cluster: Mapping[str, Any], user: Mapping[str, Any], source: str, name: str) -> Access:
    """
    Combine a cluster and a user from different sources, each in the format of a kubeconfig.

    :raises KubeConfigError: as for :func:`clean`.
    """
    document = {
        "clusters": [{"name": name, "cluster": dict(cluster)}],
        "users": [{"name": name, "user": dict(user)}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    # Values of other types, such as dates, cannot be part of a kubeconfig.
    try:
        content = json.dumps(document, default=str).encode()
    except (ValueError, RecursionError):
        raise KubeConfigError(f"{source}: it is nested too deep to be a kubeconfig") from None
    return of_config(load_inline(content, source, environ={}), name)


def user_of(content: bytes, source: str, context: str = "") -> Mapping[str, Any]:
    """
    Return the user of a kubeconfig's context, whatever its cluster.

    :raises KubeConfigError: the kubeconfig is not usable, or has no such user.
    """
    files = ConfigFiles([ConfigFile.parse(source, unwrapped(content, source))])
    chosen = files.context(context, True)
    return files.find("users", "user", chosen.text("user"), f'context "{chosen.name}"').value


def of_config(config: ClientConfig, name: str) -> Access:
    """
    Return the access for a parsed kubeconfig.

    :raises KubeConfigError: it has no credentials.
    """
    if not config.has_credentials:
        raise KubeConfigError(
            f"{config.source}: it holds no credentials; give its user a token or a client certificate"
        )
    return Access(written(config, name), expiry_of(config))


@dataclass(frozen=True)
class Token:
    """
    A token of an account.

    :param issued: seconds since the epoch, by our own clock.
    :param expires: the same, by that of the server.
    """

    secret: str = field(repr=False)
    issued: float
    expires: float

    def is_due(self, now: float) -> bool:
        """Return whether the token should be replaced."""
        return not self.issued <= now < (self.issued + self.expires) / 2


def account_name(provider: str) -> str:
    """Return the name of a provider's account."""
    return f"{MANAGER}-{provider}"


def subject(name: str) -> Object:
    """Return the account as a subject of a binding."""
    return {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}


async def ensure_account(client: IKubeClient, name: str, at: Place) -> None:
    """
    Create what is missing of the account, which has all permissions in its physical space.

    :raises Conflict: the name of its binding is in use.
    """
    labels = {MANAGED_BY: MANAGER}
    namespace = {"metadata": {"name": NAMESPACE, "labels": labels}}
    await _made(client, at(NAMESPACES.resource), namespace)
    await _made(
        client,
        at(SERVICEACCOUNTS.resource),
        {"metadata": {"name": name, "labels": labels}},
        NAMESPACE,
    )
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE}
    binding = {
        "metadata": {"name": name, "labels": labels},
        "roleRef": role,
        "subjects": [subject(name)],
    }
    bindings = at(CLUSTERROLEBINDINGS.resource)
    if await _made(client, bindings, binding):
        return
    existing = await client.get(bindings, name)
    if existing.get("roleRef") != role or subject(name) not in _subjects(existing):
        raise Conflict(
            f'ClusterRoleBinding "{name}" exists and does not bind ClusterRole "{ROLE}" to the'
            " ServiceAccount of the Space manager; delete it, or rename the SpaceProviderDesc"
        )


async def _made(client: IKubeClient, resource: Resource, obj: Object, namespace: str = "") -> bool:
    whole = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
    try:
        await client.create(resource, whole, namespace)
    except AlreadyExists:
        return False
    return True


def _subjects(binding: Object) -> list[Object]:
    subjects = binding.get("subjects") or []
    keys = ("kind", "name", "namespace")
    return [{key: each.get(key) for key in keys} for each in subjects if isinstance(each, dict)]


async def request_token(
    client: IKubeClient,
    name: str,
    at: Place,
    now: Callable[[], float],
    wanted_seconds: int = TOKEN_SECONDS,
) -> Token:
    """
    Request a new token of the account.

    :param wanted_seconds: requested lifetime; the server may grant less.
    """
    issued = now()
    resource = TOKENREQUESTS.resource
    request = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "spec": {"expirationSeconds": wanted_seconds},
    }
    accounts = at(SERVICEACCOUNTS.resource)
    answer = await client.create(accounts, request, NAMESPACE, subresource="token", name=name)
    status = answer.get("status")
    try:
        assert isinstance(status, dict)
        secret, expires = status["token"], seconds(status["expirationTimestamp"])
        assert isinstance(secret, str) and secret and secret.isascii() and secret.isprintable()
    except (AssertionError, KeyError, TypeError, ValueError):
        raise BadGateway(
            f'ServiceAccount "{NAMESPACE}/{name}": what was answered to a TokenRequest is no token'
        ) from None
    return Token(secret, issued, expires)


class CachedTokens:
    """
    Cached tokens, by key.

    :param now: seconds since the epoch.
    """

    def __init__(
        self, ask: Callable[[Hashable], Awaitable[Token]], now: Callable[[], float]
    ) -> None:
        self._ask, self._now = ask, now
        self._kept: dict[Hashable, Token] = {}

    def cached(self, what: Hashable) -> Token | None:
        token = self._kept.get(what)
        return None if token is None or token.expires <= self._now() else token

    async def current(self, what: Hashable) -> Token:
        """
        Return a token, renewed if it is due and can be.

        :raises APIError: there is no valid token.
        """
        cached = self.cached(what)
        if cached is not None and not cached.is_due(self._now()):
            return cached
        try:
            return await self.renewed(what)
        except APIError:
            if cached is None:
                raise
            return cached

    async def renewed(self, what: Hashable) -> Token:
        """Request and cache a new token."""
        token = await self._ask(what)
        self._kept[what] = token
        return token

    def stamp(self, what: Hashable) -> str:
        """Return a text that changes with the token."""
        cached = self._kept.get(what)
        if cached is None or cached.is_due(self._now()):
            return "due"
        return f"{cached.issued:.3f}"

    def due(self) -> list[Hashable]:
        """Return the keys whose tokens should be replaced."""
        now = self._now()
        return [what for what, token in self._kept.items() if token.is_due(now)]

    def keep_only(self, these: Collection[Hashable]) -> None:
        for what in [what for what in self._kept if what not in these]:
            del self._kept[what]
