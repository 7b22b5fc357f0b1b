"""
A test suite of your own, with pytest and pytest-twisted: ``pytest docs/examples/test_with_pytest.py``.

The fixture starts a real API server on a free port, with its objects in memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_twisted
from twisted.internet import reactor

from twisted_exec.clients import IRONCORE, ClientConfig, KubeClient, Material
from twisted_exec.services import APIServer, APIServerSettings, JSONLinesAudit, create_pki
from twisted_exec.stores import MemoryStorage

POOLS = IRONCORE.pool


@pytest_twisted.async_yield_fixture
async def administrator(tmp_path: Path) -> AsyncIterator[KubeClient]:
    """A client of a running API server, as a member of ``system:masters``."""
    pki = create_pki(str(tmp_path / "pki"))
    serving, forwarding = pki.issue_apiserver(["127.0.0.1"])
    admin = pki.issue_user("admin", ["system:masters"])
    server = APIServer(
        APIServerSettings(
            listen="tcp:0:interface=127.0.0.1",
            certificate=serving.certificate,
            key=serving.key,
            client_ca=pki.client_ca,
            poollet_certificate=forwarding.certificate,
            poollet_key=forwarding.key,
            poollet_ca=pki.serving_ca,
        ),
        MemoryStorage(),
        JSONLinesAudit(str(tmp_path / "audit.jsonl")),
        reactor,
    )
    server.startService()
    await server.when_ready()
    client = KubeClient(
        ClientConfig(
            server.url,
            ca=Material(path=pki.serving_ca),
            certificate=Material(path=admin.certificate),
            key=Material(path=admin.key),
        ),
        reactor,
    )
    yield client
    await client.close()
    await server.stopService()


@pytest_twisted.ensureDeferred
async def test_create_and_list(administrator: KubeClient) -> None:
    """A MachinePool that was created is listed."""
    pool = {"metadata": {"name": "rack-1"}, "spec": {"providerID": "example://rack-1"}}
    await administrator.create(POOLS, pool)
    listing = await administrator.list(POOLS)
    assert [each["metadata"]["name"] for each in listing["items"]] == ["rack-1"]
