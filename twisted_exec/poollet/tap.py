"""
``twistd exec-poollet``: the poollet of one pool, as a program.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from twisted.application.service import IService, Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress
from zope.interface import implementer

from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.target import TargetError
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.kubeconfig.reloading import ReloadingConfig
from twisted_exec.poollet import PROGRAM
from twisted_exec.poollet.client_certificate import ClientCertificate
from twisted_exec.poollet.interfaces import IPoollet
from twisted_exec.poollet.options import Options, runtime_tls, settings
from twisted_exec.poollet.service import Poollet
from twisted_exec.program.disk_thread import DiskThread
from twisted_exec.program.metrics import ExpiryMetrics
from twisted_exec.program.start import make_service
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.expiry import Expiry


@implementer(IPoollet)
class PoolletProgram(Service):
    """The poollet and its two clients."""

    def __init__(
        self, poollet: Poollet, runtime: IRIClient, client: KubeClient | ClientCertificate
    ) -> None:
        self.poollet, self._runtime, self._client = poollet, runtime, client
        self.pool = poollet.pool

    @property
    def address(self) -> IAddress | None:
        return self.poollet.address

    def when_ready(self) -> Deferred[None]:
        return self.poollet.when_ready()

    def startService(self) -> None:
        super().startService()
        self._runtime.startService()
        self.poollet.startService()

    def stopService(self) -> Deferred[None]:
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        await self.poollet.stopService()
        self._runtime.stopService()
        await self._client.close()


def makeService(options: Options) -> IService:
    """Return the poollet that the command line describes, without opening anything."""
    wrong = (KubeConfigError, TargetError, TLSConfigError)
    return make_service(
        PROGRAM,
        lambda reactor: _program(options, reactor),
        wrong,
        options=options,
        limits=options.session_limits,
    )


def _program(options: Options, reactor: Any) -> PoolletProgram:
    path = options["bootstrap-kubeconfig"] or options["kubeconfig"]
    config = ReloadingConfig(path, options["context"])
    runtime = IRIClient(
        options["machine-runtime-endpoint"],
        reactor,
        tls=runtime_tls(options),
        trusted_uids=options["runtime-uid"],
        revision=options["iri-revision"] or options["dialect"].iri_revision,
    )
    audit = options.audit(DiskThread(reactor))
    shared = (runtime, audit, reactor)
    if not options["bootstrap-kubeconfig"]:
        client = _client(config.current, reactor)
        poollet = Poollet(settings(options), client, *shared, checks=[audit.check])
        _watch_expiry(poollet, options, config)
        return PoolletProgram(poollet, runtime, client)
    identity = ClientCertificate(
        config.current,
        lambda current: _client(current, reactor),
        reactor,
        directory=options["cert-dir"],
        dialect=options["dialect"],
        pool=options["machine-pool-name"],
        now=time.time,
    )
    poollet = Poollet(
        settings(options), identity.client, *shared, checks=[audit.check], identity=identity
    )
    _watch_expiry(poollet, options, config)
    return PoolletProgram(poollet, runtime, identity)


def _watch_expiry(poollet: Poollet, options: Options, config: ReloadingConfig) -> None:
    files = options.certificates()
    for name in ("tls", "client") if options["cert-dir"] else ():
        files[f"cert-dir/{name}.crt"] = os.path.join(options["cert-dir"], f"{name}.crt")
    sources = {"kubeconfig": lambda: config.current().certificate.data}
    ExpiryMetrics(poollet.registry, Expiry(files, sources).ends)


def _client(current: Callable[[], ClientConfig], reactor: Any) -> KubeClient:
    return KubeClient(current(), reactor, renew=current, agent=PROGRAM)
