"""
The certificate that a poollet shows, when it gets it from the API server.

A certificate names where the pool is reached, and a signer looks that up in the pool: so a
poollet that has none yet begins with one that it signed itself, which nobody trusts,
reports its addresses, and asks.  Key and request are made anew each time; the answer is
installed once it fits, where the listening side finds it.  It is renewed well before it
ends, and when the addresses are others.

As kubelets do it: ``k8s.io/client-go/util/certificate``.
"""

from __future__ import annotations

import base64
import hashlib
import os
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CERTIFICATESIGNINGREQUESTS
from twisted_exec.api.kinds.certificates import (
    DENIED,
    DIGITAL_SIGNATURE,
    FAILED,
    SERVER_AUTH,
    certificate_of,
    condition_of,
)
from twisted_exec.api.status import APIError, Forbidden, NotFound
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.watch import Backoff
from twisted_exec.tls import pem
from twisted_exec.tls.authority import Authority, Issued, request_server, write_private
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import read_file

SIGNER = "twisted-exec.dev/poollet-serving"
"""Who signs for poollets of our own make."""

LOOK_SECONDS = 3600.0
"""How often it is looked whether the certificate is still good, at least."""
DENIED_SECONDS = 900.0
_OWN_LIFE = timedelta(days=30)
_RENEW_FIRST, _RENEW_LAST = 0.7, 0.9
"""The part of its life after which a certificate is renewed, somewhere in between."""


class ServingCertificate:
    """
    Certificate and key in a directory, kept good.

    :param directory: where ``tls.crt`` and ``tls.key`` are; made when it is missing.
    :param names: DNS names and IP addresses where the pool is reached; known by
        :meth:`start` at the latest.
    :param now: seconds since the epoch.
    """

    _log = Logger()

    def __init__(
        self,
        client: IKubeClient,
        clock: IReactorTime,
        *,
        directory: str,
        dialect: Dialect,
        pool: str,
        now: Callable[[], float],
        signer: str = SIGNER,
    ) -> None:
        self._client, self._clock, self._now = client, clock, now
        self._directory, self._signer = directory, signer
        self._name, self._group = dialect.pool_identity(pool), dialect.pool_identity_group
        self._pool = pool
        self.certificate = os.path.join(directory, "tls.crt")
        self.key = os.path.join(directory, "tls.key")
        self._names: Sequence[str] = ()
        self._part = random.uniform(_RENEW_FIRST, _RENEW_LAST)
        self._running: Deferred[None] | None = None
        self.problem = ""
        """Why there is no certificate that anyone trusts, or empty."""

    def prepare(self) -> None:
        """
        See to it that there is something to listen with.

        :raises TLSConfigError: the directory cannot be written, or the pool cannot be named.
        """
        try:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
        except OSError as problem:
            raise TLSConfigError(f"cannot make {self._directory!r}: {problem.strerror}") from None
        try:
            pem.certificates(read_file(self.certificate), self.certificate)
            pem.private_key(read_file(self.key), self.key)
        except TLSConfigError:
            own = Authority.create(self._name[:64])
            self._install(own.issue_server(["localhost"], common_name=self._name, life=_OWN_LIFE))
            self.problem = "no certificate was signed yet"

    def start(self, names: Sequence[str]) -> None:
        """Ask when need be, until :meth:`stop`."""
        self._names = names
        self._running = Deferred.fromCoroutine(self._run()).addErrback(self._ended)

    def stop(self) -> Deferred[None]:
        """Ask no more; fires when nothing is under way."""
        running, self._running = self._running, None
        if running is None:
            return succeed(None)
        running.cancel()
        return running

    async def _run(self) -> None:
        backoff = Backoff(longest_seconds=60.0)
        while True:
            left = self._good_for()
            if left > 0:
                await deferLater(self._clock, min(left, LOOK_SECONDS))
                continue
            try:
                await self._renew()
                backoff.reset()
            except Forbidden as refused:
                self._tell(refused.message)
                await deferLater(self._clock, DENIED_SECONDS)
            except (APIError, TLSConfigError) as problem:
                self._tell(getattr(problem, "message", str(problem)))
                await deferLater(self._clock, backoff.pause())

    def _good_for(self) -> float:
        """For how many seconds the certificate need not be renewed."""
        try:
            found = pem.certificates(read_file(self.certificate), self.certificate)[0]
        except TLSConfigError:
            return 0.0
        if found.issuer == found.subject or self._missing(found):
            return 0.0
        begin, end = found.not_valid_before_utc, found.not_valid_after_utc
        due = begin + (end - begin) * self._part
        return due.timestamp() - self._now()

    def _missing(self, found: x509.Certificate) -> list[str]:
        """The names that a certificate has not."""
        try:
            alternatives = found.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        except (x509.ExtensionNotFound, ValueError):
            return list(self._names)
        names = alternatives.value
        has = {name.lower() for name in names.get_values_for_type(x509.DNSName)}
        has |= {str(address) for address in names.get_values_for_type(x509.IPAddress)}
        return [name for name in self._names if name.lower() not in has]

    async def _renew(self) -> None:
        made = request_server(self._name, [self._group], self._names)
        digest = hashlib.sha256(made.certificate_pem).hexdigest()[:12]
        request: Object = {
            "metadata": {"name": f"{self._pool[:200]}-serving-{digest}"},
            "spec": {
                "request": base64.b64encode(made.certificate_pem).decode("ascii"),
                "signerName": self._signer,
                "usages": [DIGITAL_SIGNATURE, SERVER_AUTH],
            },
        }
        resource = CERTIFICATESIGNINGREQUESTS.resource
        await self._client.create(resource, request)
        name = request["metadata"]["name"]
        self._log.info("asked {signer} for a certificate: {csr}", signer=self._signer, csr=name)
        certificate = await self._signed(name)
        self._install(self._fitting(certificate, made))
        self._log.info("certificate of {csr} installed", csr=name)
        self.problem = ""

    async def _signed(self, name: str) -> bytes:
        """
        The certificate, when somebody signed it.

        :raises Forbidden: somebody said no.
        :raises NotFound: nobody said anything, for so long that the request was dropped.
        """
        backoff = Backoff(longest_seconds=15.0)
        resource = CERTIFICATESIGNINGREQUESTS.resource
        while True:
            try:
                found = await self._client.get(resource, name)
            except APIError as error:
                if error.code == NotFound.code:
                    raise
                self._tell(error.message)
            else:
                if certificate := certificate_of(found):
                    return base64.b64decode(certificate)
                self._decided(found, name)
            await deferLater(self._clock, backoff.pause())

    def _decided(self, request: Object, name: str) -> None:
        for kind in (DENIED, FAILED):
            condition = condition_of(request, kind)
            if condition is not None:
                why = condition.get("message") or condition.get("reason") or kind
                raise Forbidden(f"certificate signing request {name}: {kind}: {why}")
        self._tell(
            f"certificate signing request {name} waits for approval (kubectl certificate approve)"
        )

    def _fitting(self, certificate: bytes, made: Issued) -> Issued:
        """
        Certificate and key together.

        :raises TLSConfigError: what was signed is not what was asked for.
        """
        found = pem.certificates(certificate, "the signed certificate")[0]
        if found.public_key() != pem.private_key(made.key_pem, "our key").public_key():
            raise TLSConfigError("the signed certificate is another key's")
        if missing := self._missing(found):
            raise TLSConfigError(f"the signed certificate does not name {', '.join(missing)}")
        if found.not_valid_after_utc <= datetime.fromtimestamp(self._now(), UTC):
            raise TLSConfigError("the signed certificate has ended already")
        return Issued(certificate, made.key_pem)

    def _install(self, issued: Issued) -> None:
        # Whoever looks in between keeps the pair that it has, see tls.files.
        write_private(self.key, issued.key_pem)
        write_private(self.certificate, issued.certificate_pem)

    def _tell(self, problem: str) -> None:
        if problem != self.problem:
            self._log.warn("no serving certificate yet: {why}", why=problem)
        self.problem = problem

    def _ended(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self.problem = "keeping the certificate failed; see the log"
            self._log.failure("keeping the serving certificate failed", failure)
