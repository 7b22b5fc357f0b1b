"""
``twistd exec-apiserver``: the API server, as a program.
"""

from __future__ import annotations

from typing import Any

from twisted.application.service import IService

from twisted_exec.apiserver.options import Options, settings
from twisted_exec.apiserver.service import APIServer
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.program.disk_thread import DiskThread
from twisted_exec.program.metrics import ExpiryMetrics, new_registry
from twisted_exec.program.options.declaration import settings_of
from twisted_exec.program.start import make_service
from twisted_exec.storage.quota import QuotaLimits
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.expiry import Expiry


def makeService(options: Options) -> IService:
    """
    Make the service.

    :raises SystemExit: with one line, if the options cannot work together.
    """
    wrong = (KubeConfigError, TLSConfigError)
    return make_service(
        options.program,
        lambda reactor: _server(options, reactor),
        wrong,
        options=options,
        limits=options.session_limits,
    )


def _server(options: Options, reactor: Any) -> APIServer:
    audit = options.audit(DiskThread(reactor))
    metrics = new_registry(reactor)
    ExpiryMetrics(metrics, Expiry(options.certificates()).ends)
    store = options["storage"](reactor, limits=settings_of(QuotaLimits, options))
    return APIServer(settings(options), store, audit, reactor, metrics=metrics)
