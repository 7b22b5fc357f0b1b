"""
Settings of ``exec-mcp``, each with the option of the command line that sets it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from twisted_exec.mcp.sessions import Limits
from twisted_exec.program.options.declaration import OPTION, ProgramOption, Required
from twisted_exec.program.options.shared import SERVING_CERTIFICATE, SERVING_KEY, health_listen
from twisted_exec.tls.endpoints import listening_address

LISTEN = "tcp:8443"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def resource_url(text: str) -> str:
    """
    Check the URL of the door.

    :raises ValueError: clients could not use it.
    """
    parts = urlsplit(text)
    is_secure = parts.scheme == "https" or parts.hostname in _LOOPBACK
    is_plain = not (parts.query or parts.fragment or parts.username)
    if not parts.hostname or not is_secure or not is_plain or len(parts.path) < 2:
        raise ValueError(f"{text!r} is no URL such as https://mcp.example.org/mcp")
    return text


@dataclass(frozen=True)
class Settings:
    """
    Settings of the program.

    :param listen: a Twisted endpoint string without TLS; port 0 picks a free port.
    :param url: of the resource, as clients know it.
    :param health_listen: an endpoint string for probes and metrics; empty for none.
    """

    url: str = field(
        metadata={
            OPTION: ProgramOption(
                "resource-url",
                "URL of this server for its clients, such as https://mcp.example.org/mcp.",
                resource_url,
                required=Required("the URL for clients"),
            )
        }
    )
    certificate: str = field(metadata={OPTION: SERVING_CERTIFICATE})
    key: str = field(metadata={OPTION: SERVING_KEY})
    listen: str = field(
        default=LISTEN,
        metadata={
            OPTION: ProgramOption(
                "listen",
                "Listening address: a Twisted endpoint string.",
                listening_address,
                default=LISTEN,
                listens=True,
            )
        },
    )
    health_listen: str = field(default="", metadata={OPTION: health_listen(10261)})
    limits: Limits = field(default=Limits(), metadata={OPTION: Limits})
