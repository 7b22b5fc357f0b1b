"""
``kubectl console --space``: address of a Space's server, and the credentials for it.

The default are the user's own credentials, as far as :mod:`twisted_exec.spaces.kubeconfigs` allows
them.  ``--space-credentials`` uses those of the Space, which all its users share, so the
``User-Agent`` names the user, for the server's audit.  It is only a claim, whose proof is in the
audit of the cluster with the Secret.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from twisted_exec.api.kinds.reviews import SELFSUBJECTREVIEWS
from twisted_exec.api.status import APIError, Unauthorized
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.options import viewpoint_of
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.kubeconfig.credentials import settled
from twisted_exec.kube.kubeconfig.environment import proxy_for
from twisted_exec.kube.machine_requests import AGENT, TIMEOUT_SECONDS
from twisted_exec.spaces.kubeconfigs import config_in
from twisted_exec.spaces.lookup import FoundSpace, find_space, ready_view
from twisted_exec.spaces.user_access import endpoint_in, with_user_credentials

if TYPE_CHECKING:
    from twisted_exec.kube.interfaces import IKubeClient

_LONGEST_NAME = 200


@dataclass(frozen=True)
class Visit:
    """
    Access to a Space's server.

    :param config: the server, and the credentials for it.
    :param remedy: what to do if the server does not accept the credentials.
    """

    config: ClientConfig
    agent: str = AGENT
    remedy: str = ""

    def explain(self, refused: Failure) -> Failure:
        """Add the remedy to a refusal of the Space's server; an errback."""
        error = refused.value
        if isinstance(error, APIError) and error.code == Unauthorized.code and self.remedy:
            error.message = f"{error.message}; {self.remedy}"
        return refused


def visit(mine: ClientConfig, options: argparse.Namespace, reactor: Any) -> Deferred[Visit]:
    """
    Find the Space's server.

    :param mine: configuration of the cluster that has the Space.
    :return: fires with the access; fails with ``APIError``, ``KubeConfigError`` or
        ``TLSConfigError``.
    """
    return Deferred.fromCoroutine(_visit(mine, options, reactor))


async def _visit(mine: ClientConfig, options: argparse.Namespace, reactor: Any) -> Visit:
    seconds = options.request_timeout or TIMEOUT_SECONDS
    hub = CommandClient(mine, reactor, timeout_seconds=seconds, agent=AGENT)
    try:
        location = await find_space(hub, options.space, options.provider)
        viewpoint = viewpoint_of(options)
        view = ready_view(location.space, viewpoint)
        if options.space_credentials:
            config = await config_in(hub, location.space, viewpoint)
            return Visit(_named(config, options), user_agent_of(location, await who(hub)))
        endpoint = endpoint_in(location.space, view, viewpoint)
        settled_config = await settled(mine, reactor)
        config = with_user_credentials(
            settled_config, endpoint, view.label, options.send_token_to or ""
        )
        if not config.proxy_url:
            config = replace(config, proxy_url=proxy_for(config.url, os.environ))
        remedy = (
            f"the API server of {view.label} has users of its own; --space-credentials connects as the "
            "Space's own user"
        )
        return Visit(_named(config, options), remedy=remedy)
    finally:
        await hub.close()


def _named(config: ClientConfig, options: argparse.Namespace) -> ClientConfig:
    """Set the namespace from the options: the context's is of another cluster."""
    return replace(config, namespace=options.namespace or "default")


async def who(client: IKubeClient) -> str:
    """Return our user name; empty if the server does not say it."""
    try:
        review = await client.create(SELFSUBJECTREVIEWS.resource, {})
    except APIError:
        return ""
    return str((review.get("status") or {}).get("userInfo", {}).get("username", ""))


def user_agent_of(location: FoundSpace, user: str) -> str:
    """Return the ``User-Agent`` for the Space's shared credentials."""
    who = quote(user[:_LONGEST_NAME], safe="@:.-_+=") or "somebody unknown"
    return f"{AGENT.removesuffix(')')}; credentials of space {location.name}, used by {who})"
