"""
Who a user certificate says that its owner is, and whether it holds now.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from twisted_exec.ssh.certificate import (
    Certificate,
    CertificateError,
    is_certificate,
    read_certificate,
)
from twisted_exec.ssh.people import Credential, LoginRefused, name_problem
from twisted_exec.ssh.public_keys import fingerprint
from twisted_exec.ssh.text import shown

_SOURCE_ADDRESS = b"source-address"
_MOST_KEY_ID_BYTES = 100
_MOST_PRINCIPALS = 3
"""In logs."""


def certified_user(certificate: Certificate, source_address: str, now: float) -> str:
    """
    Return the user of a certificate, whose authority the caller knows.

    :param source_address: the client's IP address; empty if it has none.
    :param now: in seconds since 1970.
    :raises LoginRefused: it is not for one user, or not for now, or not from there.
    """
    if not certificate.is_of_user:
        raise LoginRefused(
            "this is the certificate of a host, not of a user; ssh-keygen -s without -h signs for users"
        )
    if now < certificate.valid_after:
        raise LoginRefused(
            "your ssh certificate is not valid yet; compare the clocks of both hosts"
        )
    if certificate.valid_before is not None and now >= certificate.valid_before:
        raise LoginRefused("your ssh certificate has expired; get a new one")
    user = _user(certificate)
    for name, value in certificate.critical_options.items():
        if name != _SOURCE_ADDRESS:
            raise LoginRefused(
                f'your ssh certificate has the critical option "{shown(name)}", which is not known here'
            )
        _check_source(value, source_address)
    return user


def certificate_text(certificate: Certificate) -> str:
    """Return the key id and the serial number, for people and logs."""
    return f"{shown(certificate.key_id, _MOST_KEY_ID_BYTES)} (serial {certificate.serial})"


def credential_text(credential: Credential, user: str = "") -> str:
    """
    Return what a client has shown, for logs: its key, and what its certificate says.

    :param user: the owner of a plain key; empty if it is not known.
    """
    blob, certificate = credential.key_blob, None
    if is_certificate(blob):
        try:
            certificate = read_certificate(blob)
        except CertificateError:
            return "a malformed certificate"
    if certificate is None:
        return f"the key {fingerprint(blob)}" + (f" of {user}" if user else "")
    users = ", ".join(shown(each) for each in certificate.principals[:_MOST_PRINCIPALS])
    return (
        f"the key {fingerprint(bytes(certificate.key.blob()))} and the certificate "
        f"{certificate_text(certificate)} of {users or 'no user'}"
    )


def _user(certificate: Certificate) -> str:
    if not certificate.principals:
        raise LoginRefused(
            "your ssh certificate has no principal, so it is for any user; "
            "ssh-keygen -n USER names the one"
        )
    if len(certificate.principals) > 1:
        raise LoginRefused(
            f"your ssh certificate has {len(certificate.principals)} principals; "
            "it must have one, which is the user"
        )
    [principal] = certificate.principals
    try:
        user = principal.decode()
        problem = name_problem(user)
    except UnicodeDecodeError:
        problem = "is not UTF-8"
    if problem:
        raise LoginRefused(f'the principal "{shown(principal)}" is no user: it {problem}')
    return user


def _check_source(networks: bytes, source_address: str) -> None:
    try:
        address = ip_address(source_address.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        address = mapped or address
        allowed = [ip_network(each) for each in networks.decode("ascii").split(",")]
    except ValueError:
        raise LoginRefused(
            "your ssh certificate is for certain addresses, and they or yours cannot be read"
        ) from None
    if not any(address in each for each in allowed):
        raise LoginRefused(f"your ssh certificate is not for the address {address}")
