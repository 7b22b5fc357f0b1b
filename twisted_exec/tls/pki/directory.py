"""
The PKI directory: three authorities and the certificates that they have issued, under fixed names.

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
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography.hazmat.primitives.asymmetric import ec

from twisted_exec.api.dialects import DEFAULT, Dialect
from twisted_exec.api.users import FORWARDING_USER
from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pki.authority import LEAF_LIFE, Authority, Issued
from twisted_exec.tls.pki.names import LONGEST_COMMON_NAME
from twisted_exec.tls.private_directories import private_directory
from twisted_exec.tls.private_files import write_in_order, write_private

# They must differ: otherwise the holder of the user CA could issue itself a certificate that forwards
# any identity.
SERVING, CLIENT, FORWARDING = "ca", "client-ca", "requestheader-ca"
APISERVER = "apiserver"
"""File name of the API server's serving certificate."""

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
        return os.path.lexists(self.certificate) or os.path.lexists(self.key)


class PKI:
    """
    The certificates in one directory, from :func:`create_pki` or :func:`open_pki`.

    An ``issue`` method writes certificates with their keys (mode 0600) and returns the paths.  It
    raises :class:`TLSConfigError` if a file exists and ``replace`` is false, or cannot be written.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def pair(self, name: str) -> Pair:
        """Return the paths under a name."""
        stem = os.path.join(self.directory, name)
        return Pair(f"{stem}.crt", f"{stem}.key")

    def pairs(self) -> Iterator[Pair]:
        """Yield the certificates other than the authorities', in order of their names."""
        for name in sorted(os.listdir(self.directory)):
            stem, extension = os.path.splitext(name)
            if extension == ".crt" and stem not in AUTHORITIES and not name.startswith("."):
                yield self.pair(stem)

    @property
    def serving_ca(self) -> str:
        return self.pair(SERVING).certificate

    @property
    def client_ca(self) -> str:
        return self.pair(CLIENT).certificate

    @property
    def forwarding_ca(self) -> str:
        return self.pair(FORWARDING).certificate

    def issue_apiserver(
        self, names: Sequence[str], *, replace: bool = False, now: datetime | None = None
    ) -> tuple[Pair, Pair]:
        """
        Issue the API server's two certificates.

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

        :param pool: name of its pool; X.509 limits its length.
        :return: the serving pair and the client pair.
        """
        user = dialect.pool_identity(_file_name(pool, "pool"))
        if len(user) > LONGEST_COMMON_NAME:
            room = LONGEST_COMMON_NAME - len(dialect.pool_identity_prefix)
            raise TLSConfigError(
                f'pool name "{pool}" has {len(pool)} characters; a certificate has room for {room}'
            )
        serving = self.authority(SERVING).issue_server(names, common_name=user, now=now)
        client = self.authority(CLIENT).issue_client(user, [dialect.pool_identity_group], now=now)
        first, second = self._write_all(
            (f"poollet-{pool}", serving), (f"poollet-{pool}-client", client), replace=replace
        )
        return first, second

    def issue_runtime(self, runtime: str, names: Sequence[str], *, replace: bool = False) -> Pair:
        """Issue a runtime's serving certificate."""
        name = f"runtime-{_file_name(runtime, 'runtime')}"
        issued = self.authority(SERVING).issue_server(names)
        return self._write_all((name, issued), replace=replace)[0]

    def issue_recorder(
        self, recorder: str, *, replace: bool = False, now: datetime | None = None
    ) -> Pair:
        """Issue a certificate that signs recordings."""
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
        days: int | None = None,
    ) -> Pair:
        """
        Issue a person's client certificate.

        :param days: its lifetime, by default a year.
        :raises TLSConfigError: also if the authority expires earlier than in so many days.
        """
        name = f"user-{_file_name(user, 'user')}"
        authority, life = self.authority(CLIENT), LEAF_LIFE
        if days is not None:
            life = timedelta(days=days)
            left = authority.expires - (now or datetime.now(UTC))
            if life > left:
                raise TLSConfigError(
                    f"the user CA expires in {max(0, left.days)} days, so no certificate can be valid for "
                    f"{days}: ask for fewer days, or replace the CA: twisted-exec pki renew "
                    f"{self.directory} --authorities"
                )
        issued = authority.issue_client(user, groups, now=now, life=life)
        return self._write_all((name, issued), replace=replace)[0]

    @property
    def account_key(self) -> str:
        """Path of the key that signs tokens of ServiceAccounts."""
        return os.path.join(self.directory, "service-account.key")

    def make_account_key(self) -> None:
        """
        Create :attr:`account_key` if it is missing.  It is never replaced.

        :raises TLSConfigError: it cannot be written.
        """
        if not os.path.lexists(self.account_key):
            key = ec.generate_private_key(ec.SECP256R1())
            write_private(self.account_key, pem.pem_of_key(key))

    def authority(self, name: str) -> Authority:
        """
        Return one of the three authorities.

        :raises TLSConfigError: it is missing or cannot be used.
        """
        pair = self.pair(name)
        return Authority.load(
            read_file(pair.certificate, "CA certificate"),
            read_file(pair.key, "CA key"),
            certificate_what=f'CA certificate "{pair.certificate}"',
            key_what=f'CA key "{pair.key}"',
            remedy="put the key that belongs to it back, or, if that is lost, create new authorities: "
            f"twisted-exec pki renew {self.directory} --authorities",
        )

    def _write_all(self, *named: tuple[str, Issued], replace: bool) -> tuple[Pair, ...]:
        pairs = self._writable(*(name for name, _issued in named), replace=replace)
        files = []
        for pair, (_name, issued) in zip(pairs, named, strict=True):
            files.append((pair.key, issued.key_pem))
            files.append((pair.certificate, issued.certificate_pem))
        write_in_order(*files)
        return pairs

    def _writable(self, *names: str, replace: bool) -> tuple[Pair, ...]:
        pairs = tuple(map(self.pair, names))
        paths = [path for pair in pairs for path in (pair.certificate, pair.key)]
        existing = [path for path in paths if os.path.lexists(path)]
        if existing and not replace:
            remedy = "give --force to replace it"
            if names == tuple(AUTHORITIES):
                remedy += (
                    ", after which no certificate of these authorities is accepted; "
                    f"to renew certificates: twisted-exec pki renew {self.directory}"
                )
            raise TLSConfigError(f'"{existing[0]}" exists already: {remedy}')
        return pairs


def create_pki(directory: str, *, replace: bool = False, now: datetime | None = None) -> PKI:
    """
    Create a private directory with three new authorities.

    :raises TLSConfigError: the directory holds authorities already and ``replace`` is false, or it
        cannot be written or made private.
    """
    pki = PKI(private_directory(directory))
    named = [(name, Authority.create(title, now=now)) for name, title in AUTHORITIES.items()]
    issued = [(name, Issued(each.certificate_pem, each.key_pem)) for name, each in named]
    pki._writable(*AUTHORITIES, replace=replace)
    # The last authority's certificate comes last: open_pki() refuses a directory without it.
    pki.make_account_key()
    pki._write_all(*issued, replace=replace)
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
                f'"{directory}" is no PKI directory ({name}.crt is missing): '
                f'make one with "twisted-exec pki init {directory}"'
            )
    return pki


def _file_name(name: str, what: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:@-]*", name):
        raise TLSConfigError(
            f'{what} name "{name}": letters, digits and . _ : @ - only, and a letter or digit first'
        )
    return name
