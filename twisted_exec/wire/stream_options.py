"""
Options of a console session: the query of the request that opens it.

Both spellings are accepted: an API server's (``stdin=true``) and a kubelet's (``input=1``).
Sources: ``PodExecOptions`` and ``PodAttachOptions`` of ``k8s.io/api/core/v1``, and ``NewOptions``
of ``k8s.io/kubelet/pkg/cri/streaming/remotecommand/httpstream.go``.
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
class StreamOptions:
    """
    Options of one request.

    :param channels: the streams that the client will open, without ``RESIZE``.  ``None`` when the
        request does not say.
    :param read_only: the client only watches; its input never reaches the machine.
    :param observe: begin as an observer, who may ask for the role of the writer later.
    :param force: take over from a user who has the floor.
    :param input_ended: the session begins as if its input had just ended.
    """

    channels: frozenset[Channel] | None = None
    tty: bool = False
    read_only: bool = False
    observe: bool = False
    force: bool = False
    input_ended: bool = False

    @classmethod
    def of(cls, query: Query) -> StreamOptions:
        """Parse a query in the form of ``request.args``."""
        tty = _true(query, b"tty")
        channels = {
            channel
            for channel, names in _WORDS.items()
            if any(_true(query, name) for name in names)
        }
        if tty:
            # A terminal has one output: kubelets drop stderr, too (NewOptions), and a CRI refuses
            # both.
            channels.discard(Channel.STDERR)
        return cls(
            # Each protocol has the error channel, so no option asks for it.
            frozenset(channels | {Channel.ERROR}) if channels else None,
            tty,
            _true(query, b"readOnly"),
            _true(query, b"observe"),
            _true(query, b"force"),
            _true(query, b"inputEnded"),
        )

    @property
    def takes_input(self) -> bool:
        """True if input goes to the machine, which is the default."""
        return not self.read_only and (self.channels is None or Channel.STDIN in self.channels)

    def query(self) -> bytes:
        """Return the query for the next hop, without unknown keys; may be empty."""
        channels = self.channels or frozenset()
        words = [names[0] for channel, names in _WORDS.items() if channel in channels]
        flags = (
            (channels and self.tty, b"tty"),
            (self.read_only, b"readOnly"),
            (self.observe, b"observe"),
            (self.force, b"force"),
            (self.input_ended, b"inputEnded"),
        )
        words += [word for is_set, word in flags if is_set]
        return b"&".join(word + b"=true" for word in words)


CONSOLE = StreamOptions(frozenset({Channel.ERROR, Channel.STDIN, Channel.STDOUT}), tty=True)


def _true(query: Query, name: bytes) -> bool:
    return query.get(name, [b""])[0].lower() in (b"1", b"true", b"t")
