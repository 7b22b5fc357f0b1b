"""
A PKI directory: three authorities and what they issue, under fixed names.

============================  ==================================================
``ca.crt``, ``.key``          signs what servers show
``client-ca.crt``, ``.key``   signs users and poollets, as the API server knows them
``requestheader-ca.crt``,     signs who may forward another's identity
``.key``
``apiserver.crt``, ``.key``   the API server's serving certificate
``apiserver-forwarding.*``    what the API server shows to poollets
``poollet-POOL.*``            a poollet's serving certificate
``poollet-POOL-client.*``     what a poollet shows to the API server
``runtime-NAME.*``            a runtime's serving certificate
``user-USER.*``               a person
``service-account.key``       signs tokens of ServiceAccounts
============================  ==================================================

The authorities are never the same one: whoever may forward identities could
otherwise be made by whoever signs users.  ``twisted-exec pki`` and the standalone program
make the same directory through this module.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from twisted_exec.api.dialects import DEFAULT, Dialect
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pki.authority import (
    LONGEST_COMMON_NAME,
    Authority,
    Issued,
    new_key_pem,
    write_private,
)
from twisted_exec.tls.unix import private_directory

SERVING, CLIENT, FORWARDING = "ca", "client-ca", "requestheader-ca"
FORWARDING_USER = "exec-apiserver"
"""The common name under which our API server forwards identities."""

AUTHORITIES = {
    SERVING: "twisted-exec serving CA",
    CLIENT: "twisted-exec user CA",
    FORWARDING: "twisted-exec forwarding CA",
}
"""The names of the authorities' files, and what they are called."""


@dataclass(frozen=True)
class Pair:
    """Paths of a certificate and its key."""

    certificate: str
    key: str

    @property
    def exists(self) -> bool:
        """One of the files is there."""
        return os.path.lexists(self.certificate) or os.path.lexists(self.key)


class PKI:
    """
    The certificates in one directory.  Made by :func:`create_pki` or :func:`open_pki`.

    Every ``issue`` method writes a certificate and a key (mode 0600) and
    returns their paths; it raises :class:`TLSConfigError` when they exist and
    ``replace`` is false.  They are good from ``now`` on, the present by default.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def pair(self, name: str) -> Pair:
        """The paths under a name, whether they exist or not."""
        stem = os.path.join(self.directory, name)
        return Pair(f"{stem}.crt", f"{stem}.key")

    @property
    def serving_ca(self) -> str:
        """Path of the CA that clients trust."""
        return self.pair(SERVING).certificate

    @property
    def client_ca(self) -> str:
        """Path of the CA whose certificates are users."""
        return self.pair(CLIENT).certificate

    @property
    def forwarding_ca(self) -> str:
        """Path of the CA whose named certificates may forward identities."""
        return self.pair(FORWARDING).certificate

    def issue_apiserver(
        self, names: Sequence[str], *, replace: bool = False, now: datetime | None = None
    ) -> tuple[Pair, Pair]:
        """
        The API server's two certificates.

        :param names: DNS names and IP addresses that clients use.
        :return: the serving pair and the forwarding pair.
        """
        serving = self.authority(SERVING).issue_server(names, now=now)
        forwarding = self.authority(FORWARDING).issue_client(FORWARDING_USER, now=now)
        first, second = self._write_all(
            ("apiserver", serving), ("apiserver-forwarding", forwarding), replace=replace
        )
        return first, second

    def issue_poollet(
        self,
        pool: str,
        names: Sequence[str],
        *,
        dialect: Dialect = DEFAULT,
        replace: bool = False,
        now: datetime | None = None,
    ) -> tuple[Pair, Pair]:
        """
        A poollet's two certificates.

        :param pool: its pool's name, about 24 characters at most (X.509 limits the common name).
        :param names: DNS names and IP addresses at which API servers reach it.
        :param dialect: says what a poollet is called.
        :return: the serving pair and the client pair.
        """
        user = dialect.pool_identity(_file_name(pool, "pool"))
        if len(user) > LONGEST_COMMON_NAME:
            room = LONGEST_COMMON_NAME - len(dialect.pool_identity_prefix)
            raise TLSConfigError(
                f"pool name {pool!r} has {len(pool)} characters; a certificate has room for {room}"
            )
        serving = self.authority(SERVING).issue_server(names, common_name=user, now=now)
        client = self.authority(CLIENT).issue_client(user, [dialect.pool_identity_group], now=now)
        first, second = self._write_all(
            (f"poollet-{pool}", serving), (f"poollet-{pool}-client", client), replace=replace
        )
        return first, second

    def issue_runtime(self, runtime: str, names: Sequence[str], *, replace: bool = False) -> Pair:
        """
        A runtime's serving certificate, for its stream server and its gRPC server.

        :param runtime: what to call its files.
        :param names: DNS names and IP addresses at which poollets reach it.
        """
        name = f"runtime-{_file_name(runtime, 'runtime')}"
        issued = self.authority(SERVING).issue_server(names)
        return self._write_all((name, issued), replace=replace)[0]

    def issue_user(
        self,
        user: str,
        groups: Sequence[str],
        *,
        replace: bool = False,
        now: datetime | None = None,
    ) -> Pair:
        """A person's client certificate."""
        name = f"user-{_file_name(user, 'user')}"
        issued = self.authority(CLIENT).issue_client(user, groups, now=now)
        return self._write_all((name, issued), replace=replace)[0]

    @property
    def account_key(self) -> str:
        """Path of the key that signs tokens of ServiceAccounts."""
        return os.path.join(self.directory, "service-account.key")

    def make_account_key(self) -> None:
        """
        Make that key, if it is not there: one that is signs tokens that are still good.

        :raises TLSConfigError: it cannot be written.
        """
        if not os.path.lexists(self.account_key):
            write_private(self.account_key, new_key_pem())

    def authority(self, name: str) -> Authority:
        """
        One of the three authorities.

        :raises TLSConfigError: the directory does not hold it.
        """
        pair = self.pair(name)
        return Authority.load(
            read_file(pair.certificate, "CA certificate"),
            read_file(pair.key, "CA key"),
            certificate_what=f"CA certificate {pair.certificate!r}",
            key_what=f"CA key {pair.key!r}",
        )

    def _write_all(self, *named: tuple[str, Issued], replace: bool) -> tuple[Pair, ...]:
        pairs = tuple(self.pair(name) for name, _issued in named)
        existing = [pair.certificate for pair in pairs if pair.exists]
        if existing and not replace:
            raise TLSConfigError(f"{existing[0]!r} exists already: give --force to replace it")
        for pair, (_name, issued) in zip(pairs, named, strict=True):
            issued.write(pair.certificate, pair.key, replace=True)
        return pairs


def create_pki(directory: str, *, replace: bool = False, now: datetime | None = None) -> PKI:
    """
    Make a private directory with three new authorities.

    :raises TLSConfigError: it holds authorities already and ``replace`` is
        false, or it cannot be private.
    """
    pki = PKI(private_directory(directory))
    named = [(name, Authority.create(title, now=now)) for name, title in AUTHORITIES.items()]
    issued = [(name, Issued(each.certificate_pem, each.key_pem)) for name, each in named]
    pki._write_all(*issued, replace=replace)
    pki.make_account_key()
    return pki


def open_pki(directory: str) -> PKI:
    """
    A directory that :func:`create_pki` made.

    :raises TLSConfigError: it is none.
    """
    pki = PKI(os.path.abspath(directory))
    for name in AUTHORITIES:
        if not os.path.isfile(pki.pair(name).certificate):
            raise TLSConfigError(
                f"{directory!r} is no PKI directory ({name}.crt is missing): "
                f"make one with 'twisted-exec pki init {directory}'"
            )
    return pki


def write_kubeconfig(
    path: str,
    *,
    server: str,
    ca_pem: bytes,
    certificate_pem: bytes,
    key_pem: bytes,
    user: str,
    cluster: str = "twisted-exec",
    namespace: str = "default",
    replace: bool = False,
) -> None:
    """
    Write a kubeconfig with everything inside, mode 0600, atomically.

    :param server: ``https://HOST:PORT``.
    :raises TLSConfigError: it exists and ``replace`` is false, or cannot be written.
    """
    if os.path.lexists(path) and not replace:
        raise TLSConfigError(f"{path!r} exists already: give --force to replace it")
    context = f"{user}@{cluster}"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": cluster,
                "cluster": {"server": server, "certificate-authority-data": _base64(ca_pem)},
            }
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": _base64(certificate_pem),
                    "client-key-data": _base64(key_pem),
                },
            }
        ],
        "contexts": [
            {
                "name": context,
                "context": {"cluster": cluster, "user": user, "namespace": namespace},
            }
        ],
        "current-context": context,
    }
    # JSON is YAML, and needs no library to be written safely.
    write_private(path, json.dumps(document, indent=2).encode() + b"\n")


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _file_name(name: str, what: str) -> str:
    """A name that may be part of a file's name: no way out of the directory."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:@-]*", name):
        raise TLSConfigError(
            f"{what} name {name!r}: letters, digits and . _ : @ - only, and a letter or digit first"
        )
    return name
