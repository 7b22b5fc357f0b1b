"""
Which of several replicas acts for all.

Streams and logs are served by all replicas.  Nodes are kept, and Pods copied, by the one that holds a
Lease of the root (:mod:`twisted_exec.kube.acting`).
"""

from __future__ import annotations

from twisted_exec.nodeserver import PROGRAM

NAMESPACE, LEASE = "kube-system", PROGRAM


def keeper_of(namespace: str = NAMESPACE, lease: str = LEASE) -> str:
    """What all replicas are called together."""
    return f"{namespace}/{lease}"
