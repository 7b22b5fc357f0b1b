"""
The files of a door that nobody reaches.
"""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from .test_door_login import KUBECONFIG


def write(path: Path, text: str) -> None:
    """Write a file that only its owner can write, whatever the umask is."""
    path.touch(0o600)
    path.write_text(text)


def write_files(directory: Path) -> list[str]:
    """Write the files of a door; return the options that name them."""
    write(directory / "kubeconfig", KUBECONFIG % "token: x")
    private = Ed25519PrivateKey.generate()
    for name in ("host", "host.pub"):
        (directory / name).touch(0o600)
    text = private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    (directory / "host").write_bytes(text)
    public = private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    (directory / "host.pub").write_text(public)
    write(directory / "users.yaml", f"users:\n- {{user: ada, keys: ['{public}']}}\n")
    return [
        f"--kubeconfig={directory / 'kubeconfig'}",
        f"--users={directory / 'users.yaml'}",
        f"--host-key={directory / 'host'}",
    ]
