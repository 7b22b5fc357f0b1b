"""Parameters of a control plane, and the object to create for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from twisted_exec.api import names
from twisted_exec.api.status import BadRequest
from twisted_exec.kube.interfaces import Object
from twisted_exec.spacemanager.interfaces import Physical, SpaceRequest
from twisted_exec.spacemanager.providers.cluster import mark
from twisted_exec.spacemanager.providers.kubeflex.controlplanes import (
    CONTROLPLANES,
    EXTERNAL_TYPE,
    name_problem,
)

TYPE, BACKEND, TOKEN_SECONDS, BOOTSTRAP = (
    "type",
    "backend",
    "tokenExpirationSeconds",
    "bootstrapSecret",
)
PARAMETERS = (TYPE, BACKEND, TOKEN_SECONDS, BOOTSTRAP)
DEFAULT_TYPE, HOST = "k8s", "host"
TYPES = ("k8s", "vcluster", "k3s", "ocm", EXTERNAL_TYPE, HOST)
ALLOWED = frozenset(TYPES) - {HOST}
"""
The types that are allowed by default.  Type ``host`` gives access to KubeFlex's own cluster, which may
be the cluster with the Spaces: permission to create a Space must not include that.
"""
BACKENDS = ("shared", "dedicated")

BOOTSTRAP_NAMESPACE, BOOTSTRAP_SUFFIX = "kubeflex-system", "-bootstrap"
"""
Namespace and name suffix of the Secret with the kubeconfig of a cluster to adopt.  KubeFlex's
manager reads and deletes that Secret with more permissions than the creator of a Space has, so
arbitrary Secrets are not accepted.
"""
BOOTSTRAP_KEY = "kubeconfig-incluster"

# The minimum of API servers, and a year, KubeFlex's default.
_LEAST_SECONDS, _MOST_SECONDS = 600, 31_536_000


def controlplane_of(
    physical: Physical, request: SpaceRequest, allowed: Collection[str], allowing: str
) -> Object:
    """
    Return the ControlPlane object for a request.

    :raises BadRequest: the name or the parameters are invalid.
    """
    _check_name(physical)
    parameters = request.parameters
    for key in parameters:
        if key not in PARAMETERS:
            raise BadRequest(
                f"KubeFlex has no parameter {_quoted(key)}; use {', '.join(PARAMETERS)}"
            )
    spec: Object = {"type": _type(parameters, allowed, allowing)}
    if BACKEND in parameters:
        spec["backend"] = _one_of(BACKEND, parameters[BACKEND], BACKENDS)
    if TOKEN_SECONDS in parameters:
        spec["tokenExpirationSeconds"] = _seconds(parameters[TOKEN_SECONDS])
    if spec["type"] == EXTERNAL_TYPE:
        spec["bootstrapSecretRef"] = _bootstrap(physical.name, parameters.get(BOOTSTRAP, ""))
    elif BOOTSTRAP in parameters:
        raise BadRequest(f"{BOOTSTRAP} is for the type {EXTERNAL_TYPE} only; remove it")
    return {
        "apiVersion": CONTROLPLANES.api_version,
        "kind": CONTROLPLANES.kind,
        "metadata": {"name": physical.name, "annotations": mark(request.owner)},
        "spec": spec,
    }


def _check_name(physical: Physical) -> None:
    if physical.parent:
        raise BadRequest(
            f"KubeFlex has no hierarchy of control planes, so there is no {_quoted(physical.parent)};"
            " make the Space without a path"
        )
    problem = name_problem(physical.name)
    if not problem and not physical.name[0].isalpha():
        # Services are called so in several types, and are names of DNS that begin with a letter.
        problem = "it must begin with a letter"
    if problem:
        raise BadRequest(f"no control plane can be called {_quoted(physical.name)}: {problem}")


def _type(parameters: Mapping[str, str], allowed: Collection[str], allowing: str) -> str:
    type = _one_of(TYPE, parameters.get(TYPE, DEFAULT_TYPE), TYPES)
    if type not in allowed:
        why = " (it hands out the whole cluster that KubeFlex is in)" if type == HOST else ""
        raise BadRequest(f"the provider does not allow the type {type}{why}; {allowing}")
    return type


def _one_of(key: str, value: str, values: Collection[str]) -> str:
    if value not in values:
        raise BadRequest(f"{key} is {_quoted(value)}; it must be one of {', '.join(values)}")
    return value


def _seconds(value: str) -> int:
    # Digits of any script are digits to isdigit(), and a long number takes long to read.
    if value.isascii() and value.isdigit() and len(value) <= 9:
        seconds = int(value)
        if _LEAST_SECONDS <= seconds <= _MOST_SECONDS:
            return seconds
    raise BadRequest(
        f"{TOKEN_SECONDS} is {_quoted(value)}; it must be {_LEAST_SECONDS} to {_MOST_SECONDS}"
    )


def _bootstrap(name: str, secret: str) -> dict[str, str]:
    secret = secret or f"{name}{BOOTSTRAP_SUFFIX}"
    if names.dns_subdomain(secret) or not secret.endswith(BOOTSTRAP_SUFFIX):
        raise BadRequest(
            f"{BOOTSTRAP} is {_quoted(secret)}; it must be a Secret of the namespace {BOOTSTRAP_NAMESPACE}"
            f" whose name ends in {BOOTSTRAP_SUFFIX}, with the kubeconfig under {BOOTSTRAP_KEY}"
        )
    return {
        "namespace": BOOTSTRAP_NAMESPACE,
        "name": secret,
        "inClusterKey": BOOTSTRAP_KEY,
    }


def _quoted(value: str) -> str:
    return ascii(value[:80])
