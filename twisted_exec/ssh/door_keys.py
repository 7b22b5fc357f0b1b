"""
The host keys of an SSH server on a network: private keys and host certificates in files.
"""

from __future__ import annotations

import os
import shlex
import time
from binascii import a2b_base64
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key
from twisted.conch.ssh.keys import Key
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.ssh.certificate import (
    Certificate,
    CertificateError,
    is_certificate,
    read_certificate,
)
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import Reloading

_LEAST_RSA_BITS = 3072
_CERTIFIED = b"-cert-v01@openssh.com"
_PORT = 22


class DoorKeyError(Exception):
    """The host keys cannot be used; the message names the file and the remedy."""


@dataclass(frozen=True)
class DoorKey:
    """
    A host key.

    :param certificate: as in the file, and as read; ``None`` without one.
    :param certificate_path: of the file; empty without one.
    """

    private: Key
    certificate: tuple[bytes, Certificate] | None = None
    certificate_path: str = ""

    @cached_property
    def algorithms(self) -> Sequence[bytes]:
        is_rsa = self.private.type() == "RSA"
        plain = [b"rsa-sha2-512", b"rsa-sha2-256"] if is_rsa else [bytes(self.private.sshType())]
        certified = [each + _CERTIFIED for each in plain] if self.certificate else []
        return [*certified, *plain]

    def blob(self, algorithm: bytes) -> bytes:
        if self.certificate and algorithm.endswith(_CERTIFIED):
            return self.certificate[0]
        return bytes(self.private.public().blob())

    def sign(self, data: bytes, algorithm: bytes) -> bytes:
        return self.private.sign(data, algorithm.removesuffix(_CERTIFIED))


class DoorKeys:
    """
    The host keys of a server, read again when a file changes.

    A new content that cannot be used is logged, and the keys before it stay.

    :param keys: paths of private keys, Ed25519 or RSA, in the order of preference.
    :param certificates: paths of host certificates for them.
    """

    _log = Logger()

    def __init__(
        self, keys: Sequence[str], certificates: Sequence[str], clock: IReactorTime
    ) -> None:
        self._keys, self._certificates = tuple(keys), tuple(certificates)
        paths = (*self._keys, *self._certificates)
        self._files = Reloading(paths, self._parse, clock)
        self._outdated: frozenset[bytes] = frozenset()

    def load(self) -> Sequence[DoorKey]:
        """
        Read the files, when the program starts.

        :raises DoorKeyError: they cannot be used.
        """
        try:
            self._files.load()
        except TLSConfigError as error:
            raise DoorKeyError(str(error)) from None
        return self.current()

    def current(self) -> Sequence[DoorKey]:
        """Return the keys, with those certificates that are valid now."""
        keys = self._files.get()
        now = time.time()
        outdated = {
            each.certificate[0]
            for each in keys
            if each.certificate and not each.certificate[1].is_valid_at(now)
        }
        if outdated != self._outdated:
            self._outdated = frozenset(outdated)
            paths = [
                each.certificate_path
                for each in keys
                if each.certificate and each.certificate[0] in outdated
            ]
            if paths:
                self._log.warn(
                    "not valid now, so clients get the plain key; renew it: {paths}",
                    paths=", ".join(paths),
                )
        return [
            replace(each, certificate=None)
            if each.certificate and each.certificate[0] in outdated
            else each
            for each in keys
        ]

    def _parse(self, *contents: bytes) -> Sequence[DoorKey]:
        privates = [
            _private_key(text, path) for text, path in zip(contents, self._keys, strict=False)
        ]
        if not privates:
            raise TLSConfigError("there is no host key")
        keys = {bytes(each.public().blob()): DoorKey(each) for each in privates}
        if len({each.private.sshType() for each in keys.values()}) < len(privates):
            raise TLSConfigError("there are two host keys of one type; remove one")
        for text, path in zip(contents[len(privates) :], self._certificates, strict=True):
            blob, certificate = _certificate(text, path)
            key = keys.get(bytes(certificate.key.blob()))
            if key is None:
                raise TLSConfigError(f"{path} is for none of the host keys")
            keys[bytes(certificate.key.blob())] = replace(
                key, certificate=(blob, certificate), certificate_path=path
            )
        return tuple(keys.values())


def _private_key(text: bytes, path: str) -> Key:
    _check_mode(path)
    load = load_ssh_private_key if b"OPENSSH PRIVATE KEY" in text else load_pem_private_key
    try:
        private = load(text, None)
    except TypeError:
        raise TLSConfigError(f"{path} needs a passphrase; ssh-keygen -p removes it") from None
    except (ValueError, UnsupportedAlgorithm):
        raise TLSConfigError(f"{path} has no private key") from None
    if not isinstance(private, Ed25519PrivateKey | RSAPrivateKey):
        raise TLSConfigError(f"{path} must have an Ed25519 or RSA key")
    if isinstance(private, RSAPrivateKey) and private.key_size < _LEAST_RSA_BITS:
        raise TLSConfigError(
            f"the RSA key in {path} has {private.key_size} bits; it needs {_LEAST_RSA_BITS}"
        )
    return Key(private)


def _check_mode(path: str) -> None:
    try:
        status = os.stat(path)
    except OSError as error:
        raise TLSConfigError(f"cannot read {path}: {error.strerror}") from None
    # As sshd; a Secret that is mounted for a group belongs to root.
    others = 0o077 if status.st_uid == os.geteuid() else 0o007
    if status.st_mode & others:
        raise TLSConfigError(
            f"others can read the host key {path}; type: chmod 600 {shlex.quote(path)}"
        )


def _certificate(text: bytes, path: str) -> tuple[bytes, Certificate]:
    try:
        blob = a2b_base64(text.split(maxsplit=2)[1], strict_mode=True)
        if not is_certificate(blob):
            raise ValueError
        certificate = read_certificate(blob)
    except (ValueError, IndexError):
        raise TLSConfigError(f"{path} has no certificate of ssh-keygen -s") from None
    except CertificateError as error:
        raise TLSConfigError(f"{path}: {error}") from None
    if certificate.is_of_user:
        raise TLSConfigError(f"{path} is a user's certificate; ssh-keygen -h makes that of a host")
    return blob, certificate


def known_hosts(keys: Sequence[DoorKey], hosts: Sequence[tuple[str, int]]) -> str:
    """
    Return the lines for ``known_hosts``: those of the certificates' authorities first.

    :param hosts: names and ports by which clients reach the server; names may be patterns such as ``*.example.org``.
    """
    names = ",".join(name if port == _PORT else f"[{name}]:{port}" for name, port in hosts)
    authorities = dict.fromkeys(
        each.certificate[1].authority for each in keys if each.certificate is not None
    )
    publics = [bytes(each.private.public().blob()) for each in keys]
    lines = [f"@cert-authority {names} {_line(each)}" for each in authorities]
    lines += [f"{names} {_line(each)}" for each in publics]
    return "".join(f"{line}\n" for line in lines)


def _line(blob: bytes) -> str:
    return str(Key.fromString(blob, "blob").toString("openssh").decode()).strip()
