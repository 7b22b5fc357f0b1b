"""
``twistd exec-sshd``: consoles for stock ssh, as a program.
"""

from __future__ import annotations

from typing import Any

from twisted.application.service import IService
from twisted.internet.defer import Deferred

from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.program.config_file import ConfigError
from twisted_exec.program.metrics import ExpiryMetrics
from twisted_exec.program.service import ServiceWithCleanup
from twisted_exec.program.start import make_service
from twisted_exec.ssh.door_keys import DoorKeyError, DoorKeys
from twisted_exec.ssh.login_file import LoginFile
from twisted_exec.sshd import PROGRAM
from twisted_exec.sshd.door_login import DoorLogin
from twisted_exec.sshd.options import Options
from twisted_exec.sshd.service import SSHDoor
from twisted_exec.tls.expiry import Expiry


def makeService(options: Options) -> IService:
    """Return the program that the command line describes, without opening anything."""
    errors = (KubeConfigError, ConfigError, DoorKeyError)
    return make_service(
        PROGRAM, lambda reactor: _program(options, reactor), errors, options=options
    )


def _program(options: Options, reactor: Any) -> ServiceWithCleanup[SSHDoor]:
    login = DoorLogin(options["kubeconfig"], options["context"])
    keys = DoorKeys(options["host-key"], options["host-certificate"], reactor)
    keys.load()
    users = LoginFile(options["users"], reactor)
    users.load()
    client = KubeClient(login.current(), reactor, renew=login.current, agent=PROGRAM)
    door = SSHDoor(options.settings(), login, users, client, keys.current, reactor, parts=[users])
    certificates = {"kubeconfig": lambda: login.current().certificate.data}
    ExpiryMetrics(door.registry, Expiry({}, certificates).ends)

    def close() -> Deferred[None]:
        return client.close()

    return ServiceWithCleanup(door, close)
