"""
The space-aware client.

The client watches the Spaces and their Secrets in the cluster that has them, and sends no requests
to the Spaces themselves. As a Twisted service it starts and stops with its program::

    spaces = SpaceClient(KubeClient(load(), reactor), reactor, agent="my-program")
    spaces.setServiceParent(application)
    ...
    pods = await spaces.get("lab-7").list(PODS)

The connection to a Space (:class:`SpaceConnection`) survives a rotation of its credentials. A
Secret that is not usable leaves the last usable credentials in force.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.spaces import EXTERNAL, SPACES, VIEWPOINTS
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.control.listeners import Listeners
from twisted_exec.control.runs import StoppingParts
from twisted_exec.kube.client import MakeKubeClient, kube_client_factory
from twisted_exec.kube.informers import Reflector, key_of
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.late_credentials import LateCredentials
from twisted_exec.spaces.credentials import SecretRereader, SpaceCredentials, is_elsewhere
from twisted_exec.spaces.directory import Directory
from twisted_exec.spaces.interfaces import (
    ISpaceClient,
    ISpaceConnection,
    ISpaceListener,
    SpaceName,
    Waiting,
)
from twisted_exec.spaces.secrets import SpaceSecrets
from twisted_exec.spaces.space_view import SecretRef, SpaceView, view_of

AGENT = "twisted-exec-spaces"


class SpaceState:
    """
    State of one existing Space.

    :ivar exchanging: the credentials may be those of an earlier physical space.
    """

    def __init__(
        self,
        view: SpaceView,
        seconds: Callable[[], float],
        look_of: Callable[[SpaceState], SecretRereader],
    ) -> None:
        self.view = view
        self.credentials = SpaceCredentials(view.label, seconds)
        self.connection: SpaceConnection | None = None
        self.leads_to: ClientConfig | None = None
        self.exchanging = False
        self.exchange = look_of(self)

    @property
    def name(self) -> SpaceName:
        return self.view.name


@implementer(ISpaceClient)
class SpaceClient(Service):
    """
    See :class:`~twisted_exec.spaces.interfaces.ISpaceClient`.

    :param viewpoint: :data:`~twisted_exec.api.spaces.IN_CLUSTER` inside the cluster of the servers,
        :data:`~twisted_exec.api.spaces.EXTERNAL` elsewhere.
    :param namespaces: watch only these namespaces; empty means all.
    :param secrets_by_name: watch each Secret by name: expensive, but needs no access to others.
    :param hub: client of the cluster with the Spaces.
    :param agent: the ``User-Agent`` for the Spaces' servers.
    :param make_client: creates the clients of Spaces; for tests.
    """

    name = "spaces"
    _log = Logger()

    def __init__(
        self,
        hub: IKubeClient,
        reactor: Any,
        *,
        viewpoint: str = EXTERNAL,
        namespaces: Sequence[str] = (),
        secrets_by_name: bool = False,
        agent: str = AGENT,
        make_client: MakeKubeClient | None = None,
    ) -> None:
        if viewpoint not in VIEWPOINTS:
            raise ValueError(f"viewpoint {viewpoint!r} is neither of {', '.join(VIEWPOINTS)}")
        self._hub, self._reactor, self._viewpoint = hub, reactor, viewpoint
        self._namespaces = tuple(dict.fromkeys(namespaces)) or ("",)
        self._by_name = secrets_by_name
        self._make = make_client or kube_client_factory(reactor, agent)
        self._followers = Listeners("spaces")
        self._waiting: list[Deferred[None]] = []
        self._stopping = StoppingParts()
        self._begin()

    def _begin(self) -> None:
        self._spaces: Directory[SpaceState] = Directory()
        self._users: dict[SecretRef, dict[str, SpaceState]] = {}
        self._copies = [self._copy(each) for each in self._namespaces]
        self._secrets = SpaceSecrets(
            self._hub,
            self._reactor,
            self._namespaces,
            self._secret_changed,
            labelled=not self._by_name,
        )

    def _copy(self, namespace: str) -> Reflector:
        return Reflector(
            self._hub, SPACES, self._reactor, namespace=namespace, on_change=self._space_changed
        )

    def startService(self) -> None:
        """Watch Spaces and their Secrets until :meth:`stopService`."""
        super().startService()
        for each in self._copies:
            each.when_synced().addCallback(lambda _: self._tell_synced())
            each.start()
        self._secrets.start(self._tell_synced)

    def stopService(self) -> Deferred[Any]:
        """
        End all connections and watches.

        :return: fires when they have ended; never fails.
        """
        super().stopService()
        copies, secrets, spaces = self._copies, self._secrets, self._spaces
        self._begin()
        for each in copies:
            self._stopping.add(each.stop())
        self._stopping.add(secrets.stop())
        for followed in spaces:
            self._disengage(followed, "this program is stopping")
            self._stopping.add(followed.exchange.stop())
        return self._stopping.over()

    @property
    def synced(self) -> bool:
        return all(each.synced for each in self._copies) and self._secrets.synced

    @property
    def problem(self) -> str:
        problem = next((each.problem for each in self._copies if each.problem), "")
        problem = problem or self._secrets.troubles
        return f"the known spaces may be outdated: {problem}" if problem else ""

    def when_synced(self) -> Deferred[None]:
        if self.synced:
            return succeed(None)
        waiting: Deferred[None] = Deferred(lambda d: self._waiting.remove(d))
        self._waiting.append(waiting)
        return waiting

    def get(self, name: str, provider: str = "") -> IKubeClient:
        client: IKubeClient = self.connection(name, provider).client
        return client

    def connection(self, name: str, provider: str = "") -> ISpaceConnection:
        if not self.synced:
            raise ServiceUnavailable(self.problem or "the spaces have not been read yet")
        followed = self._spaces.find(name, provider)
        connection = followed.connection
        if connection is None:
            why = self._why_not(followed)
            raise ServiceUnavailable(f"{followed.view.label} cannot be reached: {why}")
        connection.config()
        return connection

    def all(self) -> Sequence[ISpaceConnection]:
        return [each.connection for each in self._spaces if each.connection is not None]

    def waiting(self) -> Sequence[Waiting]:
        return [
            Waiting(each.name, each.view.labels, self._why_not(each), each.view.secret is not None)
            for each in self._spaces
            if each.connection is None and not each.view.deleting
        ]

    def follow(self, listener: ISpaceListener) -> Callable[[], None]:
        def notify(method: str, *about: Any) -> None:
            getattr(listener, method)(*about)

        # In a list of its own, which logs what the listener raises.
        at_once = Listeners("spaces")
        at_once.add(notify)
        for connection in self.all():
            at_once.tell("engaged", connection)
        return self._followers.add(notify)

    def _tell_synced(self) -> None:
        if self.synced:
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                each.callback(None)

    def _space_changed(self, before: Object | None, after: Object | None) -> None:
        view = None if after is None else view_of(after, self._viewpoint)
        namespace, name = key_of(after or before or {})
        followed = self._spaces.at(name, namespace)
        waited = followed is None or followed.connection is None
        if view is None:
            if followed is not None:
                self._spaces.pop(name, namespace)
                self._let_go(followed, "it was deleted")
        elif followed is None:
            followed = SpaceState(view, self._reactor.seconds, self._look_of)
            self._spaces.put(followed)
            self._use(followed, None, view.secret)
        else:
            self._become(followed, view)
        if waited and followed is not None and followed.connection is None:
            self._followers.tell("waiting_changed")

    def _become(self, followed: SpaceState, view: SpaceView) -> None:
        before, followed.view = followed.view, view
        if view.deleting:
            self._disengage(followed, "it is being deleted")
        elif before.physical_uid and view.physical_uid not in ("", before.physical_uid):
            self._exchange(followed)
        connection = followed.connection
        if connection is not None and connection.labels != view.labels:
            connection.labels = view.labels
            self._followers.tell("changed", connection)
        self._use(followed, before.secret, view.secret)

    def _use(self, followed: SpaceState, before: SecretRef | None, ref: SecretRef | None) -> None:
        if ref != before:
            if ref is not None:
                self._users.setdefault(ref, {})[str(followed.name)] = followed
                self._secrets.add_user(ref)
            if before is not None:
                self._use_no_more(followed, before)
        self._read(followed)

    def _use_no_more(self, followed: SpaceState, ref: SecretRef) -> None:
        users = self._users.get(ref, {})
        if users.pop(str(followed.name), None) is not None:
            self._secrets.remove_user(ref)
        if not users:
            self._users.pop(ref, None)

    def _secret_changed(self, ref: SecretRef) -> None:
        for followed in list(self._users.get(ref, {}).values()):
            self._read(followed)

    def _read(self, followed: SpaceState) -> None:
        ref, credentials = followed.view.secret, followed.credentials
        others = False
        if ref is None:
            others = credentials.missing(followed.view.no_secret)
        elif (secret := self._secrets.get(ref)) is not None or self._secrets.is_gone(ref):
            others = credentials.watched(ref, secret)
        self._settle(followed, others=others)

    def _settle(self, followed: SpaceState, *, others: bool = False) -> None:
        config, view = followed.credentials.config, followed.view
        before, followed.leads_to = followed.leads_to, config or followed.leads_to
        if not view.physical_uid and before and config and is_elsewhere(before, config):
            self._disengage(followed, "its kubeconfig names another server now")
        usable = config is not None and not followed.exchanging
        if followed.connection is None:
            if view.ready and not view.deleting and usable:
                self._engage(followed)
        elif others:
            self._followers.tell("changed", followed.connection)

    def _exchange(self, followed: SpaceState) -> None:
        """
        Handle a Space that represents another physical space.

        Our Secret may still be the old space's, so it is reread first.
        """
        self._disengage(followed, "it represents another physical space now")
        followed.exchanging = True
        looking = followed.exchange.now()

        def looked(_: object) -> None:
            followed.exchanging = False
            if self._spaces.at(followed.name.name, followed.name.namespace) is followed:
                self._settle(followed)

        self._stopping.add(looking.addBoth(looked))

    def _look_of(self, followed: SpaceState) -> SecretRereader:
        def looked(ref: SecretRef, secret: Object) -> None:
            others = followed.credentials.looked(ref, secret)
            self._settle(followed, others=others)

        credentials = followed.credentials
        return SecretRereader(
            self._hub,
            self._reactor,
            secret=lambda: followed.view.secret,
            config=lambda: credentials.config,
            looked=looked,
        )

    def _engage(self, followed: SpaceState) -> None:
        followed.connection = connection = SpaceConnection(
            followed.view,
            followed.credentials,
            self._look_of(followed),
            self._make,
            partial(self._trouble, followed),
        )
        self._log.info("{space} is reachable", space=followed.view.label)
        self._followers.tell("engaged", connection)

    def _disengage(self, followed: SpaceState, reason: str) -> None:
        connection, followed.connection = followed.connection, None
        if connection is None:
            return
        self._log.info("{space} is gone: {why}", space=followed.view.label, why=reason)
        message = f"{followed.view.label} is gone: {reason}"
        self._stopping.add(connection.end(message))
        self._followers.tell("disengaged", connection, message)

    def _let_go(self, followed: SpaceState, reason: str) -> None:
        if followed.view.secret is not None:
            self._use_no_more(followed, followed.view.secret)
        self._disengage(followed, reason)
        self._stopping.add(followed.exchange.stop())

    def _trouble(self, followed: SpaceState) -> str:
        ref = followed.view.secret
        return "" if ref is None else self._secrets.problem(ref)

    def _why_not(self, followed: SpaceState) -> str:
        view = followed.view
        if view.deleting:
            return "it is being deleted"
        return view.why_not or self._trouble(followed) or followed.credentials.problem


@implementer(ISpaceConnection)
class SpaceConnection:
    """See :class:`~twisted_exec.spaces.interfaces.ISpaceConnection`."""

    def __init__(
        self,
        view: SpaceView,
        credentials: SpaceCredentials,
        look: SecretRereader,
        make: MakeKubeClient,
        trouble: Callable[[], str] = lambda: "",
    ) -> None:
        self.name, self.uid = view.name, view.uid
        self.labels: Mapping[str, str] = view.labels
        self._label, self._credentials, self._trouble = view.label, credentials, trouble
        self._look = look
        self._client = make(LateCredentials(view.label, self.config, reread=look))
        self.client: IKubeClient = self._client
        self._end_reason = ""
        self._waiting: list[Deferred[str]] = []

    @property
    def problem(self) -> str:
        if self._end_reason or self._credentials.config is not None:
            return self._end_reason
        return self._trouble() or self._credentials.problem

    def config(self) -> ClientConfig:
        config = self._credentials.config
        if self._end_reason or config is None:
            raise ServiceUnavailable(f"{self._label} cannot be reached: {self.problem}")
        return config

    def reread(self, refused: ClientConfig) -> Deferred[bool]:
        return self._look(refused)

    def when_gone(self) -> Deferred[str]:
        if self._end_reason:
            return succeed(self._end_reason)
        waiting: Deferred[str] = Deferred(lambda d: self._waiting.remove(d))
        self._waiting.append(waiting)
        return waiting

    def end(self, reason: str) -> Deferred[None]:
        """End the connection. Fires when that is done."""
        self._end_reason = reason
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(reason)
        ending = DeferredList([self._look.stop(), self._client.close()])
        return ending.addCallback(lambda _: None)
