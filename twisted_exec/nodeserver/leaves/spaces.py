"""
Leaves from Spaces.

Leaf and Node have the name of the Space, or that of its label
:data:`~twisted_exec.api.spaces.LEAF_LABEL`. From engagement to disengagement a Space is one leaf,
even with new credentials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api import names, spaces
from twisted_exec.kube.client import MakeKubeClient
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.nodeserver import PROGRAM
from twisted_exec.nodeserver.interfaces import LeafNode
from twisted_exec.nodeserver.leaves.settings import SpaceChoice
from twisted_exec.nodeserver.leaves.spec import (
    CLUSTER,
    ISource,
    KubeconfigData,
    KubeconfigSpace,
    LeafSpec,
)
from twisted_exec.nodeserver.ownership import POLICIES
from twisted_exec.spaces.client import SpaceClient
from twisted_exec.spaces.interfaces import ISpaceConnection, ISpaceListener, SpaceName

SPACE_ANNOTATION = spaces.SPACE_LABEL
"""Annotation of a Node: the Space that it stands for, as ``PROVIDER/NAME``."""


def space_client(
    choice: SpaceChoice, client: IKubeClient, reactor: Any, make_client: MakeKubeClient
) -> SpaceClient:
    """Return a client that watches the Spaces."""
    return SpaceClient(
        client,
        reactor,
        viewpoint=choice.viewpoint,
        namespaces=[spaces.namespace_of(each) for each in choice.providers],
        agent=PROGRAM,
        make_client=make_client,
    )


@implementer(ISource, ISpaceListener)
class SpaceLeaves:
    """
    The leaves of a client that watches the Spaces.
    """

    _log = Logger()

    def __init__(self, client: SpaceClient, choice: SpaceChoice) -> None:
        self._client, self._choice = client, choice
        self._there: dict[ISpaceConnection, tuple[KubeconfigSpace, str]] = {}
        self._engagements = 0
        self._complaints: dict[SpaceName, str] = {}
        self._notify: Callable[[], None] = lambda: None
        self._unfollow: Callable[[], None] = lambda: None

    @property
    def synced(self) -> bool:
        return self._client.synced

    @property
    def problem(self) -> str:
        return self._client.problem or next(iter(self._complaints.values()), "")

    def specs(self) -> Sequence[LeafSpec]:
        before, self._complaints = self._complaints, {}
        specs = [
            self._spec(space.name, space.labels, *entry) for space, entry in self._there.items()
        ]
        for waiting in self._client.waiting():
            if waiting.credentials:
                kubeconfig = KubeconfigData(
                    b"", f"space {waiting.name}", f"space {waiting.name}: {waiting.why}", False
                )
                specs.append(
                    self._spec(
                        waiting.name, waiting.labels, kubeconfig, f"space {waiting.name}, waiting"
                    )
                )
        for name, complaint in self._complaints.items():
            if complaint != before.get(name):
                self._log.warn("{complaint}", complaint=complaint)
        return [each for each in specs if each is not None]

    def start(self, changed: Callable[[], None]) -> None:
        self._notify = changed
        self._unfollow = self._client.follow(self)
        self._client.startService()
        self._client.when_synced().addCallbacks(self._known, lambda _: None)

    def _known(self, _: object) -> None:
        self._notify()
        if not self.specs():
            # A misspelt name looks just like this.
            of = ", ".join(self._choice.providers)
            self._log.info(
                "no Space{of} is a leaf cluster yet; each that appears becomes one",
                of=f" of provider {of}" if of else "",
            )

    def stop(self) -> Deferred[Any]:
        self._unfollow()
        return maybeDeferred(self._client.stopService)

    def engaged(self, space: ISpaceConnection) -> None:
        self._engagements += 1
        origin = f"{space.name}, since engagement {self._engagements}"
        self._there[space] = KubeconfigSpace(space), f"space {origin}"
        self._notify()

    def changed(self, space: ISpaceConnection) -> None:
        self._there[space][0].changed()
        self._notify()

    def waiting_changed(self) -> None:
        self._notify()

    def disengaged(self, space: ISpaceConnection, reason: str) -> None:
        kubeconfig, _ = self._there.pop(space)
        kubeconfig.gone = reason
        self._notify()

    def _spec(
        self,
        space: SpaceName,
        labels: Mapping[str, str],
        kubeconfig: KubeconfigSpace | KubeconfigData,
        origin: str,
    ) -> LeafSpec | None:
        if not self._choice.selector.matches(labels):
            return None
        if self._choice.providers and space.provider not in self._choice.providers:
            return None  # an imported Space in a provider's namespace
        if complaint := _complaint(space, labels):
            self._complaints[space] = complaint
            return None
        name = labels.get(spaces.LEAF_LABEL) or space.name
        node = LeafNode(name, name, CLUSTER, annotations={SPACE_ANNOTATION: str(space)})
        policy = labels.get(spaces.PODS_LABEL) or self._choice.policy
        return LeafSpec(name, origin, kubeconfig, (node,), policy=policy)


def _complaint(space: SpaceName, labels: Mapping[str, str]) -> str:
    name = labels.get(spaces.LEAF_LABEL) or space.name
    for problem in names.dns_subdomain(name):
        return f'space "{space}": label {spaces.LEAF_LABEL}: {name!r}: {problem}'
    policy = labels.get(spaces.PODS_LABEL, "")
    if policy and policy not in POLICIES:
        choices = ", ".join(POLICIES)
        return f'space "{space}": label {spaces.PODS_LABEL}: {policy!r} is none of {choices}'
    return ""
