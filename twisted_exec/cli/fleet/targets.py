"""
The machines of a fleet: those that a selector matches, in one cluster or in those of several Spaces.

The number of machines is limited, and no console is opened before all clusters have answered.  From a
cluster with more machines than the limit only one more than the limit is fetched.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore, gatherResults

from twisted_exec.api.dialects import DIALECTS, Dialect
from twisted_exec.api.names import dns_subdomain
from twisted_exec.api.spaces import SPACES
from twisted_exec.api.status import APIError, BadGateway, Unauthorized
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.console.messages import explain
from twisted_exec.cli.console.options import recorded_input_of
from twisted_exec.kube.consoles.exec import AGENT, TIMEOUT_SECONDS, open_console, served_dialects
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.spaces.interfaces import SpaceName
from twisted_exec.spaces.space_view import name_of
from twisted_exec.streaming.remotecommand.interfaces import ConsoleStream, ConsoleUser
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.wire.stream_options import CONSOLE

MOST_MACHINES = 500
MOST_SPACES = 500
_CONCURRENT_CLUSTERS = 8

REMEDY = "narrow the selection with -l, -n or --space"


class SelectionError(Exception):
    """Nothing can be opened; the message is for the user."""


@dataclass(frozen=True)
class Cluster:
    """
    An API server with machines.

    :param name: of its Space; empty for the cluster of the kubeconfig.
    :param agent: the ``User-Agent``.
    :param remedy: for credentials that the server does not accept; may be empty.
    """

    name: str
    config: ClientConfig
    agent: str = AGENT
    remedy: str = ""


@dataclass(frozen=True)
class Target:
    """
    One machine.

    :param label: its name on the screen, unique among the selected machines.
    """

    cluster: Cluster
    dialect: Dialect
    namespace: str
    name: str
    uid: str
    label: str = ""


@dataclass(frozen=True)
class Selection:
    """
    The selected machines.

    :param failures: the clusters that did not answer, and why.
    """

    targets: Sequence[Target]
    failures: Sequence[tuple[str, str]]


async def select(options: argparse.Namespace, config: ClientConfig, reactor: Any) -> Selection:
    """
    Return the machines that the options select.

    :raises SelectionError: there are none, or too many, or no cluster answers.
    """
    failures: list[tuple[str, str]] = []
    clusters = await _clusters(options, config, reactor, failures)
    turns = DeferredSemaphore(_CONCURRENT_CLUSTERS)

    def listed(cluster: Cluster) -> Deferred[list[Target]]:
        def failed(failure: Any) -> list[Target]:
            reason = _reason(failure)
            if cluster.remedy and getattr(failure.value, "code", 0) == Unauthorized.code:
                reason += f"; {cluster.remedy}"
            failures.append((cluster.name, reason))
            return []

        begin = lambda: Deferred.fromCoroutine(_machines(cluster, options, reactor))  # noqa: E731
        return turns.run(begin).addErrback(failed)

    lists = await gatherResults([listed(cluster) for cluster in clusters])
    targets = [target for targets in lists for target in targets]
    if len(targets) > MOST_MACHINES:
        raise SelectionError(
            f"more than {MOST_MACHINES} machines match, and the limit is {MOST_MACHINES}; {REMEDY}"
        )
    if not targets:
        raise SelectionError(_nothing(options, config, failures))
    return Selection(_labelled(targets), failures)


def _nothing(
    options: argparse.Namespace, config: ClientConfig, failures: list[tuple[str, str]]
) -> str:
    if failures:
        name, why = failures[0]
        where = f"space {name}: " if name else ""
        more = f" (and {len(failures) - 1} more clusters failed)" if len(failures) > 1 else ""
        return f"{where}{why}{more}"
    selected = f"the selector {options.selector!r}" if options.selector else "--all"
    if options.all_namespaces:
        return f"{selected} matches no machine"
    namespace = options.namespace or ("default" if options.space else config.namespace)
    return f'{selected} matches no machine in namespace "{namespace}"; -A selects in all namespaces'


def _reason(failure: Any) -> str:
    error = failure.value
    if isinstance(error, CancelledError):  # the user left
        return "interrupted"
    # Also of an error of ours, such as one that a hostile server's answer provokes: others go on.
    return str(error) if isinstance(error, TLSConfigError) else explain(error)


async def _clusters(
    options: argparse.Namespace,
    config: ClientConfig,
    reactor: Any,
    failures: list[tuple[str, str]],
) -> list[Cluster]:
    if not options.space:
        return [Cluster("", config)]
    # Imported here: most fleets are in one cluster.
    from twisted_exec.cli.space.console import Visit, visit

    names = [SpaceName(options.space, options.provider, "")]
    if any(mark in options.space for mark in "*?["):
        names = await _spaces(options, config, reactor)
    turns = DeferredSemaphore(_CONCURRENT_CLUSTERS)
    is_alone = len({each.name for each in names}) == len(names)

    def visited(space: SpaceName) -> Deferred[Cluster | None]:
        label = space.name if is_alone else f"{space.provider or space.namespace}/{space.name}"
        provider = space.provider or space.namespace
        own = argparse.Namespace(**{**vars(options), "space": space.name, "provider": provider})

        def failed(failure: Any) -> None:
            failures.append((label, _reason(failure)))

        def ready(visit: Visit) -> Cluster | None:
            return Cluster(label, visit.config, visit.agent, visit.remedy)

        visiting = turns.run(lambda: visit(config, own, reactor))
        return visiting.addCallback(ready).addErrback(failed)

    clusters = await gatherResults([visited(space) for space in names])
    return [cluster for cluster in clusters if cluster is not None]


async def _spaces(
    options: argparse.Namespace, config: ClientConfig, reactor: Any
) -> list[SpaceName]:
    """Return the Spaces whose names match the pattern of ``--space``."""
    client = CommandClient(config, reactor, timeout_seconds=_seconds(options), agent=AGENT)
    try:
        listed = await client.list_first(SPACES, most=MOST_SPACES)
    except (APIError, KubeConfigError, TLSConfigError) as error:
        raise SelectionError(explain(error)) from None
    finally:
        await client.close()
    if len(listed) > MOST_SPACES:
        raise SelectionError(
            f"there are more than {MOST_SPACES} spaces; name them one by one with --space"
        )
    names = [name for each in listed if (name := name_of(each)) is not None]
    names = [
        name
        for name in names
        if not any(map(dns_subdomain, (name.name, name.namespace, name.provider or "none")))
        and fnmatchcase(name.name, options.space)
        and options.provider in ("", name.provider or name.namespace)
    ]
    if not names:
        raise SelectionError(f"no space matches {options.space!r}; kubectl get spaces -A lists all")
    return names


def _seconds(options: argparse.Namespace) -> float:
    return options.request_timeout or TIMEOUT_SECONDS


async def _machines(cluster: Cluster, options: argparse.Namespace, reactor: Any) -> list[Target]:
    """Return the machines of one cluster, at most one more than the limit."""
    among = [each for each in DIALECTS if options.dialect in (None, each.name)]
    namespace = "" if options.all_namespaces else cluster.config.namespace
    config, seconds = cluster.config, _seconds(options)
    client = CommandClient(config, reactor, timeout_seconds=seconds, agent=cluster.agent)
    targets: dict[str, Target] = {}
    try:
        served = await served_dialects(client, among)
        if not served:
            nouns = f"machines of dialect {options.dialect}" if options.dialect else "machines"
            raise APIError(f"{config.server} has no {nouns}", code=404, reason="NotFound")
        for dialect in served:
            items = await client.list_first(
                dialect.workload,
                namespace,
                most=MOST_MACHINES,
                label_selector=options.selector,
                trim=_identity,
            )
            for item in items:
                target = _target(cluster, dialect, item)
                targets.setdefault(target.uid, target)
    finally:
        await client.close()
    return sorted(targets.values(), key=lambda target: (target.namespace, target.name))


def _identity(machine: Object) -> Object:
    """Keep only the identity of an object."""
    metadata = machine["metadata"]
    return {"metadata": {key: metadata.get(key, "") for key in ("namespace", "name", "uid")}}


def _target(cluster: Cluster, dialect: Dialect, machine: Object) -> Target:
    metadata = machine["metadata"]
    namespace, name = str(metadata["namespace"]), str(metadata["name"])
    # With other characters a hostile server could write lines in the name of other machines.
    if dns_subdomain(namespace) or dns_subdomain(name):
        raise BadGateway(
            f"{cluster.config.server} has a machine with an invalid name: {f'{namespace}/{name}'[:60]!a}"
        )
    # Without a UID, which no API server leaves out, the name stands for the machine.
    uid = str(metadata["uid"]) or f"{cluster.name}/{namespace}/{name}"
    return Target(cluster, dialect, namespace, name, uid)


def _labelled(targets: list[Target]) -> list[Target]:
    """Label machines with as much of their full names as is needed to tell them apart."""
    has_spaces = len({target.cluster.name for target in targets}) > 1
    has_namespaces = len({target.namespace for target in targets}) > 1
    has_kinds = len({target.dialect.name for target in targets}) > 1
    labelled = []
    for target in targets:
        parts = [target.cluster.name] * has_spaces + [target.namespace] * has_namespaces
        parts += [target.dialect.workload.plural] * has_kinds
        labelled.append(replace(target, label="/".join([*parts, target.name])))
    return labelled


def open_target(
    target: Target, user: ConsoleUser, reactor: Any, options: argparse.Namespace
) -> Deferred[ConsoleStream]:
    """
    Open the console of a selected machine, as :func:`.open_console` does.

    :param options: of the command line.
    """
    return open_console(
        target.cluster.config,
        target.namespace,
        target.name,
        user,
        reactor,
        timeout_seconds=options.request_timeout or TIMEOUT_SECONDS,
        options=replace(CONSOLE, force=options.force),
        among=(target.dialect,),
        agent=target.cluster.agent,
        reason=options.reason,
        record=recorded_input_of(options),
        silence_seconds=options.lost_after,
    )
