"""
A program that uses paramiko at a server on a network: ``python paramiko_door.py KEY KNOWN_HOSTS PORT USER [WORD ...]``.

The words are those of ``paramiko_client.py``.
"""

from __future__ import annotations

import sys

import paramiko
from paramiko_client import use


def main(key: str, known_hosts: str, port: str, user: str, *words: str) -> int:
    client = paramiko.SSHClient()
    client.load_host_keys(known_hosts)
    client.connect(
        "127.0.0.1", int(port), user, key_filename=key, allow_agent=False, look_for_keys=False
    )
    transport = client.get_transport()
    assert transport is not None
    return use(transport, *words)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
