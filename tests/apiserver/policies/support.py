"""
An API server in memory with ConsolePolicies and ConsoleRequests.
"""

from __future__ import annotations

from typing import Any

from tests.apiserver.support import APITestCase
from twisted_exec.api.kinds import Object

GROUP = "/apis/console.twisted-exec.dev/v1alpha1/namespaces/default"
POLICIES = f"{GROUP}/consolepolicies"
REQUESTS = f"{GROUP}/consolerequests"


def policy(name: str = "p", **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": spec}


class PolicyTestCase(APITestCase):
    """A namespace with a machine, jane who may use consoles, and bob who may approve."""

    def setUp(self) -> None:
        super().setUp()
        self.make_pool("pool-a")
        self.machine = self.make_machine("vm-1")
        self.bind("jane", "edit")
        self.bind("bob", "admin")

    def make_policy(self, name: str = "p", **spec: Any) -> Object:
        made: Object = self.answer("POST", POLICIES, policy(name, **spec), code=201)
        return made
