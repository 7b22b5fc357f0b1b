"""Errors of codecs, by whose fault they are."""


class ProtocolError(Exception):
    """A violated protocol.  Only the two subclasses are raised."""


class RemoteProtocolError(ProtocolError):
    """The peer violated the protocol: answer as the protocol prescribes, then hang up."""


class LocalProtocolError(ProtocolError):
    """We were about to violate the protocol: a bug on this side."""
