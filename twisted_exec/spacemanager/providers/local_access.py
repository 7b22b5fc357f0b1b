"""
The kubeconfig of a local space: a token of an account of ours within it, by its administrator's leave.

The token is good for a year.  Our API server ends a session when the token ends that it was opened with, so one
that is soon over would end sessions that somebody has on behalf of the manager's clients, such as a broker.
It is taken back by deleting the account.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from twisted_exec.api.meta import Resource
from twisted_exec.api.spaces import MANAGER
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.config import ClientConfig, KubeConfigError, Material
from twisted_exec.kube.kubeconfig import load
from twisted_exec.kube.written import written
from twisted_exec.spacemanager.interfaces import Access
from twisted_exec.spacemanager.providers.accounts import account_name, asked_token, made_account

TOKEN_SECONDS = 365 * 86400
_CONTEXT = "space"


def enrolled(path: str, provider: str, reactor: Any, now: Callable[[], float]) -> Deferred[Access]:
    """
    Have the account, and a new token of it.

    :param path: of the administrator's kubeconfig.
    :return: fires with the access; fails with an APIError when there is none to be had.
    """
    return Deferred.fromCoroutine(_enrolled(path, provider, reactor, now))


async def _enrolled(path: str, provider: str, reactor: Any, now: Callable[[], float]) -> Access:
    try:
        admin = load(path)
        ca = admin.ca.read()
    except KubeConfigError as error:
        raise ServiceUnavailable(str(error)) from None
    client = KubeClient(admin, reactor, agent=MANAGER)
    try:
        name = account_name(provider)
        await made_account(client, name, _as_is)
        token = await asked_token(client, name, _as_is, now, TOKEN_SECONDS)
    finally:
        await client.close()
    config = ClientConfig(admin.server, ca=Material(data=ca), token=token.secret)
    return Access(written(config, _CONTEXT), token.expires)


def _as_is(resource: Resource) -> Resource:
    return resource
