"""
Who is to blame when a codec refuses.

After h11: an error says whose fault it was, so the caller knows whether to
hang up on the peer or to mend its own code.
"""


class ProtocolError(Exception):
    """A protocol was not kept.  Raised only as one of its two subclasses."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the protocol: answer if the protocol says how, then hang up."""


class LocalProtocolError(ProtocolError):
    """We were about to break the protocol: a bug on this side."""
