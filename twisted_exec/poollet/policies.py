"""
Refusal of sessions under a ConsolePolicy at a poollet, unless an API server that evaluates it sends them.

The poollet evaluates no policy itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api import selectors
from twisted_exec.api.conditions import writers_of
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLEPOLICIES
from twisted_exec.api.status import APIError, Forbidden, NotFound, ServiceUnavailable
from twisted_exec.auth.console_rights import Decides
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.refusals import TAKEOVER_DENIED, RefusalLimit, TakeoverDenials
from twisted_exec.kube.informers import IStore, Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.recorder import Recorder
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.streaming.subject import Subject
from twisted_exec.wire.session_terms import FULL, Right, Terms

_POLICIES = CONSOLEPOLICIES.resource


class PoolPolicies:
    """
    The ConsolePolicies of a pool's machines.

    :ivar changed: is called when a policy may concern further machines.
    """

    def __init__(
        self, client: IKubeClient, clock: IReactorTime, dialect: Dialect, machines: IStore
    ) -> None:
        self._client, self._dialect, self._machines = client, dialect, machines
        self.changed: Callable[[], None] = lambda: None
        self._copy = Reflector(client, _POLICIES, clock, trim=_trim, on_change=self._policy_changed)

    @property
    def is_current(self) -> bool:
        return self._copy.synced and not self._copy.problem

    def stop(self) -> Deferred[None]:
        """Stop watching; fires when no request is in flight."""
        return self._copy.stop()

    async def open(self, machine: Object, server: str) -> SessionPolicies:
        """
        Check a new session, and watch the policies from now on.

        :param server: the user name of an API server that names no user; empty for a user.
        :raises APIError: a policy applies to the machine, or they cannot be read.
        """
        metadata = machine["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        session = SessionPolicies(self, namespace, name, metadata["uid"], server)
        try:
            listing = await self._client.list(_POLICIES, namespace)
        except NotFound:
            return session  # an API server without policies
        except APIError as refused:
            if refused.code != Forbidden.code:
                raise
            # RBAC answers 403 also for a group that the API server does not have.
            if _POLICIES.group not in await self._client.groups():
                return session
            raise ServiceUnavailable(
                "this poollet cannot tell whether ConsolePolicies apply: its role needs list and "
                f"watch on {_POLICIES.qualified}; or open the console at the API server"
            ) from None
        self._refuse(machine, listing["items"], server)
        self._copy.start()
        return session

    def review(self, session: SessionPolicies) -> None:
        machine = self._machines.get(session.name, session.namespace)
        if machine is None or machine["metadata"]["uid"] != session.uid:
            return  # its deletion ends the session
        self._refuse(machine, self._copy, session.server)

    def machine_changed(self, before: Object | None, after: Object | None) -> None:
        if before is None or after is None:
            return
        if before["metadata"].get("labels") == after["metadata"].get("labels"):
            return
        if any(_applies(policy, after) for policy in self._copy):
            self.changed()

    def _policy_changed(self, before: Object | None, after: Object | None) -> None:
        if after is not None:
            self.changed()

    def _refuse(self, machine: Object, policies: Iterable[Object], server: str) -> None:
        for policy in policies:
            if not _applies(policy, machine):
                continue
            metadata = machine["metadata"]
            policy_name = f"{metadata['namespace']}/{policy['metadata']['name']}"
            where = "at the API server, which evaluates the policy"
            if server:
                where = f"through exec-apiserver: {server!r} does not evaluate the policy"
            raise Forbidden(
                f'{self._dialect.noun} "{metadata["name"]}" is under ConsolePolicy '
                f'"{policy_name}": open its console {where}'
            )


@dataclass(frozen=True)
class SessionPolicies:
    """The policies of the machine of one session, for its reviews."""

    policies: PoolPolicies
    namespace: str
    name: str
    uid: str
    server: str = ""

    def is_strict(self, user: User) -> bool:
        return False

    def terms(self, user: User, right: Right) -> Terms:
        self.policies.review(self)
        return Terms(right=right)

    async def review(self, gate: Decides, user: User) -> Terms:
        self.policies.review(self)
        return FULL


def _applies(policy: Object, machine: Object) -> bool:
    metadata = machine["metadata"]
    if policy["metadata"]["namespace"] != metadata["namespace"]:
        return False
    try:
        selector = selectors.of_object((policy.get("spec") or {}).get("selector"))
        return bool(selector.matches(metadata.get("labels") or {}))
    except ValueError:
        return True  # of another release


def _trim(policy: Object) -> Object:
    metadata = policy["metadata"]
    return {
        "metadata": {key: metadata[key] for key in ("name", "namespace", "uid") if key in metadata},
        "spec": {"selector": (policy.get("spec") or {}).get("selector")},
    }


class Denials:
    """
    Records the take-overs that the poollet denies, as audit records and as Events of the machine.

    :param seconds: returns the time, by a monotonic clock.
    """

    def __init__(
        self, sessions: Sessions, recorder: Recorder, seconds: Callable[[], float]
    ) -> None:
        self._sessions, self._recorder = sessions, recorder
        self._denials = TakeoverDenials(sessions.trail, RefusalLimit(seconds))

    def count(self, subject: Subject) -> bool:
        """Count a denial; return whether to record it."""
        return self._denials.count(subject)

    def record(self, subject: Subject, machine: Object | None, message: str) -> None:
        """Record a denied take-over."""
        if machine is None:
            self._denials.record(subject, "", (), message)
            return
        writers = self._users(writers_of(machine) or ())
        text = self._denials.record(subject, machine["metadata"]["uid"], writers, message)
        self._recorder.record(machine, "Warning", TAKEOVER_DENIED, text)

    def _users(self, sessions: Collection[str]) -> list[str]:
        several = (self._sessions.with_id(each) for each in sessions)
        return [session.subject.user for each in several for session in each]
