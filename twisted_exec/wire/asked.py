"""
What a client asks for when it opens a console: the query of its request.

Every hop on the way passes it on in one form, since it is only at the machine's end
that the streams begin.  The words of streams are those of an API server
(``stdin=true``) or of a kubelet (``input=1``); ``readOnly`` and ``force`` are ours.
Sources: ``PodExecOptions`` and ``PodAttachOptions`` of ``k8s.io/api/core/v1``, and
``NewOptions`` of ``k8s.io/kubelet/pkg/cri/streaming/remotecommand/httpstream.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from twisted_exec.wire.channel import Channel

Query = Mapping[bytes, list[bytes]]

_WORDS = {
    Channel.STDIN: (b"stdin", b"input"),
    Channel.STDOUT: (b"stdout", b"output"),
    Channel.STDERR: (b"stderr", b"error"),
}


@dataclass(frozen=True)
class Asked:
    """
    What one request asks for.

    :param channels: the streams that its client will open, never with ``RESIZE``,
        which a client may leave out; ``None`` when the request does not say.
    :param tty: it has a terminal, so output and errors are one.
    :param read_only: it wants to look on; whatever it sends is not for the machine.
    :param force: it wants what another may have to give up for it.
    """

    channels: frozenset[Channel] | None = None
    tty: bool = False
    read_only: bool = False
    force: bool = False

    @classmethod
    def of(cls, query: Query) -> Asked:
        """Read a query, as ``request.args`` has it; what is unknown is passed over."""
        tty = _true(query, b"tty")
        asked = {
            channel for channel, names in _WORDS.items() if any(_true(query, one) for one in names)
        }
        if tty:
            asked.discard(Channel.STDERR)
        return cls(
            frozenset(asked | {Channel.ERROR}) if asked else None,
            tty,
            _true(query, b"readOnly"),
            _true(query, b"force"),
        )

    @property
    def takes_input(self) -> bool:
        """What its client types is meant for the machine; so it is when it does not say."""
        return not self.read_only and (self.channels is None or Channel.STDIN in self.channels)

    def query(self) -> bytes:
        """
        The same for the next hop; empty when nothing was asked for.

        Only what is known, and in one form: a client's query is no way around a proxy.
        """
        channels = self.channels or frozenset()
        words = [names[0] for channel, names in _WORDS.items() if channel in channels]
        told = ((channels and self.tty, b"tty"), (self.read_only, b"readOnly"))
        words += [word for is_so, word in (*told, (self.force, b"force")) if is_so]
        return b"&".join(word + b"=true" for word in words)


CONSOLE = Asked(frozenset({Channel.ERROR, Channel.STDIN, Channel.STDOUT}), tty=True)
"""Input and output, as a terminal has them."""


def _true(query: Query, name: bytes) -> bool:
    return query.get(name, [b""])[0].lower() in (b"1", b"true", b"t")
