"""
``twistd exec-racks``: Machines and a list of lines from metal-operator, as a program.
"""

from __future__ import annotations

from typing import Any

from twisted.application.service import IService
from twisted.internet.defer import Deferred, gatherResults

from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.kubeconfig.reloading import ReloadingConfig
from twisted_exec.program.metrics import ExpiryMetrics
from twisted_exec.program.service import ServiceWithCleanup
from twisted_exec.program.start import make_service
from twisted_exec.racks import PROGRAM
from twisted_exec.racks.options import Options
from twisted_exec.racks.service import Racks
from twisted_exec.tls.expiry import Expiry


def makeService(options: Options) -> IService:
    """Return the program that the command line describes, without opening anything."""
    errors = (KubeConfigError,)
    return make_service(
        PROGRAM, lambda reactor: _program(options, reactor), errors, options=options
    )


def _program(options: Options, reactor: Any) -> ServiceWithCleanup[Racks]:
    metal = ReloadingConfig(options["kubeconfig"], options["context"])
    machines = metal
    if options["machine-kubeconfig"] or options["machine-context"]:
        path = options["machine-kubeconfig"] or options["kubeconfig"]
        machines = ReloadingConfig(path, options["machine-context"])
    servers, others = (
        KubeClient(each.current(), reactor, renew=each.current, agent=PROGRAM)
        for each in (metal, machines)
    )
    racks = Racks(options.settings(), servers, others, reactor)
    certificates = {
        "kubeconfig": lambda: metal.current().certificate.data,
        "machine-kubeconfig": lambda: machines.current().certificate.data,
    }
    ExpiryMetrics(racks.registry, Expiry({}, certificates).ends)

    def close() -> Deferred[None]:
        closing = gatherResults([servers.close(), others.close()])
        return closing.addCallback(lambda _: None)

    return ServiceWithCleanup(racks, close)
