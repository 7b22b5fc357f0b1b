"""
When certificates in files end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from cryptography import x509

from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import read_file


class Expiry:
    """
    The ends of some certificates.

    Of a server's or a client's that of the certificate itself, which comes first in its file; of CAs that
    of the one that is good for longest.

    :param files: paths, by the names to tell them by.
    :param told: likewise, PEM that lies elsewhere; empty for none.
    """

    def __init__(
        self,
        files: Mapping[str, str],
        told: Mapping[str, Callable[[], bytes]] | None = None,
    ) -> None:
        self._ways: dict[str, Callable[[], bytes]] = {
            name: partial(read_file, path) for name, path in files.items()
        }
        self._ways |= told or {}

    def ends(self) -> dict[str, float]:
        """
        The end of each, in seconds since the epoch, as its file is now.

        What cannot be read, or is not there, is left out.
        """
        found = {}
        for name, read in self._ways.items():
            try:
                found[name] = _end(read(), name)
            except TLSConfigError:
                continue  # whoever uses it complains
        return found


def _end(content: bytes, what: str) -> float:
    chain = pem.certificates(content, what)
    counted = chain if all(map(_is_ca, chain)) else chain[:1]
    return _latest(counted)


def _latest(certificates: Sequence[x509.Certificate]) -> float:
    return max(each.not_valid_after_utc.timestamp() for each in certificates)


def _is_ca(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False
