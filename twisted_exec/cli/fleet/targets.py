"""Machines of a fleet."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from twisted.internet.defer import (
    CancelledError,
    Deferred,
    DeferredSemaphore,
    gatherResults,
    succeed,
)

from twisted_exec.api.dialects import DIALECTS, Dialect
from twisted_exec.api.names import dns_subdomain
from twisted_exec.api.spaces import SPACES
from twisted_exec.api.status import APIError, BadGateway, Forbidden, Unauthorized
from twisted_exec.cli.advice import KUBECTL
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.console.options import recorded_input_of
from twisted_exec.cli.explanations import explain
from twisted_exec.cli.refusal_texts import with_next_request
from twisted_exec.cli.suggestion import has_namespace
from twisted_exec.kube.console import ConsoleOptions, open_console
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.machine_requests import AGENT, TIMEOUT_SECONDS, served_dialects
from twisted_exec.kube.read_only_hint import is_allowed
from twisted_exec.spaces.interfaces import SpaceName
from twisted_exec.spaces.space_view import name_of
from twisted_exec.streaming.remotecommand.stream import ConsoleStream, ConsoleUser
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.wire.session_terms import Right
from twisted_exec.wire.stream_options import CONSOLE

MOST_MACHINES = 500
MOST_SPACES = 500
_CONCURRENT_VISITS = 8

REMEDY = "narrow the selection with -l, -n or --space"


class SelectionError(Exception):
    """Nothing can be opened, of a cluster or at all."""


@dataclass(frozen=True)
class Cluster:
    """
    An API server with machines.

    :param name: of its Space; empty for the cluster of the kubeconfig.
    :param agent: the ``User-Agent``.
    :param remedy: what to do if the server does not accept the credentials.
    """

    name: str
    config: ClientConfig
    agent: str = AGENT
    remedy: str = ""


@dataclass(frozen=True)
class FleetTarget:
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


class Selection:
    """
    The machines that the options select, as their clusters answer.

    Each cluster has an equal share of the limit.  A cluster with more machines gets only what the
    others leave of their shares, so it cannot take the share of a cluster that answers late.

    :param found: called with the machines of a cluster.
    :param failed: called with the name of one of several clusters, and why it has no machines here.
    :ivar waiting: the names of the clusters that have not answered; empty if there is only one.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        config: ClientConfig,
        reactor: Any,
        found: Callable[[Sequence[FleetTarget]], None],
        failed: Callable[[str, str], None],
    ) -> None:
        self._options, self._config, self._reactor = options, config, reactor
        self._found, self._failed = found, failed
        self.waiting: list[str] = []
        self._is_alone = not options.space
        self._has_machines = False
        self._problem, self._lost = "", 0
        self._share, self._room = 0, MOST_MACHINES
        self._large: list[tuple[str, Sequence[FleetTarget]]] = []

    async def run(self) -> None:
        """
        Ask all clusters.

        :raises SelectionError: no machine can be selected.
        """
        options, config, reactor = self._options, self._config, self._reactor
        if not options.space:
            asking = [self._ask("", succeed(Cluster("", config)))]
        else:
            names = [SpaceName(options.space, options.provider, "")]
            if any(mark in options.space for mark in "*?["):
                names = await _spaces(options, config, reactor)
            self._is_alone = len(names) == 1
            clusters = _clusters(names, options, config, reactor)
            asking = [self._ask(label, cluster) for label, cluster in clusters]
            if not self._is_alone:
                self.waiting = [label for label, _ in clusters]
        self._share = MOST_MACHINES // len(asking)
        self._room -= self._share * len(asking)
        await gatherResults([Deferred.fromCoroutine(each) for each in asking], consumeErrors=True)
        for name, machines in self._large:
            room = f"there is room for {self._room} beside those of the other clusters"
            self._lose(
                name, SelectionError(f"{len(machines)} machines match, and {room}; {REMEDY}")
            )
        if not self._has_machines:
            raise SelectionError(self._problem or _nothing(options, config))

    async def _ask(self, name: str, visiting: Deferred[Cluster]) -> None:
        machines: Sequence[FleetTarget] = ()
        try:
            cluster = await visiting
            machines = await _machines(cluster, self._options, self._reactor)
        except CancelledError:  # the user left
            raise
        except Exception as error:
            # Also an error of ours, such as one that a hostile server's answer provokes: others go on.
            self._lose(name, error)
        if name in self.waiting:
            self.waiting.remove(name)
        self._answered(name, machines)

    def _answered(self, name: str, machines: Sequence[FleetTarget]) -> None:
        self._room += self._share
        # The smallest first: most clusters get what they need.
        waiting = sorted([*self._large, (name, machines)], key=lambda each: len(each[1]))
        self._large = []
        for name, machines in waiting:
            if len(machines) > self._room:
                self._large.append((name, machines))
            elif machines:
                self._room -= len(machines)
                self._has_machines = True
                self._found(_labelled(machines, has_spaces=not self._is_alone))

    def _lose(self, name: str, error: Exception) -> None:
        reason = _reason(error, None if name else self._config)
        if self._is_alone:
            self._problem = f"space {name}: {reason}" if name else reason
        else:
            self._lost += 1
            self._problem = f"no machine is selected, and {self._lost} clusters failed"
            self._failed(name, reason)


def _nothing(options: argparse.Namespace, config: ClientConfig) -> str:
    selected = f'the selector "{options.selector}"' if options.selector else "--all"
    if options.all_namespaces:
        return f"{selected} matches no machine"
    namespace = options.namespace or ("default" if options.space else config.namespace)
    return f'{selected} matches no machine in namespace "{namespace}"; -A selects in all namespaces'


def _reason(error: Exception, config: ClientConfig | None) -> str:
    if isinstance(error, SelectionError | TLSConfigError):
        return str(error)
    return explain(error, config=config)


def _clusters(
    names: Sequence[SpaceName], options: argparse.Namespace, config: ClientConfig, reactor: Any
) -> list[tuple[str, Deferred[Cluster]]]:
    # Imported here: most fleets are in one cluster.
    from twisted_exec.cli.console.space import Visit, visit

    is_unique = len({each.name for each in names}) == len(names)
    # For the server with the Spaces, which all share; those of the Spaces do not wait for one another.
    turns = DeferredSemaphore(_CONCURRENT_VISITS)

    def visited(space: SpaceName) -> tuple[str, Deferred[Cluster]]:
        label = space.name if is_unique else f"{space.provider or space.namespace}/{space.name}"
        provider = space.provider or space.namespace
        own = argparse.Namespace(**{**vars(options), "space": space.name, "provider": provider})

        def ready(visit: Visit) -> Cluster:
            return Cluster(label, visit.config, visit.agent, visit.remedy)

        return label, turns.run(visit, config, own, reactor).addCallback(ready)

    return [visited(space) for space in names]


async def _spaces(
    options: argparse.Namespace, config: ClientConfig, reactor: Any
) -> list[SpaceName]:
    client = CommandClient(config, reactor, timeout_seconds=_seconds(options), agent=AGENT)
    try:
        listed = await client.list_first(SPACES, most=MOST_SPACES)
    except (APIError, KubeConfigError, TLSConfigError) as error:
        raise SelectionError(explain(error, config=config)) from None
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
        raise SelectionError(f'no space matches "{options.space}"; {KUBECTL.list_spaces}')
    return names


def _seconds(options: argparse.Namespace) -> float:
    return options.request_timeout or TIMEOUT_SECONDS


async def _machines(
    cluster: Cluster, options: argparse.Namespace, reactor: Any
) -> list[FleetTarget]:
    among = [each for each in DIALECTS if options.dialect in (None, each.name)]
    namespace = "" if options.all_namespaces else cluster.config.namespace
    config, seconds = cluster.config, _seconds(options)
    client = CommandClient(config, reactor, timeout_seconds=seconds, agent=cluster.agent)
    targets: dict[str, FleetTarget] = {}
    try:
        served = await served_dialects(client, among)
        if not served:
            nouns = f"machines of dialect {options.dialect}" if options.dialect else "machines"
            raise APIError(f"{config.server} has no {nouns}", code=404, reason="NotFound")
        for dialect in served:
            try:
                items = await client.list_first(
                    dialect.workload,
                    namespace,
                    most=MOST_MACHINES,
                    label_selector=options.selector,
                    trim=_identity,
                )
            except APIError as refusal:
                right = _right_after_list(options)
                is_forbidden = refusal.code == Forbidden.code
                if is_forbidden and not await is_allowed(client, dialect, namespace, *right):
                    with_next_request(refusal, *right)
                raise
            for item in items:
                target = _target(cluster, dialect, item)
                targets.setdefault(target.uid, target)
        is_only = namespace and not cluster.name
        if is_only and not targets and not await has_namespace(client, namespace):
            raise SelectionError(
                f'namespace "{namespace}" does not exist; {KUBECTL.list_namespaces}'
            )
    except APIError as refused:
        if refused.code == Unauthorized.code and cluster.remedy:
            refused.message += f"; {cluster.remedy}"
        raise
    finally:
        await client.close()
    if len(targets) > MOST_MACHINES:
        raise SelectionError(
            f"more than {MOST_MACHINES} machines match, and the limit is {MOST_MACHINES}; {REMEDY}"
        )
    return sorted(targets.values(), key=lambda target: (target.namespace, target.name))


def _right_after_list(options: argparse.Namespace) -> tuple[str, str]:
    """Return the verb and the subresource of the right that the command needs at each machine."""
    if not options.tiled and options.script_command is None:
        return "get", "log"
    if options.force:
        return Right.TAKEOVER.verb, "console"
    return (Right.OBSERVE if options.tiled else Right.DRIVE).verb, "console"


def _identity(machine: Object) -> Object:
    metadata = machine["metadata"]
    return {"metadata": {key: metadata.get(key, "") for key in ("namespace", "name", "uid")}}


def _target(cluster: Cluster, dialect: Dialect, machine: Object) -> FleetTarget:
    metadata = machine["metadata"]
    namespace, name = str(metadata["namespace"]), str(metadata["name"])
    # With other characters a hostile server could write lines in the name of other machines.
    if dns_subdomain(namespace) or dns_subdomain(name):
        shown = ascii(f"{namespace}/{name}"[:60])[1:-1]
        raise BadGateway(f'{cluster.config.server} has a machine with an invalid name: "{shown}"')
    # Without a UID, which no API server leaves out, the name stands for the machine.
    uid = str(metadata["uid"]) or f"{cluster.name}/{namespace}/{name}"
    return FleetTarget(cluster, dialect, namespace, name, uid)


def _labelled(targets: Sequence[FleetTarget], *, has_spaces: bool) -> list[FleetTarget]:
    has_namespaces = len({target.namespace for target in targets}) > 1
    has_kinds = len({target.dialect.name for target in targets}) > 1
    labelled = []
    for target in targets:
        parts = [target.cluster.name] * has_spaces + [target.namespace] * has_namespaces
        parts += [target.dialect.workload.plural] * has_kinds
        labelled.append(replace(target, label="/".join([*parts, target.name])))
    return labelled


def open_target(
    target: FleetTarget,
    user: ConsoleUser,
    reactor: Any,
    options: argparse.Namespace,
) -> Deferred[ConsoleStream]:
    """Open the console of a selected machine, as :func:`.open_console` does."""
    return open_console(
        target.cluster.config,
        target.namespace,
        target.name,
        user,
        reactor,
        ConsoleOptions(
            timeout_seconds=options.request_timeout or TIMEOUT_SECONDS,
            stream=replace(CONSOLE, force=options.force),
            among=(target.dialect,),
            agent=target.cluster.agent,
            reason=options.reason,
            record=recorded_input_of(options),
            silence_seconds=options.lost_after,
        ),
    )
