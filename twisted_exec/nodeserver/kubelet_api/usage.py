"""
Resource usage of the Pods in all leaves.

Its source is ``metrics.k8s.io``, which needs only read permissions; access to the kubelets of a leaf
would include running commands.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.lenient import named, texts
from twisted_exec.api.quantity import parse
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, GatewayTimeout, ServiceUnavailable
from twisted_exec.api.times import nanoseconds
from twisted_exec.auth.cache import AnswerCache
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.interfaces import ILeaf, ILeaves, LeafNode, LeafPod
from twisted_exec.nodeserver.kubelet_api.counters import NANOSECONDS, Counter, Counters, Sample

KEEP_SECONDS = 5.0
"""Cache lifetime of a leaf's answer."""

ANSWER_SECONDS = 8.0
"""Timeout for a leaf: metrics-server waits 10 s for us."""

POD_METRICS = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics")
NODE_METRICS = Resource("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics", namespaced=False)

_DURATION = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9}(?:\.\d{1,9})?)s)?")
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class PodUsage:
    """A Pod of the root and its usage."""

    root: Object
    whole: Counter
    containers: Mapping[str, Counter]

    @property
    def node(self) -> str:
        return str(self.root["spec"]["nodeName"])


@dataclass(frozen=True)
class LeafUsage:
    """The usage that one leaf reports, or several together."""

    pods: tuple[PodUsage, ...] = ()
    nodes: Mapping[str, Counter] = field(default_factory=dict)
    problem: str = ""


class LeavesUsage:
    """
    The usage in our leaves.
    """

    _log = Logger()

    def __init__(self, leaves: ILeaves, clock: IReactorTime) -> None:
        self._leaves, self._clock = leaves, clock
        self._cache: AnswerCache[LeafUsage] = AnswerCache(clock, lambda _: KEEP_SECONDS)
        self._counts: dict[str, Counters] = {}
        self._problems: dict[str, str] = {}

    async def of(self, node: str = "") -> LeafUsage:
        """
        Return the usage on one of our Nodes, or on all.

        :raises NotFound: the Node is not ours.
        """
        leaves = [self._leaves.of_node(node)] if node else self._leaves.all()
        self._forget()
        pending = [
            self._cache.get(leaf.name.encode(), _asking(self._read, leaf)) for leaf in leaves
        ]
        usages: list[LeafUsage] = await gatherResults(pending, consumeErrors=True)
        return LeafUsage(
            tuple(pod for usage in usages for pod in usage.pods if node in ("", pod.node)),
            {
                name: used
                for usage in usages
                for name, used in usage.nodes.items()
                if node in ("", name)
            },
            "; ".join(usage.problem for usage in usages if usage.problem),
        )

    def _forget(self) -> None:
        leaf_names = {leaf.name for leaf in self._leaves.all()}
        for by_leaf in (self._counts, self._problems):
            for name in by_leaf.keys() - leaf_names:
                del by_leaf[name]

    async def _read(self, leaf: ILeaf) -> LeafUsage:
        try:
            if not leaf.synced:  # otherwise no metrics could be attributed to Pods of ours
                raise ServiceUnavailable(leaf.problem or "its Pods are not known yet")
            pods = await self._listed(leaf, POD_METRICS)
        except APIError as error:
            self._tell(leaf, error.message)
            return LeafUsage(problem=f'leaf "{leaf.name}": {error.message}')
        nodes, problem = [], ""
        try:
            nodes = await self._listed(leaf, NODE_METRICS)
        except APIError as error:
            problem = error.message  # the Pods are reported all the same
        self._tell(leaf, problem)
        counting = _Counting(leaf, self._counts.setdefault(leaf.name, Counters()))
        usage = LeafUsage(tuple(counting.pods(pods)), dict(counting.nodes(nodes)))
        counting.over()
        return usage

    async def _listed(self, leaf: ILeaf, resource: Resource) -> list[Object]:
        asking: Deferred[Object] = leaf.client.list(resource)
        try:
            listed = await asking.addTimeout(ANSWER_SECONDS / 2, self._clock)
        except TimeoutError:
            raise GatewayTimeout(f"{resource.qualified} did not arrive in time") from None
        items: list[Object] = listed["items"]
        return items

    def _tell(self, leaf: ILeaf, problem: str) -> None:
        before = self._problems.get(leaf.name, "")
        self._problems[leaf.name] = problem
        if problem and problem != before:
            self._log.warn(
                "no usage of leaf {leaf} from its metrics.k8s.io: {why}",
                leaf=leaf.name,
                why=problem,
            )
        elif before and not problem:
            self._log.info("usage of leaf {leaf} is available again", leaf=leaf.name)


def _asking(read: Any, leaf: ILeaf) -> Any:
    return lambda: read(leaf)


class _Counting:
    def __init__(self, leaf: ILeaf, counts: Counters) -> None:
        self._leaf, self._counts = leaf, counts
        self._counted_keys: set[Hashable] = set()

    def pods(self, metrics: Iterable[Object]) -> Iterable[PodUsage]:
        ours = {(pod.namespace, pod.name): pod for pod in self._leaf.pods()}
        for item in metrics:
            metadata = item["metadata"]
            pod = ours.get((metadata.get("namespace", ""), metadata["name"]))
            usage = None if pod is None else self._pod(pod, item)
            if usage is not None:
                yield usage

    def _pod(self, pod: LeafPod, metrics: Object) -> PodUsage | None:
        uid = pod.root["metadata"]["uid"]
        started = _starts(pod.pod or {})
        containers = {}
        samples = []
        for each in named(metrics.get("containers")):
            sample = _sample(metrics, each.get("usage"))
            if sample is not None:
                name = str(each["name"])
                samples.append(sample)
                containers[name] = self._take((uid, name), sample, started.get(name, 0))
        if not samples:
            return None
        return PodUsage(pod.root, self._take((uid,), _sum(samples)), containers)

    def nodes(self, metrics: Iterable[Object]) -> Iterable[tuple[str, Counter]]:
        available = list(metrics)
        for node in self._leaf.nodes:
            theirs = [item for item in available if _stands_for(node, item)]
            readings = [_sample(item, item.get("usage")) for item in theirs]
            samples = [sample for sample in readings if sample is not None]
            if samples:
                yield node.name, self._take(("node", node.name), _sum(samples))

    def _take(self, key: Hashable, sample: Sample, since: int = 0) -> Counter:
        self._counted_keys.add(key)
        return self._counts.take(key, sample, since)

    def over(self) -> None:
        self._counts.keep(self._counted_keys)


def _stands_for(node: LeafNode, metrics: Object) -> bool:
    metadata = metrics["metadata"]
    if node.leaf_nodes:
        return metadata["name"] in node.leaf_nodes
    labels = texts(metadata.get("labels"))
    return all(labels.get(key) == value for key, value in node.selector.items())


def _sum(samples: list[Sample]) -> Sample:
    return Sample(
        at=max(each.at for each in samples),
        window=min(each.window for each in samples),
        nanocores=sum(each.nanocores for each in samples),
        memory_bytes=sum(each.memory_bytes for each in samples),
    )


def _sample(item: Object, usage: Any) -> Sample | None:
    try:
        sample = Sample(
            at=nanoseconds(item["timestamp"]),
            window=duration(item["window"]),
            nanocores=int(parse(usage["cpu"]) * NANOSECONDS),
            memory_bytes=int(parse(usage["memory"])),
        )
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        return None
    figures = (sample.at, sample.window, sample.nanocores, sample.memory_bytes)
    return sample if all(0 <= figure <= _LARGEST for figure in figures) else None


def duration(text: str) -> int:
    """
    Parse a duration as Go prints it, such as ``1m15.5s``, into nanoseconds.

    :raises ValueError: it is not made of hours, minutes and seconds.
    """
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        raise ValueError(f"{text!r} is no duration")
    hours, minutes, seconds = match.groups(default="0")
    whole, _, fraction = seconds.partition(".")
    total_seconds = (int(hours) * 60 + int(minutes)) * 60 + int(whole)
    return total_seconds * NANOSECONDS + int(fraction.ljust(9, "0") or 0)


def _starts(pod: Object) -> Mapping[str, int]:
    status = pod.get("status") or {}
    statuses = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    started = {}
    for each in statuses:
        running = (each.get("state") or {}).get("running") or {}
        try:
            started[str(each["name"])] = nanoseconds(running["startedAt"])
        except (AttributeError, KeyError, TypeError, ValueError):
            continue
    return started
