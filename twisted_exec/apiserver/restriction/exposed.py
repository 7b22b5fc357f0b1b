"""
Machines that are shown to another cluster, and to whom.

A cluster whose node server stands before our machines forwards nobody's identity: all of its users are
one here.  No Role can say what that one may, "those machines whose owner wants it", for rules know kinds
and names and no labels.  So it is said here: who is in the group :data:`~twisted_exec.auth.groups.EXPOSED`
may look at machines with the label :data:`~twisted_exec.api.kinds.pods.machine_pods.EXPOSED_LABEL`, open their consoles and read their logs, and
nothing else of any machine, whatever roles they are bound to besides.

It is the machine that says it, each time that it is asked about.  When it says so no longer, its sessions
are asked about again at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import PODS, Object
from twisted_exec.api.kinds.pods.machine_pods import EXPOSED_LABEL
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import NotFound
from twisted_exec.apiserver.interfaces import Change
from twisted_exec.apiserver.restriction.visibility import FixedVisibility
from twisted_exec.auth.groups import EXPOSED
from twisted_exec.auth.interfaces import Attributes, Decision, IRulesAuthorizer, User
from twisted_exec.auth.rbac.rules import Rule
from twisted_exec.storage.follower import Followed, StoreFollower
from twisted_exec.storage.interfaces import DELETED, Event, IStorage

VALUE = "true"

_OF_ONE: Mapping[str, str] = {"": "get", "exec": "create", "log": "get"}
"""By a machine's subresource: the one verb that its members have."""
_OF_ALL = ("list", "watch")


def is_exposed(obj: Object) -> bool:
    """Whether a machine, or the Pod as which it is shown, has the label."""
    return bool(obj["metadata"].get("labels", {}).get(EXPOSED_LABEL) == VALUE)


class ExposedRestriction:
    """
    Limits lists and watches of members of the group to exposed machines.

    :param pods_view: machines are shown as Pods as well.
    """

    def __init__(self, dialects: Sequence[Dialect], *, pods_view: bool) -> None:
        resources = [each.workload for each in dialects] + [PODS.resource] * pods_view
        self._resources = {(each.group, each.plural): each for each in resources}

    def decide(self, attributes: Attributes) -> Decision | None:
        """Decide about a request, see :class:`~twisted_exec.apiserver.restriction.restrictions.Restriction`."""
        resource = self._resources.get((attributes.group, attributes.resource))
        if resource is None or EXPOSED not in attributes.user.groups:
            return None
        if attributes.verb not in _OF_ALL:
            return None
        return Decision(True, visibility=FixedVisibility(is_exposed, partial(_not_found, resource)))

    async def admit(self, change: Change) -> None:
        """Roles and :class:`ExposedAuthorizer` decide about writes."""


def _not_found(resource: Resource, obj: Object) -> NotFound:
    return NotFound(resource.plural, obj["metadata"]["name"], resource.group)


@implementer(IRulesAuthorizer)
class ExposedAuthorizer(StoreFollower):
    """
    Decides about machines for members of the group; about all else, and for all others, another does.

    :param authorizer: that other one.
    :param storage: has the machines; started before this service is.
    :ivar changed: called when a machine is exposed no longer.
    """

    def __init__(
        self, authorizer: IRulesAuthorizer, storage: IStorage, dialects: Sequence[Dialect]
    ) -> None:
        super().__init__(storage)
        self._authorizer = authorizer
        self._machines: dict[tuple[str, str], Resource] = {
            (each.group, each.workload.plural): each.workload for each in dialects
        }
        self.changed: Callable[[], None] = lambda: None

    def followed(self) -> list[Followed]:
        """See :meth:`StoreFollower.followed`."""
        return [Followed(resource, self._happened) for resource in self._machines.values()]

    def _happened(self, event: Event) -> None:
        was = event.previous is not None and is_exposed(event.previous)
        if was and (event.type == DELETED or not is_exposed(event.obj)):
            self.changed()

    def authorize(self, attributes: Attributes) -> Deferred[Decision]:
        """As :meth:`IAuthorizer.authorize`."""
        resource = self._machines.get((attributes.group, attributes.resource))
        if resource is None or EXPOSED not in attributes.user.groups:
            decided: Deferred[Decision] = self._authorizer.authorize(attributes)
            return decided
        return Deferred.fromCoroutine(self._decide(attributes, resource))

    async def _decide(self, asked: Attributes, resource: Resource) -> Decision:
        told = f"members of {EXPOSED} may only look at {resource.plural} with the label "
        told += f"{EXPOSED_LABEL}={VALUE}, open their consoles and read their logs"
        if asked.verb in _OF_ALL and not asked.subresource:
            return Decision(True, told)  # lists and watches show them no others
        if asked.verb != _OF_ONE.get(asked.subresource) or not asked.name:
            return Decision(False, told)
        exposed = await self._is_exposed(asked, resource)
        # As one that is not there: whoever asks learns nothing of it, and need not think that a
        # right is missing.
        return Decision(exposed, told, hidden=not exposed)

    async def _is_exposed(self, asked: Attributes, resource: Resource) -> bool:
        try:
            found = await self._storage.get(resource, asked.namespace, asked.name)
        except NotFound:
            return False
        return is_exposed(found)

    def rules_for(self, user: User, namespace: str) -> Deferred[tuple[Rule, ...]]:
        """
        As :meth:`IRulesAuthorizer.rules_for`.

        What a member may cannot be said as a rule: none that says something about machines is told.
        """
        found: Deferred[tuple[Rule, ...]] = self._authorizer.rules_for(user, namespace)
        if EXPOSED not in user.groups:
            return found
        return found.addCallback(lambda rules: tuple(filter(self._is_of_others, rules)))

    def _is_of_others(self, rule: Rule) -> bool:
        groups = {group for group, _ in self._machines} | {"*"}
        plurals = {plural for _, plural in self._machines} | {"*"}
        told = {each.partition("/")[0] for each in rule.resources}
        return groups.isdisjoint(rule.api_groups) or plurals.isdisjoint(told)
