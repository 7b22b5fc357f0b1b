"""Services of twisted-exec and what they need, for applications that embed them."""

from __future__ import annotations

from twisted_exec.api.users import FORWARDING_USER
from twisted_exec.apiserver.auditing.policy import DEFAULT_POLICY as DEFAULT_AUDIT_POLICY
from twisted_exec.apiserver.identity.credentials import Identities
from twisted_exec.apiserver.service import APIServer
from twisted_exec.apiserver.settings import Settings as APIServerSettings
from twisted_exec.kube.kubeconfig.writer import write_kubeconfig
from twisted_exec.nodeserver.service import NodeServer
from twisted_exec.nodeserver.settings import Settings as NodeServerSettings
from twisted_exec.poollet.machines.downward import Downward
from twisted_exec.poollet.service import Poollet
from twisted_exec.poollet.settings import Settings as PoolletSettings
from twisted_exec.program.audit_file import JSONLinesAudit
from twisted_exec.program.descriptors import raise_descriptor_limit
from twisted_exec.program.garbage import GarbagePolicy
from twisted_exec.program.start import report_start
from twisted_exec.spacemanager.service import SpaceManager
from twisted_exec.spacemanager.settings import Settings as SpaceManagerSettings
from twisted_exec.tls.fast.loop import shorten_turns
from twisted_exec.tls.files import Reloading, read_file
from twisted_exec.tls.pki.directory import create_pki, open_pki
from twisted_exec.tls.server import ServerTLS

__all__ = [
    "DEFAULT_AUDIT_POLICY",
    "FORWARDING_USER",
    "APIServer",
    "APIServerSettings",
    "Downward",
    "GarbagePolicy",
    "Identities",
    "JSONLinesAudit",
    "NodeServer",
    "NodeServerSettings",
    "Poollet",
    "PoolletSettings",
    "Reloading",
    "ServerTLS",
    "SpaceManager",
    "SpaceManagerSettings",
    "create_pki",
    "open_pki",
    "raise_descriptor_limit",
    "read_file",
    "report_start",
    "shorten_turns",
    "write_kubeconfig",
]
