"""
Machines that are exposed to another cluster, and the users who may see them.

Members of the group :data:`~twisted_exec.api.users.EXPOSED` may read the machines with the label
:data:`~twisted_exec.api.kinds.pods.machine_pods.EXPOSED_LABEL`, use their consoles and read their logs,
without any role. They may do nothing else with any machine, whatever their roles allow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import PODS, Object
from twisted_exec.api.kinds.pods.machine_pods import EXPOSED_LABEL
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import NotFound
from twisted_exec.api.users import EXPOSED
from twisted_exec.apiserver.interfaces import Change
from twisted_exec.apiserver.restriction.visibility import FixedVisibility
from twisted_exec.auth.console_rights import VERBS
from twisted_exec.auth.interfaces import Decision, IRulesAuthorizer, User
from twisted_exec.auth.rules import CONSOLE, Attributes, Rule
from twisted_exec.storage.follower import Followed, StoreFollower
from twisted_exec.storage.interfaces import DELETED, Event, IStorage

VALUE = "true"

_OF_ONE: Mapping[str, Collection[str]] = {
    "": ("get",),
    "exec": ("create",),
    "log": ("get",),
    CONSOLE: VERBS,
}
"""The verbs that members have on one machine, by subresource."""
_COLLECTION_VERBS = ("list", "watch")


def is_exposed(obj: Object) -> bool:
    """Return whether a machine, or the Pod as which it is shown, has the label."""
    return bool(obj["metadata"].get("labels", {}).get(EXPOSED_LABEL) == VALUE)


class ExposedRestriction:
    """Limits members of the group to exposed machines."""

    groups: Collection[str] = (EXPOSED,)
    prefixes: Collection[str] = ()

    def __init__(self, dialects: Sequence[Dialect], *, pods_view: bool) -> None:
        self._machines = {(each.group, each.workload.plural): each.workload for each in dialects}
        self._pods_view = pods_view

    def decide(self, attributes: Attributes) -> Decision | None:
        if EXPOSED not in attributes.user.groups:
            return None
        key = (attributes.group, attributes.resource)
        resource = self._machines.get(key)
        if resource is not None:
            if _is_read(attributes):
                return _exposed_only(resource)
            return Decision(False, _explanation(resource))
        pods = PODS.resource
        if self._pods_view and key == (pods.group, pods.plural) and not attributes.subresource:
            return _exposed_only(pods)
        return None

    async def admit(self, change: Change) -> None:
        """Members write no machines, see :meth:`decide`."""


def _is_read(attributes: Attributes) -> bool:
    if attributes.verb in _COLLECTION_VERBS and not attributes.subresource:
        return True
    return bool(attributes.name) and attributes.verb in _OF_ONE.get(attributes.subresource, ())


def _explanation(resource: Resource) -> str:
    return (
        f"members of {EXPOSED} may only look at {resource.plural} with the label "
        f"{EXPOSED_LABEL}={VALUE}, open their consoles and read their logs"
    )


def _exposed_only(resource: Resource) -> Decision:
    def refusal(obj: Object) -> NotFound:
        return NotFound(resource.plural, obj["metadata"]["name"], resource.group)

    return Decision(True, visibility=FixedVisibility(is_exposed, refusal))


@implementer(IRulesAuthorizer)
class ExposedAuthorizer(StoreFollower):
    """
    Allows members of the group :data:`~twisted_exec.api.users.EXPOSED` to use exposed machines.

    It has no work queue: the right ends with the change of the machine itself.

    :ivar changed: called when a machine is no longer exposed.
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
        return [Followed(resource, self._happened) for resource in self._machines.values()]

    def _happened(self, event: Event) -> None:
        was = event.previous is not None and is_exposed(event.previous)
        if was and (event.type == DELETED or not is_exposed(event.obj)):
            self.changed()

    def authorize(self, attributes: Attributes) -> Deferred[Decision]:
        resource = self._machines.get((attributes.group, attributes.resource))
        if resource is None or EXPOSED not in attributes.user.groups:
            decided: Deferred[Decision] = self._authorizer.authorize(attributes)
            return decided
        return Deferred.fromCoroutine(self._decide(attributes, resource))

    async def _decide(self, attributes: Attributes, resource: Resource) -> Decision:
        reason = _explanation(resource)
        if not _is_read(attributes):
            return Decision(False, reason)
        if attributes.verb in _COLLECTION_VERBS:
            return Decision(True, reason)  # the restriction leaves out the others
        exposed = await self._is_exposed(attributes, resource)
        # 404 and not 403: a member cannot tell which other machines there are.
        return Decision(exposed, reason, hidden=not exposed)

    async def _is_exposed(self, attributes: Attributes, resource: Resource) -> bool:
        try:
            machine = await self._storage.get(resource, attributes.namespace, attributes.name)
        except NotFound:
            return False
        return is_exposed(machine)

    def rules_for(self, user: User, namespace: str) -> Deferred[tuple[Rule, ...]]:
        rules: Deferred[tuple[Rule, ...]] = self._authorizer.rules_for(user, namespace)
        if EXPOSED not in user.groups:
            return rules
        return rules.addCallback(lambda rules: tuple(filter(self._is_of_others, rules)))

    def _is_of_others(self, rule: Rule) -> bool:
        groups = {group for group, _ in self._machines} | {"*"}
        plurals = {plural for _, plural in self._machines} | {"*"}
        resources = {each.partition("/")[0] for each in rule.resources}
        return groups.isdisjoint(rule.api_groups) or plurals.isdisjoint(resources)
