"""
``/stats/summary`` and ``/metrics/resource``: resource usage of Pods and Nodes, as from a kubelet.

``/metrics/resource/NODE`` selects one Node, for metrics-server's annotation
``metrics.k8s.io/resource-metrics-path``.

The source of the usage is ``metrics.k8s.io``, which needs only read permissions; access to the
kubelets of a leaf would include running commands.

Sources: ``k8s.io/kubelet/pkg/apis/stats/v1alpha1``; ``pkg/kubelet/server/stats/handler.go`` and
``pkg/kubelet/metrics/collectors/resource_metrics.go`` of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from twisted.internet.defer import Deferred, TimeoutError, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.quantity import parse
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, GatewayTimeout, ServiceUnavailable
from twisted_exec.api.times import nanoseconds, timestamp
from twisted_exec.auth.cache import AnswerCache
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.interfaces import ILeaf, ILeaves, LeafNode, LeafPod
from twisted_exec.nodeserver.kubelet_api.routes import Hop, Route
from twisted_exec.nodeserver.objects import named, texts
from twisted_exec.program.metrics import CONTENT_TYPE, metrics_text
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.responses import respond, respond_json
from twisted_exec.streaming.http.site import Request


def summary(node: str, usage: LeafUsage) -> dict[str, Any]:
    """
    Return the ``Summary``.

    :param node: its Node; empty for all of ours.
    """
    counted = usage.nodes.get(node)
    about: dict[str, Any] = {
        "nodeName": node,
        "startTime": _moment(counted.started) if counted else None,
    }
    if counted is not None:
        about |= _figures(counted)
    return {"node": about, "pods": [_pod(each) for each in usage.pods]}


def _pod(pod: PodUsage) -> dict[str, Any]:
    metadata = pod.root["metadata"]
    return {
        "podRef": {key: metadata[key] for key in ("name", "namespace", "uid")},
        "startTime": _moment(pod.whole.started),
        "containers": [
            {"name": name, "startTime": _moment(counted.started), **_figures(counted)}
            for name, counted in pod.containers.items()
        ],
        **_figures(pod.whole),
    }


def _figures(counted: Counter) -> dict[str, Any]:
    time = _moment(counted.sample.at)
    return {
        "cpu": {
            "time": time,
            "usageNanoCores": counted.sample.nanocores,
            "usageCoreNanoSeconds": counted.core_nanoseconds,
        },
        "memory": {"time": time, "workingSetBytes": counted.sample.memory_bytes},
    }


def _moment(nanoseconds: int) -> str:
    return timestamp(nanoseconds / NANOSECONDS)


class UsagePages:
    """The handlers of both paths."""

    def __init__(self, hop: Hop) -> None:
        self._hop, self._usage = hop, LeavesUsage(hop.leaves, hop.clock)

    async def summary(self, context: RequestContext) -> None:
        node = await self._hop.admit(context)
        respond_json(context.request, 200, summary(node, await self._usage.of(node)))

    async def metrics(self, context: RequestContext) -> None:
        await self._metrics(context.request, await self._hop.admit(context))

    async def metrics_of(self, context: RequestContext) -> None:
        node = await self._hop.admit(context, context.values["node"])
        await self._metrics(context.request, node)

    async def _metrics(self, request: Request, node: str) -> None:
        text = exposition(node, await self._usage.of(node))
        respond(request, 200, text, CONTENT_TYPE)


def stats_routes(hop: Hop) -> list[Route]:
    """Return the routes of usage."""
    pages = UsagePages(hop)
    return [
        Route(("GET", "POST"), "/stats/summary", pages.summary),
        Route(("GET",), "/metrics/resource", pages.metrics),
        Route(("GET",), "/metrics/resource/{node}", pages.metrics_of),
    ]


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


NANOSECONDS = 10**9

LEAST = 1000
"""
Initial value of a counter, in core-nanoseconds.  A running container has used something, even if
its rate is rounded to 0; readers treat a counter of 0 as missing and drop the whole Pod.
"""

LONGEST_SECONDS = 600
"""Limit between two samples; usage over a longer gap is unknown."""


@dataclass(frozen=True)
class Sample:
    """
    Usage of one container or node, as its leaf reports it.

    :param at: end of the window, in nanoseconds since the epoch.
    :param window: its length, in nanoseconds.
    :param nanocores: average CPU usage in it, in billionths of a core.
    """

    at: int
    window: int
    nanocores: int
    memory_bytes: int


@dataclass(frozen=True)
class Counter:
    """
    Usage of one container or node, as a kubelet reports it.

    :param started: start time of the counter, in nanoseconds since the epoch.
    :param core_nanoseconds: CPU time since then.
    :param since: when the container started according to its leaf, in nanoseconds since the epoch;
        0 if unknown.
    """

    started: int
    core_nanoseconds: int
    sample: Sample
    since: int = 0


class Counters:
    """
    The counters of a leaf.

    A leaf's metrics API reports CPU time *per second*, a kubelet the *total* since a start time, so
    the leaf's rates are integrated here. A container that restarted, or was not sampled for long,
    gets a new counter with a later start.

    Sources: ``k8s.io/metrics/pkg/apis/metrics/v1beta1``;
    ``k8s.io/kubelet/pkg/apis/stats/v1alpha1``.
    """

    def __init__(self) -> None:
        self._counted: dict[Hashable, Counter] = {}

    def __len__(self) -> int:
        return len(self._counted)

    def take(self, key: Hashable, sample: Sample, since: int = 0) -> Counter:
        """
        Return the counter of a container or node, updated with a sample.

        :param since: when it started, in nanoseconds since the epoch; 0 if unknown.
        """
        previous = self._counted.get(key)
        if previous is None:
            counted = _new_counter(sample, since)
        elif previous.since != since and sample.at >= previous.sample.at:
            counted = _new_counter(sample, since, previous.sample.at)
        else:
            counted = _advance(previous, sample)
        self._counted[key] = counted
        return counted

    def keep(self, keys: Collection[Hashable]) -> None:
        for key in self._counted.keys() - set(keys):
            del self._counted[key]


def _new_counter(sample: Sample, since: int, after: int = 0) -> Counter:
    started = min(max(sample.at - sample.window, since, after), sample.at)
    used = sample.nanocores * (sample.at - started) // NANOSECONDS
    return Counter(started, LEAST + used, sample, since)


def _advance(previous: Counter, sample: Sample) -> Counter:
    elapsed = sample.at - previous.sample.at
    if elapsed <= 0:
        return previous
    if elapsed > LONGEST_SECONDS * NANOSECONDS:
        return _new_counter(sample, previous.since, previous.sample.at)
    used = previous.core_nanoseconds + sample.nanocores * elapsed // NANOSECONDS
    return Counter(previous.started, used, sample, previous.since)


_CONTAINER = ("container", "pod", "namespace")
_POD = ("pod", "namespace")


def exposition(node: str, usage: LeafUsage) -> bytes:
    """
    Return the metrics of ``/metrics/resource`` in Prometheus' text format.

    A sample of usage has the timestamp of the leaf's own measurement, so that a reader computes
    rates over the time that passed there.

    Source: ``pkg/kubelet/metrics/collectors/resource_metrics.go`` of Kubernetes.

    :param node: empty for all, without metrics of Nodes.
    """
    registry: Any = _Families(node, usage)  # metrics_text only calls collect
    return metrics_text(registry)


@dataclass(frozen=True)
class _Families:
    node: str
    usage: LeafUsage

    def collect(self) -> Iterable[Metric]:
        yield from self._containers()
        yield from self._nodes()
        yield from self._pods()
        yield _gauge(
            "resource_scrape_error",
            "1 if there was an error while getting container metrics, 0 otherwise",
            (),
            [([], 1.0 if self.usage.problem else 0.0, None)],
        )

    def _containers(self) -> Iterable[Metric]:
        rows = [
            ([name, *_names(pod.root)], counter)
            for pod in self.usage.pods
            for name, counter in pod.containers.items()
        ]
        if not rows:
            return
        yield from _usage("container", _CONTAINER, rows)
        yield _gauge(
            "container_start_time_seconds",
            "Start time of the container since unix epoch in seconds",
            _CONTAINER,
            [(labels, counter.started / NANOSECONDS, None) for labels, counter in rows],
        )

    def _nodes(self) -> Iterable[Metric]:
        counter = self.usage.nodes.get(self.node)
        if counter is not None:
            yield from _usage("node", (), [([], counter)])

    def _pods(self) -> Iterable[Metric]:
        rows = [(_names(pod.root), pod.whole) for pod in self.usage.pods]
        if rows:
            yield from _usage("pod", _POD, rows)


_Value = tuple[list[str], float, float | None]
"""Labels, value and timestamp of one sample."""


def _names(root: Any) -> list[str]:
    return [root["metadata"]["name"], root["metadata"]["namespace"]]


def _usage(
    what: str, labels: tuple[str, ...], rows: Sequence[tuple[list[str], Counter]]
) -> Iterable[Metric]:
    cpu = CounterMetricFamily(
        f"{what}_cpu_usage_seconds",
        f"[STABLE] Cumulative cpu time consumed by the {what} in core-seconds",
        labels=labels,
    )
    for values, counter in rows:
        cpu.add_metric(values, counter.core_nanoseconds / NANOSECONDS, timestamp=_time(counter))
    yield cpu
    yield _gauge(
        f"{what}_memory_working_set_bytes",
        f"Current working set of the {what} in bytes",
        labels,
        [(values, counter.sample.memory_bytes, _time(counter)) for values, counter in rows],
    )


def _time(counter: Counter) -> float:
    return counter.sample.at / NANOSECONDS


def _gauge(
    name: str, description: str, labels: tuple[str, ...], values: Iterable[_Value]
) -> Metric:
    family = GaugeMetricFamily(name, f"[STABLE] {description}", labels=labels)
    for each, value, time in values:
        family.add_metric(each, value, timestamp=time)
    return family
