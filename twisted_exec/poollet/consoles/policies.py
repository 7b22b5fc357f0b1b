"""
ConsolePolicies at a poollet, which evaluates none: it refuses sessions that come without an API server
that does.

These are sessions of users who connect to the poollet directly, and of an API server of another make
that names no users.  The poollet lists the policies when such a session is opened.  From then on it
watches them, and a change that concerns a machine is a hint for the session guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api import selectors
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLEPOLICIES
from twisted_exec.api.status import APIError, Forbidden, NotFound, ServiceUnavailable
from twisted_exec.auth.console_rights import Decides
from twisted_exec.auth.interfaces import User
from twisted_exec.kube.informers.reflector import IStore, Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.wire.session_terms import FULL, Right, Terms

_POLICIES = CONSOLEPOLICIES.resource


class PoolPolicies:
    """
    The ConsolePolicies of a pool's machines.

    :param machines: the pool's Machines, as last seen.
    :ivar changed: is called when a policy may concern a machine that it did not concern before.
    """

    def __init__(
        self, client: IKubeClient, clock: IReactorTime, dialect: Dialect, machines: IStore
    ) -> None:
        self._client, self._dialect, self._machines = client, dialect, machines
        self.changed: Callable[[], None] = lambda: None
        self._copy = Reflector(client, _POLICIES, clock, trim=_trim, on_change=self._policy_changed)

    @property
    def is_current(self) -> bool:
        """Return whether changes of policies are observed now."""
        return self._copy.synced and not self._copy.problem

    def stop(self) -> Deferred[None]:
        """Stop watching; fires when no request is in flight."""
        return self._copy.stop()

    async def open(self, machine: Object, server: str) -> SessionPolicies:
        """
        Check a new session, and watch the policies from now on.

        :param server: the user name of an API server that names no user; empty for a user.
        :return: the conditions for reviews of the session.
        :raises Forbidden: a policy applies to the machine.
        :raises ServiceUnavailable: this poollet may not read them.
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
        """:raises Forbidden: a policy applies to the machine of a session now."""
        machine = self._machines.get(session.name, session.namespace)
        if machine is None or machine["metadata"]["uid"] != session.uid:
            return  # its deletion ends the session
        self._refuse(machine, self._copy, session.server)

    def machine_changed(self, before: Object | None, after: Object | None) -> None:
        """Take note of a change of a machine."""
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
    """
    The policies of the machine of one session, for its reviews.

    It is :class:`~twisted_exec.auth.console_rights.Conditions`, and the access of an API server that
    names no user.

    :param server: the name of that API server; empty for a user.
    """

    policies: PoolPolicies
    namespace: str
    name: str
    uid: str
    server: str = ""

    def is_strict(self) -> bool:
        """As :meth:`~twisted_exec.auth.console_rights.Conditions.is_strict`."""
        return False

    def terms(self, right: Right) -> Terms:
        """As :meth:`~twisted_exec.auth.console_rights.Conditions.terms`."""
        self.policies.review(self)
        return Terms(right=right)

    async def review(self, gate: Decides, user: User) -> Terms:
        """As :meth:`~twisted_exec.auth.console_rights.Access.review`."""
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
        return True  # of a later release


def _trim(policy: Object) -> Object:
    """Return the part of a policy that says to which machines it applies."""
    metadata = policy["metadata"]
    return {
        "metadata": {key: metadata[key] for key in ("name", "namespace", "uid") if key in metadata},
        "spec": {"selector": (policy.get("spec") or {}).get("selector")},
    }
