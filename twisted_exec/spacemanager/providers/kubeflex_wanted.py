"""
The ControlPlane that is asked for: from ``spec.parameters`` of a Space; without I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from twisted_exec.api import names
from twisted_exec.api.status import BadRequest
from twisted_exec.kube.interfaces import Object
from twisted_exec.spacemanager.interfaces import Physical, Wanted
from twisted_exec.spacemanager.providers.kubeflex_reading import (
    CONTROLPLANES,
    EXTERNAL_TYPE,
    name_problem,
)
from twisted_exec.spacemanager.providers.marks import mark

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
Unless the provider says otherwise.  ``host`` hands out the whole of KubeFlex's own cluster, which may be the one
that has the Spaces: who may make a Space need not be who may have that.
"""
BACKENDS = ("shared", "dedicated")

BOOTSTRAP_NAMESPACE, BOOTSTRAP_SUFFIX = "kubeflex-system", "-bootstrap"
"""
Where the kubeconfig of a cluster to be adopted is looked for, and how the Secret's name ends.  KubeFlex's manager
reads that Secret and deletes it, with more rights than who makes a Space; so it cannot be any Secret.
"""
BOOTSTRAP_KEY = "kubeconfig-incluster"

# What an API server grants at least, and KubeFlex's own default, a year, at most.
_LEAST_SECONDS, _MOST_SECONDS = 600, 31_536_000


def controlplane_of(
    physical: Physical, wanted: Wanted, allowed: Collection[str], allowing: str
) -> Object:
    """
    What is to be created.

    :param allowed: the types that may be.
    :param allowing: where that is said, for messages.
    :raises BadRequest: there can be none of that name, or with those parameters.
    """
    _check_name(physical)
    told = wanted.parameters
    for key in told:
        if key not in PARAMETERS:
            raise BadRequest(
                f"KubeFlex has no parameter {_shown(key)}; there are {', '.join(PARAMETERS)}"
            )
    spec: Object = {"type": _type(told, allowed, allowing)}
    if BACKEND in told:
        spec["backend"] = _one_of(BACKEND, told[BACKEND], BACKENDS)
    if TOKEN_SECONDS in told:
        spec["tokenExpirationSeconds"] = _seconds(told[TOKEN_SECONDS])
    if spec["type"] == EXTERNAL_TYPE:
        spec["bootstrapSecretRef"] = _bootstrap(physical.name, told.get(BOOTSTRAP, ""))
    elif BOOTSTRAP in told:
        raise BadRequest(f"{BOOTSTRAP} is for the type {EXTERNAL_TYPE} only; take it away")
    return {
        "apiVersion": CONTROLPLANES.api_version,
        "kind": CONTROLPLANES.kind,
        "metadata": {"name": physical.name, "annotations": mark(wanted.owner)},
        "spec": spec,
    }


def _check_name(physical: Physical) -> None:
    if physical.parent:
        raise BadRequest(
            f"KubeFlex has all control planes in one place, none in {_shown(physical.parent)};"
            " make the Space without a path"
        )
    problem = name_problem(physical.name)
    if not problem and not physical.name[0].isalpha():
        # Services are called so in several types, and are names of DNS that begin with a letter.
        problem = "it must begin with a letter"
    if problem:
        raise BadRequest(f"no control plane can be called {_shown(physical.name)}: {problem}")


def _type(told: Mapping[str, str], allowed: Collection[str], allowing: str) -> str:
    type = _one_of(TYPE, told.get(TYPE, DEFAULT_TYPE), TYPES)
    if type not in allowed:
        why = " (it hands out the whole cluster that KubeFlex is in)" if type == HOST else ""
        raise BadRequest(f"the provider does not allow the type {type}{why}; {allowing}")
    return type


def _one_of(key: str, value: str, values: Collection[str]) -> str:
    if value not in values:
        raise BadRequest(f"{key} is {_shown(value)}; it must be one of {', '.join(values)}")
    return value


def _seconds(value: str) -> int:
    # Digits of any script are digits to isdigit(), and a long number takes long to read.
    if value.isascii() and value.isdigit() and len(value) <= 9:
        seconds = int(value)
        if _LEAST_SECONDS <= seconds <= _MOST_SECONDS:
            return seconds
    raise BadRequest(
        f"{TOKEN_SECONDS} is {_shown(value)}; it must be {_LEAST_SECONDS} to {_MOST_SECONDS}"
    )


def _bootstrap(name: str, secret: str) -> dict[str, str]:
    secret = secret or f"{name}{BOOTSTRAP_SUFFIX}"
    if names.dns_subdomain(secret) or not secret.endswith(BOOTSTRAP_SUFFIX):
        raise BadRequest(
            f"{BOOTSTRAP} is {_shown(secret)}; it must be a Secret of the namespace {BOOTSTRAP_NAMESPACE}"
            f" whose name ends in {BOOTSTRAP_SUFFIX}, with the kubeconfig under {BOOTSTRAP_KEY}"
        )
    return {
        "namespace": BOOTSTRAP_NAMESPACE,
        "name": secret,
        "inClusterKey": BOOTSTRAP_KEY,
    }


def _shown(value: str) -> str:
    """What a user wrote, fit for a message."""
    return ascii(value[:80])
