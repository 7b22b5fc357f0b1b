"""
Probes of kubeconfigs: requests that show whether a kubeconfig gives access.

Source: ``pkg/registry/authentication/selfsubjectreview`` of Kubernetes; an access review replaces
it on older servers.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from twisted_exec.api.conditions import ConditionValue
from twisted_exec.api.kinds.reviews import SELFSUBJECTACCESSREVIEWS, SELFSUBJECTREVIEWS
from twisted_exec.api.resource import Resource
from twisted_exec.api.spaces import VIEWPOINTS
from twisted_exec.api.status import APIError, one_line
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.transport import HTTPTransport, Request
from twisted_exec.spacemanager import PROGRAM
from twisted_exec.spacemanager.spaces.observation import (
    ProbeResult,
    unreachable,
    unusable,
    version_of,
)
from twisted_exec.spacemanager.spaces.secrets import digest
from twisted_exec.spacemanager.spaces.verdicts import may_verdict, ready_verdict, who_verdict
from twisted_exec.spaces import kubeconfigs

SECONDS = 8.0
"""Timeout per request; each kubeconfig is probed with at most four."""
_LIMIT_BYTES = 64 << 10

Contents = Mapping[str, bytes]
"""Kubeconfigs by viewpoint."""
Probe = Callable[[Contents, str], Awaitable[ProbeResult]]
"""Probes kubeconfigs, given a name for messages.  The result also says what failed."""


def digest_of(contents: Contents) -> str:
    """Return a digest that identifies the kubeconfigs."""
    return digest(b"\0".join(part for each in sorted(contents.items()) for part in _parts(*each)))


def _parts(viewpoint: str, content: bytes) -> tuple[bytes, bytes]:
    return viewpoint.encode(), content


def prober(reactor: Any) -> Probe:
    """Return the real probe."""

    async def probe(contents: Contents, what: str) -> ProbeResult:
        stamp, worst = digest_of(contents), None
        for viewpoint in VIEWPOINTS:
            if viewpoint in contents:
                source = f"{what} ({viewpoint})"
                result = await _probe(contents[viewpoint], source, stamp, reactor)
                if result.answers:
                    return result
                worst = worst or result
        return worst or unreachable(stamp, "there is no kubeconfig")

    return probe


async def _probe(content: bytes, source: str, stamp: str, reactor: Any) -> ProbeResult:
    try:
        config = kubeconfigs.config_of(content, source)
    except KubeConfigError as error:
        return unusable(stamp, str(error))
    transport = HTTPTransport(
        config, reactor, connect_seconds=SECONDS, agent=PROGRAM, peer="the physical space"
    )
    try:
        return await _request_all(transport, stamp)
    except (APIError, KubeConfigError) as error:
        message = error.message if isinstance(error, APIError) else str(error)
        return unreachable(stamp, one_line(message)[:300])
    finally:
        transport.close()  # the connection is idle now


async def _request_all(transport: HTTPTransport, stamp: str) -> ProbeResult:
    valid = await _identity_verdict(transport)
    if valid[0] != "True":
        unknown = ("Unknown", "NotProbed", "without access, readiness is unknown")
        return ProbeResult(stamp, valid, unknown if valid[0] == "False" else valid)
    ready = ready_verdict((await _get(transport, "/readyz"))[0])
    return ProbeResult(stamp, valid, ready, version_of(*await _get(transport, "/version")))


async def _identity_verdict(transport: HTTPTransport) -> ConditionValue:
    verdict = who_verdict(*await _review(transport, SELFSUBJECTREVIEWS.resource, {}))
    if verdict is not None:
        return verdict
    review = {"spec": {"nonResourceAttributes": {"path": "/version", "verb": "get"}}}
    return may_verdict(*await _review(transport, SELFSUBJECTACCESSREVIEWS.resource, review))


async def _review(
    transport: HTTPTransport, resource: Resource, more: Mapping[str, Any]
) -> tuple[int, bytes]:
    review = {"apiVersion": resource.api_version, "kind": resource.kind, **more}
    body = json.dumps(review).encode()
    return await _ask(transport, Request("POST", resource.path(), body, repeatable=True))


async def _get(transport: HTTPTransport, target: str) -> tuple[int, bytes]:
    return await _ask(transport, Request("GET", target, repeatable=True))


async def _ask(transport: HTTPTransport, request: Request) -> tuple[int, bytes]:
    code, _, answer = await transport.collect(
        request, timeout_seconds=SECONDS, limit_bytes=_LIMIT_BYTES
    )
    return code, answer
