"""Clients of Kubernetes-style API servers and of consoles, for applications."""

from __future__ import annotations

from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    BadRequest,
    Conflict,
    Expired,
    Forbidden,
    GatewayTimeout,
    InsufficientStorage,
    Invalid,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from twisted_exec.api.times import timestamp
from twisted_exec.control.queue import WorkQueue
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.console_endpoint import ConsoleEndpoint
from twisted_exec.kube.informers import Reflector
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.kube.kubeconfig.reloading import ReloadingConfig
from twisted_exec.kube.leases import LeaderElected
from twisted_exec.kube.recorder import Recorder
from twisted_exec.spaces.client import SpaceClient

__all__ = [
    "IRONCORE",
    "APIError",
    "AlreadyExists",
    "BadRequest",
    "ClientConfig",
    "Conflict",
    "ConsoleEndpoint",
    "Expired",
    "Forbidden",
    "GatewayTimeout",
    "InsufficientStorage",
    "Invalid",
    "KubeClient",
    "LeaderElected",
    "Material",
    "NotFound",
    "Recorder",
    "Reflector",
    "ReloadingConfig",
    "Resource",
    "ServiceUnavailable",
    "SpaceClient",
    "TooManyRequests",
    "Unauthorized",
    "WorkQueue",
    "load",
    "timestamp",
]
