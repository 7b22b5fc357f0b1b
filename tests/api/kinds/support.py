"""
Objects of one kind, created and updated on the way into the store.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api import strategy
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.status import Invalid


class KindTestCase(SynchronousTestCase):
    """Creates and updates objects of one kind."""

    kind: Kind

    def create(self, **more: Any) -> Object:
        body = {"metadata": {"name": "a"}, **more}
        namespace = "default" if self.kind.resource.namespaced else ""
        obj = strategy.for_create(self.kind, body, namespace=namespace, now=0)
        obj["metadata"]["resourceVersion"] = "1"
        return obj

    def refused(self, **more: Any) -> list[str]:
        with self.assertRaises(Invalid) as caught:
            self.create(**more)
        return [
            f"{cause['field']}: {cause['message']}" for cause in caught.exception.details["causes"]
        ]

    def update(self, old: Object, **change: Any) -> Object:
        return strategy.for_update(self.kind, {**old, **change}, old)

    def update_refused(self, old: Object, **change: Any) -> list[str]:
        with self.assertRaises(Invalid) as caught:
            self.update(old, **change)
        return [
            f"{cause['field']}: {cause['message']}" for cause in caught.exception.details["causes"]
        ]
