"""
``twistd exec-mcp``: tools for agents over HTTP, as a program.
"""

from __future__ import annotations

from typing import Any

from twisted.application.service import IService

from twisted_exec.auth.oidc.configuration import Issuers
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.kubeconfig.reloading import ReloadingConfig
from twisted_exec.mcp import PROGRAM
from twisted_exec.mcp.options import Options
from twisted_exec.mcp.service import MCPDoor
from twisted_exec.mcp.users import OwnLogin
from twisted_exec.program.config_file import ConfigError
from twisted_exec.program.metrics import ExpiryMetrics
from twisted_exec.program.start import make_service
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.expiry import Expiry


def makeService(options: Options) -> IService:
    """Return the program that the command line describes, without opening anything."""
    errors = (ConfigError, KubeConfigError, TLSConfigError)
    return make_service(
        PROGRAM, lambda reactor: _program(options, reactor), errors, options=options
    )


def _program(options: Options, reactor: Any) -> MCPDoor:
    config = ReloadingConfig(options["kubeconfig"], options["context"])
    door = MCPDoor(
        options.settings(),
        OwnLogin(config.current),
        Issuers(configuration=options["authentication-config"]),
        reactor,
        allowed=options["allowed-origin"],
    )
    files = {"tls-cert-file": options["tls-cert-file"]}
    certificates = {"kubeconfig": lambda: config.current().certificate.data}
    ExpiryMetrics(door.registry, Expiry(files, certificates).ends)
    return door
