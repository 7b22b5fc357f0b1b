"""
One leaf cluster, and our Pods in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from zope.interface import implementer

from twisted_exec.api.kinds.pods.machine_pods import PODS
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    GatewayTimeout,
    NotFound,
    ServiceUnavailable,
)
from twisted_exec.control.listeners import Listeners
from twisted_exec.control.runs import StoppingParts
from twisted_exec.kube.client import MakeKubeClient
from twisted_exec.kube.informers import Key, Reflector, key_of
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.late_credentials import REFUSAL_CODES, LateCredentials, named
from twisted_exec.kube.upstream import CONNECT_SECONDS
from twisted_exec.nodeserver.interfaces import ILeaf, IRootPods, LeafNode, LeafPod
from twisted_exec.nodeserver.leaves.credentials import LeafCredentials, credentials
from twisted_exec.nodeserver.leaves.spec import LeafSpec
from twisted_exec.nodeserver.ownership import DEFAULT_ROOT, MACHINES, OwnershipRule
from twisted_exec.nodeserver.pod_fields import trim_leaf_pod
from twisted_exec.nodeserver.shared_parts import SharedParts
from twisted_exec.program.tasks import as_deferred

ASK_SECONDS = CONNECT_SECONDS
"""Timeout for requesting one Pod from a leaf."""

PATIENCE_SECONDS = 1.0
"""Grace period for missing credentials at the start, before the log mentions them."""


@dataclass(frozen=True)
class LeafContext:
    """Collaborators of every leaf."""

    root: IKubeClient
    roots: IRootPods
    clock: IReactorTime
    make_client: MakeKubeClient
    root_name: str = DEFAULT_ROOT


@implementer(ILeaf)
class Leaf:
    """A leaf described by a :class:`~twisted_exec.nodeserver.leaves.spec.LeafSpec`."""

    def __init__(self, spec: LeafSpec, context: LeafContext) -> None:
        self._context, self.spec = context, spec
        self.name, self._label = spec.name, f'leaf cluster "{spec.name}"'
        self._credentials = self._new_credentials()
        credentials = LateCredentials(
            self._label,
            self.config,
            moved=self._server_changed,
            reread=lambda refused: self._credentials.reread(refused),
        )
        self.client = context.make_client(credentials)
        self._ours = self._rule()
        self._by_uid: dict[str, set[Key]] = {}
        self._followers = Listeners(f"leaf cluster {spec.name}")
        self._stopping = StoppingParts()
        self._resuming: set[Reflector] = set()
        self._moving: IDelayedCall | None = None
        self._late: IDelayedCall | None = None
        self._running = False
        self._copies = self._new_copies()

    @property
    def nodes(self) -> Sequence[LeafNode]:
        return self.spec.nodes

    @property
    def machines(self) -> bool:
        return self.spec.policy == MACHINES

    @property
    def synced(self) -> bool:
        return all(copy.synced for copy in self._copies)

    @property
    def problem(self) -> str:
        problem = self._credentials.problem
        problem = problem or next((copy.problem for copy in self._copies if copy.problem), "")
        return problem or ("" if self.synced else "its Pods were not read yet")

    @property
    def gone(self) -> str:
        return self._credentials.gone

    def config(self) -> ClientConfig:
        return self._credentials.current()

    def namespace(self, root: str) -> str:
        """
        See :meth:`ILeaf.namespace`; raises ``NotFound`` if another namespace uses the counterpart.
        """
        return self._ours.names.namespace(root)

    def names(self, root: Object) -> tuple[str, str]:
        """See :meth:`ILeaf.names`; raises as :meth:`namespace`."""
        return self._ours.names.leaf(root)

    def root_names(self, namespace: str, name: str) -> tuple[str, str] | None:
        return self._ours.names.root(namespace, name)

    def marks(self, root: Object) -> Object:
        return self._ours.marks(root)

    def start(self) -> None:
        self._running = True
        self._credentials.start(self._try_again)
        if self._credentials.problem:
            # Reading a Secret takes a moment; until then its absence is no problem.
            self._late = self._context.clock.callLater(PATIENCE_SECONDS, self._start_copies)
        else:
            self._start_copies()

    def _start_copies(self) -> None:
        for copy in self._copies:
            copy.start()

    def stop(self) -> Deferred[Any]:
        """Stop; fires when nothing is under way."""
        self._running = False
        for call in (self._moving, self._late):
            if call is not None and call.active():
                call.cancel()
        self._stopping.add(self._credentials.stop())
        for copy in self._copies:
            self._stopping.add(copy.stop())
        self._stopping.add(self.client.close())
        return self._stopping.over()

    def become(self, spec: LeafSpec) -> None:
        """Apply another spec of the same name and origin."""
        before, self.spec = self.spec, spec
        if spec.kubeconfig != before.kubeconfig:
            self._stopping.add(self._credentials.stop())
            self._credentials = self._new_credentials(self._credentials)
            if self._running:
                self._credentials.start(self._try_again)
                self._try_again()
        ours = self._rule()
        if ours != self._ours:
            self._ours = ours
            self._start_over()

    @as_deferred
    async def pod(self, root: Object) -> LeafPod:
        namespace, name = self.names(root)
        copied = self._pod_in_copy(root)
        if copied is not None:
            namespace, name = key_of(copied)
        if copied is None or self.problem:
            copied = await self._request_pod(root, namespace, name)
        return LeafPod(self, namespace, name, root, copied)

    def pods(self) -> Iterable[LeafPod]:
        nodes = [node.name for node in self.nodes]
        # An empty list of Nodes would select the Pods of all Nodes.
        for root in self._context.roots.on(nodes) if nodes else ():
            pod = self._pod_in_copy(root)
            if pod is not None:
                yield LeafPod(self, *key_of(pod), root, pod)

    def strays(self) -> Iterable[Object]:
        if not self._context.roots.synced or not self.synced:
            return
        for uid, keys in list(self._by_uid.items()):
            if self._context.roots.by_uid(uid) is None:
                for namespace, name in sorted(keys):
                    pod = self._at(namespace, name)
                    if pod is not None:
                        yield pod

    def follow(self, changed: Callable[[str], None]) -> Callable[[], None]:
        return self._followers.add(changed)

    def _rule(self) -> OwnershipRule:
        spec = self.spec
        return OwnershipRule(self._context.root_name, spec.policy, spec.kosmos, spec.names)

    def _new_credentials(self, before: LeafCredentials | None = None) -> LeafCredentials:
        context = self._context
        return credentials(self.spec.kubeconfig, context.root, context.clock, before)

    def _new_copies(self) -> list[Reflector]:
        shared = SharedParts()
        return [
            Reflector(
                self.client,
                PODS.resource,
                self._context.clock,
                label_selector=selector,
                of=self._label,
                on_change=self._changed,
                trim=lambda pod: trim_leaf_pod(pod, shared),
            )
            for selector in self._ours.selectors
        ]

    def _server_changed(self) -> None:
        """Start over: the copies say nothing about the objects of another server."""
        # Not within the request that noticed it.
        self._moving = self._context.clock.callLater(0, self._start_over)

    def _start_over(self) -> None:
        for copy in self._copies:
            self._stopping.add(copy.stop())
        self._by_uid.clear()
        self._copies = self._new_copies()
        if self._running:
            for copy in self._copies:
                copy.start()

    def _try_again(self) -> None:
        for copy in self._copies:
            if (copy.problem or not copy.synced) and copy not in self._resuming:
                self._resuming.add(copy)
                self._stopping.add(copy.stop().addCallback(self._resume, copy))

    def _resume(self, _: object, copy: Reflector) -> None:
        self._resuming.discard(copy)
        if self._running and copy in self._copies:
            copy.start()

    def _at(self, namespace: str, name: str) -> Object | None:
        for copy in self._copies:
            pod = copy.get(name, namespace)
            if pod is not None:
                return pod
        return None

    def _pod_in_copy(self, root: Object) -> Object | None:
        try:
            expected = self.names(root)
        except NotFound:
            return None
        others = self._by_uid.get(root["metadata"].get("uid", ""), ())
        for namespace, name in (expected, *sorted(others)):
            pod = self._at(namespace, name)
            if pod is not None and self._ours.is_for(pod, root):
                return pod
        return None

    async def _request_pod(self, root: Object, namespace: str, name: str) -> Object:
        asking = self.client.get(PODS.resource, name, namespace)
        try:
            pod = trim_leaf_pod(await asking.addTimeout(ASK_SECONDS, self._context.clock))
        except TimeoutError:
            raise GatewayTimeout(
                f'{self._label} did not answer for pod "{namespace}/{name}" within '
                f"{ASK_SECONDS:g} seconds"
            ) from None
        except APIError as refused:
            if refused.code == NotFound.code:
                raise self._no_such_pod(root, "has no such pod") from None
            raise self._error_for_users(refused) from None
        if not self._ours.is_for(pod, root):
            raise self._no_such_pod(
                root, "has a pod of that name, but it was not made for this one"
            )
        return pod

    def _error_for_users(self, refused: APIError) -> APIError:
        log = "the node server's log says why"
        if refused.code in REFUSAL_CODES:
            return BadGateway(f"{self._label} refuses this node server; {log}")
        if self._credentials.problem:
            message = f'there are no credentials for leaf cluster "{self.name}"; {log}'
            return ServiceUnavailable(message)
        return named(refused, self._label)

    def _no_such_pod(self, root: Object, why: str) -> NotFound:
        metadata = root["metadata"]
        name_in_root = f'"{metadata.get("namespace", "")}/{metadata["name"]}"'
        message = f'pod {name_in_root} does not exist: leaf cluster "{self.name}" {why}'
        return NotFound("pods", metadata["name"], message=message)

    def _changed(self, before: Object | None, after: Object | None) -> None:
        uids = {self._update_index(pod) for pod in (before, after) if pod is not None}
        for uid in uids - {""}:
            self._followers.tell(uid)

    def _update_index(self, pod: Object) -> str:
        """Update the index; return the UID of the root's Pod that a Pod belongs to, or empty."""
        key, owner = key_of(pod), self._ours.owner(pod)
        if not owner:
            back = self._ours.names.root(*key)
            root = self._context.roots.seen(*back) if back is not None else None
            return str(root["metadata"].get("uid", "")) if root is not None else ""
        now = self._at(*key)
        keys = self._by_uid.setdefault(owner, set())
        if now is not None and self._ours.owner(now) == owner:
            keys.add(key)
        else:
            keys.discard(key)
        if not keys:
            del self._by_uid[owner]
        return owner
