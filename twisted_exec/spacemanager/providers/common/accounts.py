"""
A ServiceAccount of ours within a physical space, and tokens of it: what is handed out instead of the
provider's own credentials.

Nobody can be told apart from the provider's administrator who has the administrator's token; a token of an
account opens one physical space, ends by itself, and is taken back by deleting the account.

The account is made, or mended, whenever a token is asked for: everything here may be asked again after any
failure.  Tokens are kept in memory only.  What is forgotten is asked for anew, and the one before goes on
being good until its own end; so nobody who is using one is cut off.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Hashable
from dataclasses import dataclass, field

from twisted_exec.api.kinds import (
    CLUSTERROLEBINDINGS,
    NAMESPACES,
    SERVICEACCOUNTS,
    TOKENREQUESTS,
)
from twisted_exec.api.resource import Resource
from twisted_exec.api.spaces import MANAGED_BY, MANAGER
from twisted_exec.api.status import AlreadyExists, APIError, BadGateway, Conflict
from twisted_exec.api.times import seconds
from twisted_exec.kube.interfaces import IKubeClient, Object

NAMESPACE = MANAGER
"""Of our accounts, within each physical space."""

TOKEN_SECONDS = 86400
"""What is asked for; who grants tokens may give less."""

ROLE = "cluster-admin"

Place = Callable[[Resource], Resource]
"""Where in the provider a resource of the physical space is; for most, where it always is."""


@dataclass(frozen=True)
class Token:
    """
    A token of an account.

    :param issued: seconds since the epoch by our own clock, as is ``expires``.
    """

    secret: str = field(repr=False)
    issued: float
    expires: float

    def is_due(self, now: float) -> bool:
        """Half of its time is over: another is to be had before somebody finds this one too old."""
        return now >= (self.issued + self.expires) / 2


def account_name(provider: str) -> str:
    """The account by which a provider's Spaces are opened: several managers do not share one."""
    return f"{MANAGER}-{provider}"


def subject(name: str) -> Object:
    """The account as rules name it."""
    return {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}


async def made_account(client: IKubeClient, name: str, at: Place) -> None:
    """
    Have the account, with all rights within its physical space.

    :raises APIError: it cannot be had; ``Conflict`` when somebody else's rules have its name.
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
    there = await client.get(bindings, name)
    if there.get("roleRef") != role or subject(name) not in _subjects(there):
        raise Conflict(
            f'ClusterRoleBinding "{name}" is there and does not bind ClusterRole "{ROLE}" to our'
            " ServiceAccount; delete it, or rename the SpaceProviderDesc"
        )


async def _made(client: IKubeClient, resource: Resource, obj: Object, namespace: str = "") -> bool:
    """Whether it was made; else there is one already."""
    whole = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
    try:
        await client.create(resource, whole, namespace)
    except AlreadyExists:
        return False
    return True


def _subjects(binding: Object) -> list[Object]:
    found = binding.get("subjects") or []
    keys = ("kind", "name", "namespace")
    return [{key: each.get(key) for key in keys} for each in found if isinstance(each, dict)]


async def asked_token(
    client: IKubeClient,
    name: str,
    at: Place,
    now: Callable[[], float],
    wanted_seconds: int = TOKEN_SECONDS,
) -> Token:
    """
    A new token of the account.

    :param wanted_seconds: how long it is to be good; who grants it may give less.
    :raises APIError: there is none to be had.
    """
    issued = now()
    resource = TOKENREQUESTS.resource
    request = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "spec": {"expirationSeconds": wanted_seconds},
    }
    accounts = at(SERVICEACCOUNTS.resource)
    told = await client.create(accounts, request, NAMESPACE, subresource="token", name=name)
    status = told.get("status")
    try:
        assert isinstance(status, dict)
        secret, expires = status["token"], seconds(status["expirationTimestamp"])
        assert isinstance(secret, str) and secret and secret.isascii() and secret.isprintable()
    except (AssertionError, KeyError, TypeError, ValueError):
        raise BadGateway(
            f'ServiceAccount "{NAMESPACE}/{name}": what was answered to a TokenRequest is no token'
        ) from None
    return Token(secret, issued, expires)


class Tokens:
    """
    Tokens that were asked for, by what they are for.

    :param ask: has one made; called with what it is for.
    :param now: seconds since the epoch.
    """

    def __init__(
        self, ask: Callable[[Hashable], Awaitable[Token]], now: Callable[[], float]
    ) -> None:
        self._ask, self._now = ask, now
        self._kept: dict[Hashable, Token] = {}

    def kept(self, what: Hashable) -> Token | None:
        """The one that there is, unless its time is over."""
        token = self._kept.get(what)
        return None if token is None or token.expires <= self._now() else token

    async def current(self, what: Hashable) -> Token:
        """
        One that is good for half of its time at least; while no other can be had, the one that is good still.

        :raises APIError: there is none.
        """
        kept = self.kept(what)
        if kept is not None and not kept.is_due(self._now()):
            return kept
        try:
            return await self.renewed(what)
        except APIError:
            if kept is None:
                raise
            return kept

    async def renewed(self, what: Hashable) -> Token:
        """
        Another one; the one before is kept no more.

        :raises APIError: there is none, and the one before is kept.
        """
        token = await self._ask(what)
        self._kept[what] = token
        return token

    def stamp(self, what: Hashable) -> str:
        """Changes when :meth:`current` would give another; never the same as of another token."""
        kept = self._kept.get(what)
        if kept is None or kept.is_due(self._now()):
            return "due"
        return f"{kept.issued:.3f}"

    def due(self) -> list[Hashable]:
        """What another is to be asked for."""
        now = self._now()
        return [what for what, token in self._kept.items() if token.is_due(now)]

    def keep_only(self, these: Collection[Hashable]) -> None:
        """Forget all others: what they were for is gone."""
        for what in [what for what in self._kept if what not in these]:
            del self._kept[what]
