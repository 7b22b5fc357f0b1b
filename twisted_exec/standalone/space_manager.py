"""
The Space Manager of a standalone host.

The first start creates a provider called ``default``, whose spaces are processes on this host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted_exec.api.spaces import DEFAULT_PROVIDER, LOCAL, PROVIDER_TYPES, PROVIDERS
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.spacemanager.service import SpaceManager
from twisted_exec.spacemanager.settings import Settings
from twisted_exec.spacemanager.tap import provider_makers, space_loop
from twisted_exec.standalone.machines import DemoObject

IDENTITY = "exec-standalone"
"""Identity in the Lease, the same at each start, so that a restart need not wait for the old Lease."""
DIRECTORY = "spaces"
"""Directory of the providers, below the state directory."""


def provider() -> DemoObject:
    """Return the provider to create on the first start."""
    head = {"apiVersion": PROVIDERS.api_version, "kind": PROVIDERS.kind}
    body = {**head, "metadata": {"name": DEFAULT_PROVIDER}, "spec": {"ProviderType": LOCAL}}
    return DemoObject(PROVIDERS, body)


def manager(
    client: IKubeClient,
    directory: str,
    client_ca: str,
    reactor: Any,
    now: Callable[[], float],
    *,
    exclusive: bool,
    ports: range | None = None,
) -> SpaceManager:
    """
    Return the manager, not started.

    :param client_ca: path of our client CAs, with which local spaces authenticate the same users.
    :param exclusive: the API server's store is exclusive, so this is the only embedded manager.  A
        separate manager process still waits for the Lease: two managers would create each physical
        space twice.
    """
    settings = Settings(state_directory=directory, identity=IDENTITY if exclusive else "")
    makers = provider_makers(PROVIDER_TYPES, client_ca=client_ca, ports=ports)
    return SpaceManager(settings, client, makers, space_loop, reactor, now=now)
