"""
The door's login at the API server, and requests as the users who have logged in to the door.

Each request names the user with ``Impersonate-User``, the groups with ``Impersonate-Group``, and the
key, the certificate and the address of the ssh login with ``Impersonate-Extra-``, for the audit.
"""

from __future__ import annotations

import os
from dataclasses import replace
from urllib.parse import quote

from twisted_exec.kube.kubeconfig.client_config import (
    ClientConfig,
    ImpersonatedUser,
    KubeConfigError,
)
from twisted_exec.kube.kubeconfig.reloading import ReloadingConfig
from twisted_exec.ssh.people import (
    SSH_ADDRESS,
    SSH_CERTIFICATE,
    SSH_KEY,
    LoginRefused,
    Person,
)
from twisted_exec.tls.files import write_problem

_SYSTEM = "system:"
_MOST_CHARACTERS = 256
_PLAIN = "@:.,-_+=/()# "


class DoorLogin:
    """
    The kubeconfig of the door, with a client certificate or a token.

    :raises KubeConfigError: it cannot be used.
    """

    def __init__(self, path: str, context: str | None) -> None:
        self._config = ReloadingConfig(path, context)
        config = self._config.current()
        if problem := write_problem(path, os.stat(path)):
            raise KubeConfigError(problem)
        if config.needs_plugin or not config.has_credentials or config.username:
            raise KubeConfigError(
                f"{config.source} has neither a client certificate nor a token for the ssh door"
            )
        if config.impersonate:
            raise KubeConfigError(
                f"{config.source} has a user to impersonate: the ssh door impersonates its own users"
            )

    def current(self) -> ClientConfig:
        """Return the configuration for requests of the door itself."""
        return self._config.current()

    def acting_as(self, person: Person, namespace: str) -> ClientConfig:
        """
        Return the configuration for requests of a user.

        :raises LoginRefused: nobody may act as this user.
        """
        check_person(person)
        facts = {
            SSH_KEY: person.fingerprint,
            SSH_CERTIFICATE: person.certificate,
            SSH_ADDRESS: person.credential.source_address,
        }
        user = ImpersonatedUser(
            person.user,
            groups=tuple(person.groups),
            extra=tuple((key, (_header_text(value),)) for key, value in facts.items() if value),
        )
        return replace(self._config.named(), namespace=namespace, impersonate=user)


def check_person(person: Person) -> None:
    """
    Refuse users and groups of Kubernetes itself, and names that no header can carry.

    :raises LoginRefused: the user cannot act through the door.
    """
    for name in (person.user, *person.groups):
        if not name or name != name.strip() or not name.isprintable():
            raise LoginRefused("the name of your user or of a group is no plain text")
        if name.startswith(_SYSTEM):
            raise LoginRefused(
                f'"{name[:_MOST_CHARACTERS]}": nobody gets a user or group {_SYSTEM}... by ssh'
            )


def _header_text(text: str) -> str:
    """Return a text for a header: any other characters are percent-encoded."""
    return quote(text[:_MOST_CHARACTERS].strip(), safe=_PLAIN)
