"""
The Space Manager of a host that has everything: within the same process, over the same API server.

There is a provider called ``default`` from the first start, whose spaces are processes of this host.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from twisted_exec.api.spaces import DEFAULT_PROVIDER, LOCAL, PROVIDER_TYPES, PROVIDERS
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.spacemanager.interfaces import MakeProvider
from twisted_exec.spacemanager.providers.local import provider as local
from twisted_exec.spacemanager.service import Settings, SpaceManager
from twisted_exec.spacemanager.tap import provider_makers, space_loop
from twisted_exec.standalone.machines import Wanted

IDENTITY = "exec-standalone"
"""What it is called in the Lease of managers, at each start: it need not wait for itself."""
DIRECTORY = "spaces"
"""Below the state directory: what adaptors keep."""


def provider() -> Wanted:
    """The provider that is there from the first start."""
    head = {"apiVersion": PROVIDERS.api_version, "kind": PROVIDERS.kind}
    body = {**head, "metadata": {"name": DEFAULT_PROVIDER}, "spec": {"ProviderType": LOCAL}}
    return Wanted(PROVIDERS, body)


def manager(
    client: IKubeClient,
    directory: str,
    client_ca: str,
    reactor: Any,
    now: Callable[[], float],
    *,
    alone: bool,
) -> SpaceManager:
    """
    The manager; not started.

    :param client: of the API server, as somebody who may do everything.
    :param directory: for what adaptors keep.
    :param client_ca: path of our own client CA: who is a user here is one in local spaces, as far as their
        roles go there.
    :param alone: nobody else can have the API server's store, so there is one such manager at most.  One that is a
        program of its own waits for it all the same: two would make each physical space twice.
    """
    settings = Settings(state_directory=directory, identity=IDENTITY if alone else "")
    makers: dict[str, MakeProvider] = dict(provider_makers(PROVIDER_TYPES))
    makers[LOCAL] = partial(local.make, client_ca=client_ca)
    return SpaceManager(settings, client, makers, space_loop, reactor, now=now)
