"""
Parts of chains of real services on loopback: certificates, settings, clients, and waiting.

Every part works with one PKI of temporary files, by the names of its certificates, such as
``user-jane`` or ``poollet-pool-a-client``::

    server = APIServer(Settings(**apiserver_settings()), MemoryStorage(), AuditList(), reactor)
    await begin(server, self.addCleanup)
    admin = client(server, "user-admin", self.addCleanup)
    answer = await ask(endpoint(server.address, issued("user-jane")), "/version")
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.dialects import DIALECTS
from twisted_exec.api.users import FORWARDING_USER
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material
from twisted_exec.kube.kubeconfig.connection import endpoint as server_of
from twisted_exec.kube.kubeconfig.writer import write_kubeconfig
from twisted_exec.streaming.http import session_requests
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused, UpgradeRequest, upgrade
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.tls.client import ClientTLS
from twisted_exec.tls.endpoints import client_endpoint
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pki.authority import Issued
from twisted_exec.tls.pki.directory import PKI, create_pki

reactor: Any = _reactor
HOST = "127.0.0.1"
LISTEN = f"tcp:0:interface={HOST}"
POOL = "pool-a"
KUBELET_CLIENT = "kube-apiserver-kubelet-client"
"""As whom an API server comes to kubelets."""
NODE_SERVER = "exec-nodeserver"
"""As whom a node server comes to root and leaf: it may do anything."""
USERS = {
    "admin": ["system:masters"],
    KUBELET_CLIENT: ["system:masters"],
    NODE_SERVER: ["system:masters"],
    "jane": ["dev"],
    "eve": [],
}
"""Users with a certificate, and their groups."""
TURN_SECONDS = 0.005
PATIENCE_SECONDS = 600.0
"""Limit of connections and answers in tests whose subject is another one: as long as a test may take."""

CleanUp = Callable[..., Any]
"""``addCleanup`` of a test case, or what does the same."""


async def until(condition: Callable[[], Any]) -> float:
    """
    Let the reactor turn until ``condition()``; the test's timeout bounds it.

    :return: how many seconds that took, without those in which the machine did other things.
    """
    turns = 0
    while not condition():
        await deferLater(reactor, TURN_SECONDS)
        turns += 1
    return turns * TURN_SECONDS


# Certificates.


def pool_of(dialect: Any) -> str:
    """Return the pool of a dialect that has a certificate."""
    return f"p-{dialect.name}"


@cache
def pki(name: str = "tests") -> PKI:
    """Return a PKI for all tests; those of different names trust nothing of each other's."""
    directory = tempfile.mkdtemp(prefix=f"exec-{name}-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    made = create_pki(os.path.join(directory, "pki"))
    made.issue_apiserver([HOST, "localhost", "api.test"])
    for pool in (POOL, "pool-b"):
        made.issue_poollet(pool, [HOST, "localhost"])
    for dialect in DIALECTS:
        made.issue_poollet(pool_of(dialect), [HOST], dialect=dialect)
    for user, groups in USERS.items():
        made.issue_user(user, groups)
    made.issue_runtime("kubelet", [HOST])
    return made


def issued(name: str, of: PKI | None = None) -> Issued:
    """Return a certificate with its key."""
    pair = (of or pki()).pair(name)
    return Issued(read_file(pair.certificate), read_file(pair.key))


# Services.


async def begin(service: Any, clean_up: CleanUp) -> Any:
    """Start a service, and return it once it is ready; it is stopped in the end, if it still runs."""
    ready = service.when_ready()
    service.startService()
    clean_up(lambda: service.stopService() if service.running else None)
    await ready
    return service


def apiserver_settings(of: PKI | None = None, **more: Any) -> dict[str, Any]:
    """Return settings of an API server on a free port that ends at once; ``more`` are others."""
    of = of or pki()
    serving, forwarding = of.pair("apiserver"), of.pair("apiserver-forwarding")
    return {
        "listen": LISTEN,
        "certificate": serving.certificate,
        "key": serving.key,
        "client_ca": of.client_ca,
        "poollet_certificate": forwarding.certificate,
        "poollet_key": forwarding.key,
        "poollet_ca": of.serving_ca,
        "drain_seconds": 0.0,
        **more,
    }


def poollet_settings(pool: str = POOL, **more: Any) -> dict[str, Any]:
    """Return settings of a pool's poollet on a free port that the API server may reach."""
    serving = pki().pair(f"poollet-{pool}")
    return {
        "pool": pool,
        "provider_id": f"test://{pool}",
        "certificate": serving.certificate,
        "key": serving.key,
        "listen": LISTEN,
        "client_ca": pki().client_ca,
        "requestheader_ca": pki().forwarding_ca,
        "requestheader_names": [FORWARDING_USER],
        "addresses": [("InternalIP", HOST)],
        **more,
    }


def await_endings(case: SynchronousTestCase) -> None:
    """
    Let the hops of a test await each other's answers when they end or change a session.

    Otherwise they cut it after less than a second, in which a busy machine may do nothing of it.
    """
    defaults = {**Proxy.__init__.__kwdefaults__, "end_seconds": PATIENCE_SECONDS}
    case.patch(Proxy.__init__, "__kwdefaults__", defaults)
    case.patch(session_requests, "SILENCE_SECONDS", PATIENCE_SECONDS)


# Their clients.


def client_config(url: str, name: str, of: PKI | None = None) -> ClientConfig:
    """Return the configuration of a client that shows a certificate."""
    of = of or pki()
    pair = of.pair(name)
    return ClientConfig(
        url,
        ca=Material(path=of.serving_ca),
        certificate=Material(path=pair.certificate),
        key=Material(path=pair.key),
    )


def kubeconfig(path: str, url: str, name: str, of: PKI | None = None) -> str:
    """Write the kubeconfig of a certificate; return its path."""
    identity = issued(name, of)
    write_kubeconfig(
        path,
        server=url,
        ca_pem=read_file((of or pki()).serving_ca),
        certificate_pem=identity.certificate_pem,
        key_pem=identity.key_pem,
        user=name.removeprefix("user-"),
        replace=True,
    )
    return path


def client(server: Any, name: str, clean_up: CleanUp, of: PKI | None = None) -> KubeClient:
    """Return a client of an API server that shows a certificate; it is closed in the end."""
    made = patient(client_config(server.url, name, of))
    clean_up(made.close)
    return made


def patient(config: ClientConfig) -> KubeClient:
    """Return a client that waits for connections, too, as long as a busy machine may need."""
    server = server_of(config, reactor, timeout_seconds=PATIENCE_SECONDS)
    return KubeClient(config, reactor, timeout_seconds=PATIENCE_SECONDS, server=server)


def endpoint(address: Any, identity: Issued | None = None) -> Any:
    """Return the endpoint of a server of :func:`pki`, as seen by the holder of a certificate."""
    tls = ClientTLS(
        HOST,
        ca_pem=read_file(pki().serving_ca),
        certificate_pem=identity.certificate_pem if identity else b"",
        key_pem=identity.key_pem if identity else b"",
    )
    return client_endpoint(reactor, HOST, address.port, tls, timeout_seconds=PATIENCE_SECONDS)


async def ask(
    endpoint: Any,
    path: str,
    *,
    method: bytes = b"GET",
    headers: Sequence[tuple[bytes, bytes]] = (),
    host: bytes = HOST.encode(),
) -> UpgradeRefused:
    """Return the answer to a request that asks for no stream, or is refused."""
    request = UpgradeRequest(method, path.encode(), host, headers)
    try:
        await upgrade(endpoint, request, clock=reactor, timeout_seconds=PATIENCE_SECONDS)
    except UpgradeRefused as answer:
        return answer
    raise AssertionError("it was upgraded")
