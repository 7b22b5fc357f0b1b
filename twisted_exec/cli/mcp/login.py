"""
``twisted-exec mcp login``: an identity for an agent of the user, by a CertificateSigningRequest.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import math
import os
import shlex
from dataclasses import replace
from typing import Any

from cryptography import x509
from twisted.internet.task import deferLater

from twisted_exec.api.agents import (
    AGENTS,
    LONGEST_SECONDS,
    agent_name,
    is_agent,
    label_problem,
)
from twisted_exec.api.conditions import condition_of
from twisted_exec.api.kinds import CERTIFICATESIGNINGREQUESTS, CONSOLEPOLICIES, SELFSUBJECTREVIEWS
from twisted_exec.api.kinds.certificates import (
    APPROVED,
    CLIENT_AUTH,
    DENIED,
    DIGITAL_SIGNATURE,
    FAILED,
    SHORTEST_SECONDS,
    certificate_of,
)
from twisted_exec.api.status import APIError, Forbidden, NotFound
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.explanations import explain, object_name
from twisted_exec.cli.failures import InputError
from twisted_exec.cli.messages import for_stdout, say
from twisted_exec.cli.refusal_texts import lacking_right
from twisted_exec.kube.kubeconfig.client_config import (
    ClientConfig,
    ImpersonatedUser,
    KubeConfigError,
    Material,
)
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.kube.kubeconfig.writer import written
from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.pki.requests import request_client
from twisted_exec.tls.private_files import write_private

_OWNER = "agent-owner"
_SIGNER = "twisted-exec.dev/agent"
_LOOK_SECONDS = 0.25
_SIGNING_SECONDS = 5.0
"""A signer needs less; after this time the request waits for a person, or for a signer that there is not."""
_NO_POLICY = (
    'no ConsolePolicy in the namespace "{namespace}" has the subject group "{group}" and selects all machines, so agents '
    "may only observe there: kubectl apply -n {namespace} -f agents.yaml, which is in docs/howto of twisted-exec"
)


async def login(client: CommandClient, options: argparse.Namespace) -> str:
    """
    Make an identity for an agent, write its kubeconfig, and return what to print.

    :param options: ``agent``, ``output``, ``duration`` in seconds, and ``reactor``.
    :raises InputError: the server, or this command, makes none.
    """
    label, path = options.agent, options.output or f"{options.agent}.kubeconfig"
    if problem := label_problem(label):
        raise InputError(problem)
    if not SHORTEST_SECONDS <= options.duration <= LONGEST_SECONDS:
        raise InputError("--duration is 10m to 8h")
    person = await _own_name(client)
    if is_agent(person):
        raise InputError(
            f'this is "{person}", and an agent has no agents of its own: log in with the kubeconfig of a person'
        )
    name = agent_name(person, label)
    _check_file(path, name)
    namespace = client.config.namespace
    await _check_policies(client, namespace)
    request = request_client(name, [])
    certificate = await _certified(client, request.request_pem, int(options.duration), options)
    agent = _agent_config(client.config, certificate, request.key_pem)
    write_private(path, written(agent, name))
    end = pem.certificates(certificate, "the certificate")[0].not_valid_after_utc
    lines = (
        f'{path}: agent "{name}", until {end:%Y-%m-%dT%H:%M:%SZ}. It may do what both you and the group "{AGENTS}" may.',
        f"Give it to the agent's program: twisted-exec mcp --kubeconfig {path} -n {namespace}",
        f"See what it may do: kubectl --kubeconfig {path} -n {namespace} auth can-i --list",
    )
    return "".join(f"{for_stdout(line)}\n" for line in lines)


async def _own_name(client: CommandClient) -> str:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await client.create(SELFSUBJECTREVIEWS.resource, review)
    name = answer.get("status", {}).get("userInfo", {}).get("username", "")
    if not isinstance(name, str) or not name:
        raise InputError("the API server does not say who you are")
    return name


def _check_file(path: str, name: str) -> None:
    """Refuse to replace a file that is not this agent's."""
    if not os.path.lexists(path):
        return
    try:
        chain = load(path).certificate.read()
        (common,) = pem.certificates(chain, path)[0].subject.get_attributes_for_oid(
            x509.NameOID.COMMON_NAME
        )
        is_own = common.value == name
    except (KubeConfigError, TLSConfigError, ValueError, IndexError):
        is_own = False
    if not is_own:
        raise InputError(
            f'"{path}" exists, and is not a kubeconfig of agent "{name}": give another --output'
        )


async def _check_policies(client: CommandClient, namespace: str) -> None:
    """
    Check that a policy restricts agents at all machines of the namespace.

    :raises InputError: there is none.
    """
    try:
        policies = (await client.list(CONSOLEPOLICIES.resource, namespace))["items"]
    except APIError as refusal:
        if refusal.code not in (Forbidden.code, NotFound.code):
            raise
        raise InputError(
            f"this command cannot see whether a ConsolePolicy restricts agents: {explain(refusal, namespace)}"
        ) from None
    if not any(map(_restricts_agents, policies)):
        raise InputError(_NO_POLICY.format(namespace=namespace, group=AGENTS))


def _restricts_agents(policy: Any) -> bool:
    spec = policy.get("spec", {})
    selector = spec.get("selector") or {}
    if selector.get("matchLabels") or selector.get("matchExpressions"):
        return False
    return any(
        (each.get("kind"), each.get("name")) == ("Group", AGENTS)
        for each in spec.get("subjects") or ()
    )


async def _certified(
    client: CommandClient, request: bytes, seconds: int, options: argparse.Namespace
) -> bytes:
    digest = hashlib.sha256(request).hexdigest()[:12]
    name = f"agent-{options.agent}-{digest}"
    csr = {
        "metadata": {"name": name},
        "spec": {
            "request": base64.b64encode(request).decode("ascii"),
            "signerName": _SIGNER,
            "usages": [DIGITAL_SIGNATURE, CLIENT_AUTH],
            "expirationSeconds": seconds,
        },
    }
    resource, reactor = CERTIFICATESIGNINGREQUESTS.resource, options.reactor
    try:
        await client.create(resource, csr)
    except APIError as refusal:
        # No default role has this right, and the shipped role has all rights that a person needs for it.
        right = lacking_right(refusal)
        if right is None:
            raise
        raise InputError(
            f"{refusal.message}; ask an administrator for the role {_OWNER} of agents.yaml: kubectl create "
            f"clusterrolebinding {object_name(right.user, _OWNER)} --clusterrole={_OWNER} "
            f"--user={shlex.quote(right.user)}"
        ) from None
    told, since, approved = False, reactor.seconds(), math.inf
    while True:
        found = await client.get(resource, name)
        if certificate := certificate_of(found):
            return base64.b64decode(certificate)
        for kind in (DENIED, FAILED):
            if condition := condition_of(found, kind):
                why = condition.get("message") or condition.get("reason") or kind
                raise InputError(f'the request "{name}" was not signed: {why}')
        if condition_of(found, APPROVED):
            told, approved = True, min(approved, reactor.seconds())
        if reactor.seconds() - approved > _SIGNING_SECONDS:
            raise InputError(
                f'the request "{name}" is approved, and no signer answers: a standalone API server with '
                "--cluster-signing-kube-apiserver-client-cert-file signs it, and a kube-apiserver does not"
            )
        if not told and reactor.seconds() - since > _SIGNING_SECONDS:
            told = True
            say(
                f'the request "{name}" waits for the approval of an administrator: kubectl certificate approve {name} '
                f"(kubectl describe csr {name} says why)"
            )
        await deferLater(reactor, _LOOK_SECONDS, lambda: None)


def _agent_config(config: ClientConfig, certificate: bytes, key: bytes) -> ClientConfig:
    """Return the configuration of the agent: the server of the user's, and no credential of the user."""
    return replace(
        config,
        certificate=Material(data=certificate),
        key=Material(data=key),
        token="",
        token_file="",
        username="",
        password="",
        plugin=None,
        impersonate=ImpersonatedUser(),
    )
