"""
Whether a kubeconfig opens an API server, found out by using it.

Sources: ``pkg/registry/authentication/selfsubjectreview`` of Kubernetes; older servers have no such review, and
are asked what we may.
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
from twisted_exec.kube.transport.http import HTTPTransport, Request
from twisted_exec.spacemanager import PROGRAM
from twisted_exec.spacemanager.probes.verdicts import (
    ProbeResult,
    may_verdict,
    ready_verdict,
    unreachable,
    unusable,
    version_of,
    who_verdict,
)
from twisted_exec.spacemanager.spaces.secrets import digest
from twisted_exec.spaces import kubeconfigs

SECONDS = 8.0
"""For each request; a probe has four at most, on one connection."""
_LIMIT_BYTES = 64 << 10

Contents = Mapping[str, bytes]
"""Kubeconfigs by viewpoint."""
Probe = Callable[[Contents, str], Awaitable[ProbeResult]]
"""Probes; given what is to be probed and what to call it in messages.  Never fails."""


def digest_of(contents: Contents) -> str:
    """Tells what was probed from anything else."""
    return digest(b"\0".join(part for each in sorted(contents.items()) for part in _parts(*each)))


def _parts(viewpoint: str, content: bytes) -> tuple[bytes, bytes]:
    return viewpoint.encode(), content


def prober(reactor: Any) -> Probe:
    """The probe that asks."""

    async def probe(contents: Contents, what: str) -> ProbeResult:
        stamp, worst = digest_of(contents), None
        for viewpoint in VIEWPOINTS:
            if viewpoint in contents:
                source = f"{what} ({viewpoint})"
                found = await _probe(contents[viewpoint], source, stamp, reactor)
                if found.answers:
                    return found
                worst = worst or found
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
        return await _asked(transport, stamp)
    except (APIError, KubeConfigError) as error:
        message = error.message if isinstance(error, APIError) else str(error)
        return unreachable(stamp, one_line(message)[:300])
    finally:
        transport.close()  # nobody has to wait for a connection that is idle


async def _asked(transport: HTTPTransport, stamp: str) -> ProbeResult:
    valid = await _who(transport)
    if valid[0] != "True":
        told = ("Unknown", "NotProbed", "who is not let in cannot tell")
        return ProbeResult(stamp, valid, told if valid[0] == "False" else valid)
    ready = ready_verdict((await _get(transport, "/readyz"))[0])
    return ProbeResult(stamp, valid, ready, version_of(*await _get(transport, "/version")))


async def _who(transport: HTTPTransport) -> ConditionValue:
    told = who_verdict(*await _review(transport, SELFSUBJECTREVIEWS.resource, {}))
    if told is not None:
        return told
    asked = {"spec": {"nonResourceAttributes": {"path": "/version", "verb": "get"}}}
    return may_verdict(*await _review(transport, SELFSUBJECTACCESSREVIEWS.resource, asked))


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
