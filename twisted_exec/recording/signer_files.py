"""
The certificate of a recorder, read again when its files change.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from twisted_exec.recording.signatures import HeadSigner, UnusableCertificate
from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import read_file


class SignerFiles:
    """
    Returns the signer of a recorder, from the present content of its files.

    :param warn: writes a line to the log.
    """

    def __init__(
        self,
        certificate: str = "",
        key: str = "",
        warn: Callable[[str], object] = lambda text: None,
    ) -> None:
        self._paths, self._warn = (certificate, key), warn
        self._stamp: tuple[object, ...] = ()
        self._signer: HeadSigner | None = None
        self._problem = ""

    def __call__(self) -> HeadSigner:
        certificate, key = self._paths
        if not certificate:
            raise UnusableCertificate(
                "there is no certificate for recordings (--recorder-certificate)"
            )
        try:
            stamp = tuple((os.stat(path).st_mtime_ns, os.stat(path).st_ino) for path in self._paths)
            if self._signer is None or stamp != self._stamp:
                chain = pem.certificates(read_file(certificate), certificate)
                self._signer = HeadSigner(chain[0], pem.private_key(read_file(key), key))
                self._stamp = stamp
        except (OSError, TLSConfigError) as error:
            # Users read why they are refused, but need no paths of this host.
            if str(error) != self._problem:
                self._problem = str(error)
                self._warn(f"the recorder's certificate cannot be used: {error}")
            raise UnusableCertificate(
                "the recorder's certificate or key cannot be read (the log of its program says why)"
            ) from None
        self._problem = ""
        return self._signer
