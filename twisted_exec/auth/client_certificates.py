"""
Verification of client certificates against the CAs of a file.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import product
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.status import one_line
from twisted_exec.tls import pem
from twisted_exec.tls.errors import OutsideValidity, TLSConfigError, VerificationError
from twisted_exec.tls.files import Reloading
from twisted_exec.tls.server import PeerCertificate, verify

_ACCEPTED_SECONDS = 60.0
_REFUSED_SECONDS = 1.0
_LOG_SECONDS = 60.0
_VERDICTS_KEPT = 1024


@dataclass(frozen=True)
class Verdict:
    """
    The result of judging one certificate.

    :param until: when to judge again, on the monotonic clock.
    :param refusal: why it is not accepted; empty if it is.
    :param is_of_time: it is refused because it, or its CA, is outside its validity.
    """

    until: float
    refusal: str
    begin: datetime
    end: datetime
    logged: float
    is_of_time: bool = False

    def lasts(self, seconds: float, now: datetime) -> bool:
        return seconds < self.until and (bool(self.refusal) or self.begin <= now <= self.end)


class CertificateJudge:
    """
    Verifies client certificates against one CA file.

    Results are cached for a short time.

    :param ca: path of a PEM file, or its content as bytes.
    :param now: time for validity checks, timezone-aware.
    :param apart_from: path of another such file, whose CAs must have nothing to do with these.
    """

    _log = Logger()

    def __init__(
        self,
        ca: str | bytes,
        clock: IReactorTime,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        apart_from: str = "",
    ) -> None:
        if apart_from and isinstance(ca, bytes):
            raise ValueError("apart_from needs the path of the CA, not its content")
        self._clock, self._now = clock, now
        self._ca: _Given | Reloading[bytes] = (
            _Given(ca) if isinstance(ca, bytes) else (_followed(ca, apart_from, clock))
        )
        self._verdicts: OrderedDict[tuple[bytes, bytes], Verdict] = OrderedDict()

    def load(self) -> None:
        """
        Read the CAs now.

        :raises TLSConfigError: they are unusable.
        """
        self._ca.load()

    def files(self) -> list[Reloading[Any]]:
        """Return the CA file."""
        return [self._ca] if isinstance(self._ca, Reloading) else []

    def refusal(self, peer: PeerCertificate) -> str:
        """Why the certificate is not accepted; empty if it is."""
        return self.verdict(peer).refusal

    def distrust(self, peer: PeerCertificate) -> str:
        """
        As :meth:`refusal`, but empty if only the time is wrong.

        Reviews of open sessions ask this about proxies; about users see
        :mod:`twisted_exec.auth.session_review`.
        """
        verdict = self.verdict(peer)
        return "" if verdict.is_of_time else verdict.refusal

    def verdict(self, peer: PeerCertificate) -> Verdict:
        """Judge a certificate, or return an earlier result that still holds."""
        ca_pem, now, seconds = self._ca.get(), self._now(), self._clock.seconds()
        key = (ca_pem, peer.digest)
        verdict = self._verdicts.get(key)
        if verdict is None or not verdict.lasts(seconds, now):
            logged = verdict.logged if verdict is not None else float("-inf")
            verdict = self._verdicts[key] = self._judge(peer, ca_pem, now, logged)
        self._verdicts.move_to_end(key)
        while len(self._verdicts) > _VERDICTS_KEPT:
            self._verdicts.popitem(last=False)
        return verdict

    def _judge(self, peer: PeerCertificate, ca_pem: bytes, now: datetime, logged: float) -> Verdict:
        seconds = self._clock.seconds()
        try:
            valid = verify(peer, ca_pem, now)
        except OutsideValidity as problem:
            # Log it: its owner will ask, and usually only certificates of our CA get this far.
            if seconds - logged >= _LOG_SECONDS:
                self._warn(peer, problem)
                logged = seconds
            until = seconds + _REFUSED_SECONDS
            return Verdict(until, str(problem), now, now, logged, is_of_time=True)
        except VerificationError as problem:
            return Verdict(seconds + _REFUSED_SECONDS, str(problem), now, now, logged)
        begin = max(certificate.not_valid_before_utc for certificate in valid)
        end = min(certificate.not_valid_after_utc for certificate in valid)
        return Verdict(seconds + _ACCEPTED_SECONDS, "", begin, end, logged)

    def _warn(self, peer: PeerCertificate, problem: OutsideValidity) -> None:
        begin, end = peer.leaf.not_valid_before_utc, peer.leaf.not_valid_after_utc
        self._log.warn(
            "{problem}: that of {user} is good from {begin} until {end}",
            problem=problem,
            user=one_line(peer.common_name),
            begin=begin.isoformat(),
            end=end.isoformat(),
        )


class _Given:
    def __init__(self, ca_pem: bytes) -> None:
        self._ca_pem = ca_pem

    def load(self) -> bytes:
        pem.certificates(self._ca_pem, "the client CA")
        return self._ca_pem

    def get(self) -> bytes:
        return self._ca_pem


def _followed(ca: str, apart_from: str, clock: IReactorTime) -> Reloading[bytes]:
    paths = [ca, apart_from] if apart_from else [ca]
    return Reloading(paths, partial(_checked, paths), clock)


def _checked(paths: Sequence[str], ca_pem: bytes, *others: bytes) -> bytes:
    """Check that no certificate can pass for both purposes."""
    cas, *apart = (
        pem.certificates(content, f"client CA {path!r}")
        for path, content in zip(paths, (ca_pem, *others), strict=True)
    )
    for ca, other in product(cas, apart[0]) if apart else ():
        if ca == other or pem.is_key_of(ca, other):
            how = "hold the same CA"
        elif pem.has_issued(ca, other) or pem.has_issued(other, ca):
            # A client could present the intermediate in a chain that ends at the other file's CA.
            how = "hold CAs of which one has signed the other"
        else:
            continue
        raise TLSConfigError(
            f"{paths[0]!r} and {paths[1]!r} {how}: the CA of proxies must sign nothing else, and "
            "be signed by no CA of users"
        )
    return ca_pem
