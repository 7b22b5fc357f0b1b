"""
``twistd exec-runtime``: the machine runtime of this host.
"""

from __future__ import annotations

from typing import Any

from twisted.application.service import IService

from twisted_exec.iri.target import TargetError
from twisted_exec.program.disk_thread import DiskThread
from twisted_exec.program.metrics import ExpiryMetrics
from twisted_exec.program.start import make_service
from twisted_exec.runtimes.config import ConfigError
from twisted_exec.runtimes.host import RuntimeHost
from twisted_exec.runtimes.options import PROGRAM, Options, settings
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.expiry import Expiry


def makeService(options: Options) -> IService:
    """Create the service for a command line."""
    errors = (ConfigError, TargetError, TLSConfigError)
    return make_service(
        PROGRAM,
        lambda reactor: _host(options, reactor),
        errors,
        options=options,
        limits=options.session_limits,
    )


def _host(options: Options, reactor: Any) -> RuntimeHost:
    audit = options.audit(DiskThread(reactor))
    host = RuntimeHost(settings(options), audit, reactor, checks=[audit.check])
    ExpiryMetrics(host.streams.registry, Expiry(options.certificates()).ends)
    return host
