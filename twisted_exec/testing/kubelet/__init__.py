"""
A kubelet without a container runtime: streams end in commands of this host.
"""

from __future__ import annotations

from twisted_exec.testing.kubelet.containers import Container
from twisted_exec.testing.kubelet.server import Kubelet, Pods, Seen

__all__ = ["Container", "Kubelet", "Pods", "Seen"]
