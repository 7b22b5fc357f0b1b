"""
An API server whose connections are shared by all that ask it as the same client.

As the same client: with the same certificate, and with the same headers that say who we are.  Renewed
credentials are another client: what is asked with them goes over a connection of theirs, and what was
asked before goes on where it is.
"""

from __future__ import annotations

import hashlib
from typing import Any

from twisted.internet.interfaces import IStreamClientEndpoint

from twisted_exec.kube.config import ClientConfig
from twisted_exec.kube.connection import Connecting, endpoint, identity_headers, identity_stamp
from twisted_exec.streaming.shared_downloads import OFFERED, SharedDownloads


def sharing(shared: SharedDownloads) -> Connecting:
    """
    Makes endpoints for downloads: one connection carries many.

    Without TLS nothing can be chosen, and through a proxy each has a connection of its own.
    """

    def connecting(
        config: ClientConfig, reactor: Any, *, timeout_seconds: float
    ) -> IStreamClientEndpoint:
        if config.url.scheme != "https" or config.proxy_url:
            return endpoint(config, reactor, timeout_seconds=timeout_seconds)
        inner = endpoint(config, reactor, timeout_seconds=timeout_seconds, offered=OFFERED)
        return shared.endpoint((identity_stamp(config), _who(config)), inner)

    return connecting


def _who(config: ClientConfig) -> bytes:
    """Equal for the same headers; a key that is kept holds no credentials."""
    digest = hashlib.sha256()
    for pair in identity_headers(config):
        for part in pair:
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()
