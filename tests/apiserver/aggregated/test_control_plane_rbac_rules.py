"""
Tests for :mod:`twisted_exec.apiserver.aggregated.control_plane`.
"""

from __future__ import annotations

from tests.apiserver.aggregated.support import Host
from tests.apiserver.aggregated.test_control_plane import MACHINES, BehindCase, told
from tests.audits import AuditList
from tests.chain import begin, reactor
from twisted_exec.api import kinds
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.apiserver.aggregated.admission.objects import FOLLOWED
from twisted_exec.apiserver.aggregated.control_plane import cluster_rules, namespaced_rules
from twisted_exec.apiserver.aggregated.trust import CONFIGMAPS
from twisted_exec.apiserver.controllers.leader_election import LEASE
from twisted_exec.apiserver.service import APIServer
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.rules import Attributes, Rule
from twisted_exec.storage.memory import MemoryStorage

OF_THE_HOST = (
    Rule(("create",), ("*",), ("tokenreviews", "subjectaccessreviews")),
    Rule(("get", "list", "watch"), ("",), ("configmaps",)),
)
"""Roles of the host's own: ``system:auth-delegator`` and, in kube-system, the ConfigMap's reader."""
SELECTED = {("kube-system", "leases"): LEASE}
"""What lists and watches there select by name, which the host in memory does not note."""

_KINDS = (kinds.LEASES, kinds.EVENTS, kinds.TOKENREVIEWS, kinds.SUBJECTACCESSREVIEWS)
RESOURCES = [
    CONFIGMAPS,
    *(kind.resource for kind in _KINDS),
    *(resource for versions in FOLLOWED for resource in versions),
]


class NeedsTests(BehindCase):
    """A server with several replicas, whose host records requests."""

    async def setUp(self) -> None:
        self.host, self.audit = Host(), AuditList()
        self.host.say(told())
        self.storage = MemoryStorage()
        self.storage.exclusive = False
        self.server = APIServer(self.settings(), self.storage, self.audit, reactor)
        await begin(self.server, self.addCleanup)
        self.admin = self.client("admin")

    async def test_nothing_else(self) -> None:
        """Every request of a server to its host is allowed by the server's roles."""
        await self.until(lambda: self.server.is_leading)
        await self.make_machine("vm", "")
        await self.until(lambda: ("create", "events") in self.asked())
        self.host.tokens["t"] = {"username": "bot"}
        await self.ask(MACHINES, [(b"Authorization", b"Bearer t")], user="")
        await self.ask(MACHINES)
        self.assertLess({("create", "tokenreviews"), ("watch", "configmaps")}, self.asked())
        for verb, plural, namespace, name in self.host.cluster.requests:
            asked = f"{verb} {plural} {namespace}/{name}"
            self.assertTrue(self.is_allowed(verb, plural, namespace, name), asked)

    def asked(self) -> set[tuple[str, str]]:
        return {(verb, plural) for verb, plural, *_ in self.host.cluster.requests}

    def is_allowed(self, verb: str, plural: str, namespace: str, name: str) -> bool:
        rules = [*cluster_rules(), *OF_THE_HOST]
        rules += dict(namespaced_rules([IRONCORE])).get(namespace, ())
        group = next(each.group for each in RESOURCES if each.plural == plural)
        if verb in ("list", "watch"):
            name = SELECTED.get((namespace, plural), "")
        asked = Attributes(User("server"), verb, group, resource=plural, name=name)
        return any(rule.allows(asked) for rule in rules)
