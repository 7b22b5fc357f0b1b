"""
Running chains of programs for :mod:`.bench`: standalone, two replicas on etcd, behind Kubernetes.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import load_pem_private_key
from twisted.internet import reactor
from twisted.internet.threads import deferToThread

from tests import needs
from tests.auth import forge
from tests.auth.provider import Provider
from tests.flows.deployment import POOL, Deployment, machine, machine_class, run_reactor
from tests.flows.outages.replicated import Replicas
from tests.interop import chains
from tests.interop.aggregated_cluster import NAME, NAMESPACE, AggregatedCluster
from tests.interop.hosts import kubectl
from twisted_exec.api.dialects import DEFAULT
from twisted_exec.auth.default_roles import PERMISSION_WATCHER
from twisted_exec.tls.pki.directory import CLIENT, PKI

MACHINES = 10
GROUP = "operators"
AUDIENCE = "twisted-exec"
HOST_ISSUER = "https://nobody.example"
"""Issuer of the ServiceAccount tokens of the kube-apiserver."""
_LIMITS = ("--max-sessions=3000", "--max-sessions-per-user=3000")
READ_SECONDS = 1.5
"""A program reads a replaced file after a second at most, unless sessions depend on the file."""
_TRUST = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"

Request = tuple[str, str, Any]
"""Method, path and body (``None`` for none) of a request."""


@dataclass
class Arrangement:
    """
    A running chain of programs.

    :param ports: of the servers that users connect to, in turn.
    :param admin_port: of the server that gets the withdrawals.
    :param own_ports: of our API servers, which see the certificates and tokens of their clients.
    :param hops: pids, by the names of the hops.
    """

    pki: PKI
    directory: Path
    ports: Sequence[int]
    admin_port: int
    own_ports: Sequence[int]
    hops: Mapping[str, int]

    def __post_init__(self) -> None:
        self._admin = self.context("admin", ["system:masters"])

    def context(
        self,
        user: str = "",
        groups: Sequence[str] = (),
        authority: str = CLIENT,
        end: float = 0.0,
    ) -> ssl.SSLContext:
        """
        Return the TLS settings of a client.

        :param user: of its certificate; empty for no certificate.
        :param authority: name of the CA that issues the certificate.
        :param end: of the certificate, in seconds since 1970; 0 for an end after the measurement.
        """
        tls = ssl.create_default_context(cafile=self.pki.serving_ca)
        if user:
            now = datetime.now(UTC)
            life = timedelta(seconds=end - now.timestamp()) if end else timedelta(hours=4)
            issued = self.pki.authority(authority).issue_client(user, groups, now=now, life=life)
            path = self.directory / f"{authority}-{user}.pem"
            path.write_bytes(issued.certificate_pem + issued.key_pem)
            tls.load_cert_chain(path)
        return tls

    def requests(self, *requests: Request, missing: bool = False) -> list[Any]:
        """
        Send requests as the administrator, on one connection.

        :param missing: objects that do not exist are no failure.
        """
        connection = http.client.HTTPSConnection("localhost", self.admin_port, context=self._admin)
        answers = []
        for method, path, body in requests:
            kind = "merge-patch+json" if method == "PATCH" else "json"
            text = json.dumps(body) if body is not None else None
            connection.request(method, path, text, {"Content-Type": f"application/{kind}"})
            answer = connection.getresponse()
            data = answer.read()
            if answer.status >= 300 and not (missing and answer.status == 404):
                raise RuntimeError(f"{method} {path}: {answer.status} {data[:300]!r}")
            answers.append(json.loads(data))
        connection.close()
        return answers

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request as the administrator."""
        return self.requests((method, path, body))[0]

    def write_file(self, name: str, text: bytes) -> str:
        """Replace a file as administrators and Kubernetes do, by a rename; return its path."""
        path = self.directory / name
        new = path.with_suffix(".new")
        with open(new, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(text)
        new.rename(path)
        return str(path)

    def trust(self, *authorities: str) -> None:
        """Accept client certificates of these CAs only."""
        raise NotImplementedError

    def token(self, user: str, end: float) -> str:
        """Return a user's token that is valid until a time, in seconds since 1970."""
        raise NotImplementedError

    def _authorities(self, names: Sequence[str]) -> bytes:
        return b"".join(self.pki.authority(name).certificate_pem for name in names)


@dataclass
class Standalone(Arrangement):
    """Our API servers know the users, by files and by an identity provider."""

    provider: Provider = field(kw_only=True)

    def trust(self, *authorities: str) -> None:
        """As :meth:`Arrangement.trust`: replace the file."""
        self.write_file("clients.crt", self._authorities(authorities))

    def token(self, user: str, end: float) -> str:
        """As :meth:`Arrangement.token`: an ID token."""
        claims = {"aud": AUDIENCE, "sub": user, "groups": [GROUP], "exp": end}
        return self.provider.token(**claims).decode()


@dataclass
class Behind(Arrangement):
    """A kube-apiserver knows the users; our API server follows its ConfigMap."""

    account_key: str = field(kw_only=True)

    def trust(self, *authorities: str) -> None:
        """As :meth:`Arrangement.trust`: change the ConfigMap."""
        text = self._authorities(authorities).decode()
        self.request("PATCH", _TRUST, {"data": {"client-ca-file": text}})

    def token(self, user: str, end: float) -> str:
        """As :meth:`Arrangement.token`: of a ServiceAccount, shorter than it could be requested."""
        path = "/api/v1/namespaces/default/serviceaccounts"
        made = self.request("POST", path, {"metadata": {"name": user, "namespace": "default"}})
        now = int(time.time())
        claims = {
            "iss": HOST_ISSUER,
            "aud": [HOST_ISSUER],
            "sub": f"system:serviceaccount:default:{user}",
            "iat": now,
            "nbf": now,
            "exp": int(end),
            "kubernetes.io": {
                "namespace": "default",
                "serviceaccount": {"name": user, "uid": made["metadata"]["uid"]},
            },
        }
        key: Any = load_pem_private_key(Path(self.account_key).read_bytes(), None)
        return forge.token(claims, key, kid=None).decode()


def _run(deployment: Deployment, work: Callable[[Arrangement], None]) -> None:
    """Start programs of ours, and work in a thread."""

    async def running() -> None:
        provider = Provider()
        await provider.listen(reactor, deployment.path("provider"))
        try:
            await _start(deployment, provider)
            await deferToThread(work, _arrangement(deployment, provider))
        finally:
            await deployment.stop()
            await provider.stop()

    run_reactor(running)


async def _start(deployment: Deployment, provider: Provider) -> None:
    directory = deployment.directory
    (directory / "tokens.csv").write_text("nobody,nobody,n\n")
    (directory / "clients.crt").write_bytes(Path(deployment.pki.client_ca).read_bytes())
    (directory / "provider.crt").write_bytes(provider.ca_pem)
    await deployment.start_api(
        f"--token-auth-file={directory / 'tokens.csv'}",
        f"--client-ca-file={directory / 'clients.crt'}",
        "--service-account-issuer=https://bench.example",
        f"--service-account-signing-key-file={deployment.pki.account_key}",
        "--enable-bootstrap-token-auth",
        f"--oidc-issuer-url={provider.url}",
        f"--oidc-client-id={AUDIENCE}",
        f"--oidc-ca-file={directory / 'provider.crt'}",
        "--oidc-username-prefix=-",
        "--oidc-groups-claim=groups",
        *_LIMITS,
    )
    await deployment.start_runtime(*_LIMITS)
    await deployment.start_poollet(*_LIMITS)
    await deployment.create_class("shell", "64Mi")
    for number in range(MACHINES):
        await deployment.create_machine(f"m{number}", "shell")


def _arrangement(deployment: Deployment, provider: Provider) -> Arrangement:
    programs = {"poollet": deployment.poollet, "runtime": deployment.runtime}
    if isinstance(deployment, Replicas):
        ports = [each.port for each in deployment.replicas.values()]
        servers = {f"API server {each.name}": each.program for each in deployment.replicas.values()}
    else:
        ports, servers = [deployment.port], {"API server": deployment.api}
    hops = {name: each.transport.pid for name, each in {**servers, **programs}.items()}  # type: ignore[union-attr]
    settings = (deployment.pki, deployment.directory, ports, ports[0], ports, hops)
    return Standalone(*settings, provider=provider)


def standalone(directory: Path, work: Callable[[Arrangement], None]) -> None:
    """One API server with SQLite."""
    _run(Deployment(str(directory)), work)


def etcd(directory: Path, work: Callable[[Arrangement], None]) -> None:
    """Two API servers on one etcd; each has half of the sessions, and one gets the withdrawals."""
    if missing := needs.etcd():
        raise SystemExit(missing)
    _run(Replicas(str(directory)), work)


def kubernetes(directory: Path, work: Callable[[Arrangement], None]) -> None:
    """An API server behind a kube-apiserver, which the users and the administrator connect to."""
    if missing := needs.aggregated():
        raise SystemExit(missing)
    cluster = AggregatedCluster("revocation", *_LIMITS)
    programs = cluster.programs
    try:
        cluster.start()
        words = ("create", "clusterrolebinding", "watcher", f"--clusterrole={PERMISSION_WATCHER}")
        kubectl(cluster.kubeconfig, *words, f"--serviceaccount={NAMESPACE}:{NAME}")
        runtime = chains.our_runtime(programs, cluster.make.revision, class_name="shell")
        user = DEFAULT.pool_identity(POOL)
        kubeconfig = cluster.user(user, [DEFAULT.pool_identity_group])
        poollet = chains.our_poollet(cluster, POOL, runtime, kubeconfig)
        cluster.apply(machine_class("shell", str(chains.MEMORY)))
        cluster.apply(*(machine(f"m{number}", "shell") for number in range(MACHINES)))
        states = ("get", "machines", "-o", "jsonpath={.items[*].status.state}")
        programs.until(
            "the machines run",
            lambda: kubectl(cluster.kubeconfig, *states).split() == ["Running"] * MACHINES,
        )
        names = {"kube-apiserver": "kube-apiserver", "API server": cluster.own_program}
        names |= {"poollet": poollet, "runtime": "runtime"}
        hops = {hop: programs.pid(name) for hop, name in names.items()}
        port, own = cluster.port, cluster.own_port
        settings = (cluster.pki, directory, [port], port, [own], hops)
        work(Behind(*settings, account_key=programs.path("accounts.key")))
    finally:
        cluster.stop()


ARRANGEMENTS = {"standalone": standalone, "etcd": etcd, "kubernetes": kubernetes}
