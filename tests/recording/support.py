"""
Recordings for tests, with certificates of authorities that exist in memory only.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cache

from cryptography import x509

from twisted_exec.journal.interfaces import Event
from twisted_exec.recording.proof_lines import Info
from twisted_exec.recording.signatures import HeadSigner, TrustedRecorders
from twisted_exec.recording.writer import RecordingWriter
from twisted_exec.tls import pem
from twisted_exec.tls.pki.authority import Authority

SECOND = 10**9
NOW = 1_700_000_000 * SECOND
Entry = tuple[int, bytes] | Event
"""Output with its time, or an event."""


@cache
def authority(name: str) -> Authority:
    """Return an authority that is valid from :data:`NOW` on."""
    return Authority.create(name, now=when())


@cache
def signer(name: str = "metal-a", *, ca: str = "a", days: int = 365) -> HeadSigner:
    """Return a recorder whose certificate is valid from :data:`NOW` on."""
    issued = authority(ca).issue_recorder(name, now=when(), life=timedelta(days=days))
    certificate = pem.certificates(issued.certificate_pem, "it")[0]
    return HeadSigner(certificate, pem.private_key(issued.key_pem, "it"))


def trust(*names: str) -> TrustedRecorders:
    """Return the trust in some authorities, by default the one of :func:`signer`."""
    return TrustedRecorders([_ca(name) for name in names or ("a",)])


def _ca(name: str) -> x509.Certificate:
    return pem.certificates(authority(name).certificate_pem, name)[0]


def when(time_ns: int = NOW) -> datetime:
    """Return a time as a ``datetime``."""
    return datetime.fromtimestamp(time_ns // SECOND, UTC)


def info(first: int = 0, recording: str = "r1") -> Info:
    """Return the facts about a recording."""
    machine = {"namespace": "default", "name": "vm-1", "uid": "u1"}
    return Info(recording, machine, "0011223344556677", first, NOW // 1_000_000)


def record(
    entries: Iterable[Entry], *, closed: bool = True, sign_each: bool = False, first: int = 0
) -> bytes:
    """
    Return a recording.

    :param sign_each: sign after each entry.
    """
    writer = RecordingWriter(info(first), signer(), title="default/vm-1")
    text = [writer.begin()]
    offset, now = first, NOW
    for entry in entries:
        if isinstance(entry, Event):
            now = entry.time_ns
            text.append(writer.event(entry))
            offset = max(offset, entry.data.get("end", 0))
        else:
            now, data = entry
            text.append(writer.output(now, offset, data))
            offset += len(data)
        if sign_each:
            text.append(writer.sign_head(now))
    text.append(writer.close(now) if closed else writer.sign_head(now))
    return b"".join(text)
