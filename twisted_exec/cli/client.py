"""
The client of commands, whose server may be hostile: Spaces name servers that their authors run.
"""

from __future__ import annotations

from typing import Any

from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig

BODY_BYTES = 8 << 20
LIST_BYTES = 32 << 20
"""Limits for one answer, and for all pages of a list."""


class CommandClient(KubeClient):
    """Client of one API server for commands, with small limits."""

    def __init__(self, config: ClientConfig, reactor: Any, **more: Any) -> None:
        super().__init__(config, reactor, body_bytes=BODY_BYTES, list_bytes=LIST_BYTES, **more)
