"""
Who logs in with ssh: the interface between the login and its sources.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from zope.interface import Interface

SSH_KEY, SSH_CERTIFICATE, SSH_ADDRESS = "ssh-key", "ssh-certificate", "ssh-address"
"""
Keys of the extra of a user who has logged in by ssh: the fingerprint of the key, the id and serial number of the
certificate, and the address that the user comes from.
"""

_RESERVED = "system:"
_MOST_CHARACTERS = 253


class LoginRefused(Exception):
    """
    A key or certificate that is known, but does not let its owner in.

    The message is a sentence for the owner: the login sends it only behind a valid signature.

    :param user: the owner, for the log; empty if it is not known, or if the certificate says it.
    """

    def __init__(self, message: str, user: str = "") -> None:
        super().__init__(message)
        self.user = user


class UnknownKey(LoginRefused):
    """A key that no source knows, or a certificate of an unknown authority: its owner is a stranger."""


def name_problem(name: str) -> str:
    """
    Return why no user or group from here can have a name; empty if it can.

    Names that other systems read as paths or patterns are refused, and those that Kubernetes keeps for itself.
    """
    if not name:
        return "is empty"
    if len(name) > _MOST_CHARACTERS:
        return f"has more than {_MOST_CHARACTERS} characters"
    if not name.isprintable() or name != name.strip():
        return "has a space at an end, or a character that cannot be printed"
    if any(each in name for each in "/\\*"):
        return "has a slash, a backslash or a star"
    if name.lower().startswith(_RESERVED):
        return f"begins with {_RESERVED}, which is for the cluster itself"
    return ""


@dataclass(frozen=True, eq=False)
class Credential:
    """
    What a client has shown.

    :param algorithm: such as ``ssh-ed25519`` or ``rsa-sha2-512-cert-v01@openssh.com``.
    :param key_blob: the public key or certificate, in the format of RFC 4253, section 6.6.
    :param source_address: the client's IP address, as text; empty if it has none.
    """

    algorithm: bytes
    key_blob: bytes
    source_address: str


@dataclass(frozen=True)
class Person:
    """
    A user who has logged in.

    :param groups: those of the source that knows the user, in its order.
    :param fingerprint: of the user's key, as ``ssh-keygen -l`` prints it: ``SHA256:...``.
    :param certificate: the key id and the serial number of the certificate, printable; empty for a plain key.
    :param expires: when the login ends at the latest, in seconds since 1970; ``None`` for never.
    :param credential: what the source checks again while the sessions are open.
    """

    user: str
    groups: tuple[str, ...]
    fingerprint: str
    certificate: str = ""
    expires: float | None = None
    credential: Credential = field(
        default=Credential(b"", b"", ""), repr=False, compare=False, kw_only=True
    )


class IPeople(Interface):
    """Knows users by their keys and certificates."""

    def identify(algorithm: bytes, key_blob: bytes, source_address: str, now: float) -> Person:
        """
        Return the owner of a key.  The caller verifies that the client has the private key.

        :param algorithm: of the signature, as the client names it.
        :param key_blob: the public key or certificate.
        :param source_address: the client's IP address; empty if it has none.
        :param now: in seconds since 1970.
        :raises LoginRefused: the key lets nobody in.
        """

    def problem() -> str:
        """Return why nobody can log in for now, for the operator; empty if users can."""

    def reason_to_end(person: Person, now: float) -> str | None:
        """
        Return why a user's sessions must end now, or ``None``.

        It costs little while nothing has changed, so the door may ask for each session twice a second.

        :param person: as :meth:`identify` has returned it.
        :return: a sentence for the user.
        """
