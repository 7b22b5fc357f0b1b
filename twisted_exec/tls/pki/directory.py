"""
A PKI directory: three authorities and their certificates, under fixed names.

============================  ==================================================
``ca.crt``, ``.key``          CA of serving certificates and recorders
``client-ca.crt``, ``.key``   CA of users and poollets, for the API server
``requestheader-ca.crt``,     CA of proxies that may forward the identity of a user
``.key``
``apiserver.crt``, ``.key``   the API server's serving certificate
``apiserver-forwarding.*``    the API server's client certificate for poollets
``poollet-POOL.*``            a poollet's serving certificate
``poollet-POOL-client.*``     a poollet's client certificate for the API server
``runtime-NAME.*``            a runtime's serving certificate
``recorder-NAME.*``           a certificate that signs recordings
``user-USER.*``               a person's client certificate
``service-account.key``       key that signs tokens of ServiceAccounts
============================  ==================================================

The three authorities must differ: otherwise the holder of the user CA could issue itself a
certificate that forwards any identity.  ``twisted-exec pki`` and the standalone program create the
same directory with this module.
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
from twisted_exec.tls import pem
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
APISERVER = "apiserver"
"""File name of the API server's serving certificate."""
FORWARDING_USER = "exec-apiserver"
"""Common name of our API server where it forwards identities."""

AUTHORITIES = {
    SERVING: "twisted-exec serving CA",
    CLIENT: "twisted-exec user CA",
    FORWARDING: "twisted-exec forwarding CA",
}
"""File names of the authorities, with their common names."""


@dataclass(frozen=True)
class Pair:
    """Paths of a certificate and its key."""

    certificate: str
    key: str

    @property
    def exists(self) -> bool:
        """Return whether one of the files exists."""
        return os.path.lexists(self.certificate) or os.path.lexists(self.key)


class PKI:
    """
    The certificates in one directory, from :func:`create_pki` or :func:`open_pki`.

    Every ``issue`` method writes a certificate and a key (mode 0600) and
    returns their paths; it raises :class:`TLSConfigError` when they exist and
    ``replace`` is false.  The certificates are valid from ``now`` on, by default the present.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def pair(self, name: str) -> Pair:
        """Return the paths under a name, whether they exist or not."""
        stem = os.path.join(self.directory, name)
        return Pair(f"{stem}.crt", f"{stem}.key")

    @property
    def serving_ca(self) -> str:
        """Path of the CA that clients trust."""
        return self.pair(SERVING).certificate

    @property
    def client_ca(self) -> str:
        """Path of the CA of users."""
        return self.pair(CLIENT).certificate

    @property
    def forwarding_ca(self) -> str:
        """Path of the CA of proxies that may forward identities."""
        return self.pair(FORWARDING).certificate

    def issue_apiserver(
        self, names: Sequence[str], *, replace: bool = False, now: datetime | None = None
    ) -> tuple[Pair, Pair]:
        """
        Issue the API server's two certificates.

        :param names: DNS names and IP addresses that clients use.
        :return: the serving pair and the forwarding pair.
        """
        serving = self.authority(SERVING).issue_server(names, now=now)
        forwarding = self.authority(FORWARDING).issue_client(FORWARDING_USER, now=now)
        first, second = self._write_all(
            (APISERVER, serving), ("apiserver-forwarding", forwarding), replace=replace
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
        Issue a poollet's two certificates.

        :param pool: name of its pool, about 24 characters at most (X.509 limits the common name).
        :param names: DNS names and IP addresses at which API servers reach it.
        :param dialect: determines the poollet's user name.
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
        Issue a runtime's serving certificate, for its stream server and its gRPC server.

        :param runtime: name of its files.
        :param names: DNS names and IP addresses at which poollets reach it.
        """
        name = f"runtime-{_file_name(runtime, 'runtime')}"
        issued = self.authority(SERVING).issue_server(names)
        return self._write_all((name, issued), replace=replace)[0]

    def issue_recorder(
        self, recorder: str, *, replace: bool = False, now: datetime | None = None
    ) -> Pair:
        """
        Issue a certificate that signs recordings.

        :param recorder: name of its files, and its common name, which verifiers print.
        """
        name = f"recorder-{_file_name(recorder, 'recorder')}"
        issued = self.authority(SERVING).issue_recorder(recorder, now=now)
        return self._write_all((name, issued), replace=replace)[0]

    def issue_user(
        self,
        user: str,
        groups: Sequence[str],
        *,
        replace: bool = False,
        now: datetime | None = None,
    ) -> Pair:
        """Issue a person's client certificate."""
        name = f"user-{_file_name(user, 'user')}"
        issued = self.authority(CLIENT).issue_client(user, groups, now=now)
        return self._write_all((name, issued), replace=replace)[0]

    @property
    def account_key(self) -> str:
        """Path of the key that signs tokens of ServiceAccounts."""
        return os.path.join(self.directory, "service-account.key")

    def make_account_key(self) -> None:
        """
        Create that key if it is missing.  A new key would invalidate all tokens, so it is never
        replaced.

        :raises TLSConfigError: it cannot be written.
        """
        if not os.path.lexists(self.account_key):
            write_private(self.account_key, new_key_pem())

    def authority(self, name: str) -> Authority:
        """
        Return one of the three authorities.

        :raises TLSConfigError: the directory does not have it.
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
    Create a private directory with three new authorities.

    :raises TLSConfigError: it holds authorities already and ``replace`` is
        false, or it cannot be made private.
    """
    pki = PKI(private_directory(directory))
    named = [(name, Authority.create(title, now=now)) for name, title in AUTHORITIES.items()]
    issued = [(name, Issued(each.certificate_pem, each.key_pem)) for name, each in named]
    pki._write_all(*issued, replace=replace)
    pki.make_account_key()
    return pki


def open_pki(directory: str) -> PKI:
    """
    Open a directory that :func:`create_pki` created.

    :raises TLSConfigError: it is not one.
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
    Write a kubeconfig with embedded certificates, mode 0600, atomically.

    :param server: ``https://HOST:PORT``.
    :param key_pem: embedded as :func:`.pem_of_key` writes keys, whatever its form.
    :raises TLSConfigError: the key is malformed; or the file exists and ``replace`` is false, or
        cannot be written.
    """
    if os.path.lexists(path) and not replace:
        raise TLSConfigError(f"{path!r} exists already: give --force to replace it")
    key_pem = pem.pem_of_key(pem.private_key(key_pem, f"the key of {user!r}"))
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
    # JSON is valid YAML, and the standard library writes it safely.
    write_private(path, json.dumps(document, indent=2).encode() + b"\n")


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _file_name(name: str, what: str) -> str:
    """Check that a name can be part of a file name, so that no path leaves the directory."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:@-]*", name):
        raise TLSConfigError(
            f"{what} name {name!r}: letters, digits and . _ : @ - only, and a letter or digit first"
        )
    return name
