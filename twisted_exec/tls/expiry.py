"""Expiry times of certificates in files, for metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from cryptography import x509

from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import read_file


class Expiry:
    """
    Expiry times of certificates.

    A file of a server or client expires with its first certificate; a CA bundle with the last of
    its CAs.

    :param readers: functions that return PEM data kept elsewhere, by name.
    """

    def __init__(
        self,
        files: Mapping[str, str],
        readers: Mapping[str, Callable[[], bytes]] | None = None,
    ) -> None:
        self._readers: dict[str, Callable[[], bytes]] = {
            name: partial(read_file, path) for name, path in files.items()
        }
        self._readers |= readers or {}

    def ends(self) -> dict[str, float]:
        """
        Return the expiry times by name, in seconds since the epoch.

        Unusable files are left out.
        """
        ends = {}
        for name, read in self._readers.items():
            try:
                ends[name] = _end(read(), name)
            except TLSConfigError:
                continue  # the code that uses the file reports the error
        return ends


def _end(content: bytes, what: str) -> float:
    chain = pem.certificates(content, what)
    counted = chain if all(map(_is_ca, chain)) else chain[:1]
    return _latest(counted)


def _latest(certificates: Sequence[x509.Certificate]) -> float:
    return max(each.not_valid_after_utc.timestamp() for each in certificates)


def _is_ca(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, *pem.UNREADABLE):
        return False
