"""A target of the broker that is a Space."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, DeferredList, maybeDeferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.status import APIError, ServiceUnavailable
from twisted_exec.control.backoff import Backoff
from twisted_exec.kube.client import MakeKubeClient
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.late_credentials import LateCredentials
from twisted_exec.spaces.client import SpaceClient
from twisted_exec.spaces.interfaces import ISpaceConnection, ISpaceListener, SpaceName
from twisted_exec.spaces.lookup import find_space

LOOKUP_SECONDS = 5.0
"""Longest interval between lookups while the Space does not exist."""

MakeSpaceClient = Callable[[Sequence[str]], SpaceClient]
"""Creates a client that watches these namespaces; empty for all."""


def _nothing(*_: object) -> None:
    pass


@implementer(ISpaceListener)
class SpaceTarget:
    """
    Follows one Space, the target of a broker.

    The Space is looked up by name once and then fixed, even if another provider gets a Space of the
    same name.

    :ivar available: called with true when there is a new server, and with false when the Space has
        changed.
    :ivar lost: called with the reason when the Space has disappeared.
    """

    _log = Logger()

    def __init__(
        self,
        hub: IKubeClient,
        make_spaces: MakeSpaceClient,
        name: str,
        provider: str,
        make: MakeKubeClient,
        clock: IReactorTime,
    ) -> None:
        self._hub, self._make_spaces, self._clock = hub, make_spaces, clock
        self._reference = (name, provider)
        self._spaces: SpaceClient | None = None
        self._finding: Deferred[None] | None = None
        self._not_found = ""
        self._label = f'space "{provider}/{name}"' if provider else f'space "{name}"'
        self._client = make(
            LateCredentials(self._label, self.config, moved=self._moved, reread=self._reread)
        )
        self.client: IKubeClient = self._client
        self.available: Callable[[bool], None] = _nothing
        self.lost: Callable[[str], None] = _nothing
        self._name: SpaceName | None = None
        self._space: ISpaceConnection | None = None
        self._loss = ""
        self._unfollow: Callable[[], None] = _nothing

    def start(self) -> None:
        self._finding = Deferred.fromCoroutine(self._begin()).addErrback(self._ended)

    def stop(self) -> Deferred[Any]:
        """:return: fires when no request is pending; never fails."""
        self._unfollow()
        ending = [self._client.close()]
        finding, self._finding = self._finding, None
        if finding is not None:
            finding.cancel()
            ending.append(finding)
        if self._spaces is not None:
            ending.append(maybeDeferred(self._spaces.stopService))
        return DeferredList(ending, consumeErrors=True)

    async def _begin(self) -> None:
        namespaces = [await self._namespace()] if self._reference[1] else []
        self._spaces = spaces = self._make_spaces(namespaces)
        self._unfollow = spaces.follow(self)
        spaces.startService()
        spaces.when_synced().addCallbacks(lambda _: self._first_lookup(), _nothing)

    async def _namespace(self) -> str:
        # Not a PokedLoop: it is the first step of the start, and ends with its answer.
        backoff = Backoff(longest_seconds=LOOKUP_SECONDS)
        while True:
            try:
                space = await find_space(self._hub, *self._reference)
            except APIError as error:
                if error.message != self._not_found:
                    self._log.warn("{why}; waiting for it", why=error.message)
                self._not_found = error.message
            else:
                return space.name.namespace
            await deferLater(self._clock, backoff.pause())

    def _ended(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._not_found = "the lookup failed; see the log"
            self._log.failure("looking up {label} failed", failure, label=self._label)

    @property
    def problem(self) -> str:
        return str(self._space.problem) if self._space is not None else self._why()

    def config(self) -> ClientConfig:
        """Return the current address and credentials."""
        if self._space is None:
            raise ServiceUnavailable(self._why())
        return self._space.config()

    def engaged(self, space: ISpaceConnection) -> None:
        self._look_up()

    def changed(self, space: ISpaceConnection) -> None:
        if space is self._space:
            self.available(False)

    def waiting_changed(self) -> None:
        """Do nothing: :attr:`problem` reads the current reason."""

    def disengaged(self, space: ISpaceConnection, reason: str) -> None:
        if space is self._space:
            self._space, self._loss = None, reason
            self.lost(reason)

    def _first_lookup(self) -> None:
        self._look_up()
        if self._space is None:  # possibly misspelt; log it, for no request reports it yet
            self._log.warn("{why}; waiting for it", why=self._why())

    def _look_up(self) -> None:
        if self._space is None:
            self._space = self._lookup()
            if self._space is not None:
                self._name = self._space.name
                self.available(True)

    def _lookup(self) -> ISpaceConnection | None:
        if self._spaces is None:
            return None
        if self._name is not None:
            return next((each for each in self._spaces.all() if each.name == self._name), None)
        try:
            return self._spaces.connection(*self._reference)
        except APIError:
            return None  # _why returns the reason

    def _why(self) -> str:
        if self._spaces is None:
            return self._not_found or f"{self._label} was not looked up yet"
        if self._name is None:
            try:
                self._spaces.connection(*self._reference)
            except APIError as error:
                return error.message
            return f"{self._label} was not checked yet"
        for each in self._spaces.waiting():
            if each.name == self._name:
                return f"{self._label} cannot be reached: {each.why}"
        return self._loss

    def _moved(self) -> None:
        self.available(True)

    def _reread(self, refused: ClientConfig) -> Deferred[bool]:
        return succeed(False) if self._space is None else self._space.reread(refused)
