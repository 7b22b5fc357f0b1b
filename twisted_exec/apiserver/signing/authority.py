"""
The files of a CA that signs certificates.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.interfaces import IReactorTime

from twisted_exec.tls.files import Reloading
from twisted_exec.tls.pki.authority import Authority


@dataclass(frozen=True)
class CAPair:
    """Paths of a CA's certificate and key (PEM)."""

    certificate: str
    key: str

    def reloading(self, clock: IReactorTime) -> Reloading[Authority]:
        """Return the authority."""

        def parsed(certificate: bytes, key: bytes) -> Authority:
            return Authority.load(
                certificate,
                key,
                certificate_what=f"signing certificate {self.certificate!r}",
                key_what=f"signing key {self.key!r}",
            )

        return Reloading([self.certificate, self.key], parsed, clock)
