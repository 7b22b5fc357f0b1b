"""
Tests for :mod:`twisted_exec.apiserver.aggregated.admission.webhook_configurations`.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.kinds import Object
from twisted_exec.apiserver.aggregated.admission.webhook_configurations import (
    Callee,
    Webhook,
    webhooks_of,
)


def configuration(name: str, *webhooks: Object) -> Object:
    """As a host has it."""
    return {"metadata": {"name": name}, "webhooks": list(webhooks)}


def hook(**told: Any) -> Webhook:
    """The one webhook of a configuration."""
    (found,) = webhooks_of([configuration("c", {"name": "w", **told})])
    return found


class HooksTests(SynchronousTestCase):
    """Webhooks as configurations have them."""

    def test_order(self) -> None:
        """By the configuration's name, then in order; webhooks of the same name are distinct."""
        found = webhooks_of(
            [
                configuration("b", {"name": "z"}, {"name": "a"}, {"name": "z"}),
                configuration("a", {"name": "z"}),
                configuration("c"),
            ]
        )
        self.assertEqual([each.uid for each in found], ["a/z/0", "b/z/0", "b/a/0", "b/z/1"])

    def test_defaults(self) -> None:
        """Defaults: failures refuse, ten seconds, possible side effects."""
        told = hook()
        self.assertEqual((told.seconds, told.ignores_failures), (10, False))
        self.assertEqual((told.dry_run, told.reinvoked, told.conditions), (False, False, ()))
        self.assertEqual(told.callee, None)

    def test_told(self) -> None:
        """Explicit fields."""
        told = hook(
            failurePolicy="Ignore",
            timeoutSeconds=3,
            sideEffects="NoneOnDryRun",
            reinvocationPolicy="IfNeeded",
            matchConditions=[{"name": "c", "expression": "true"}],
            admissionReviewVersions=["v1"],
        )
        self.assertEqual((told.seconds, told.ignores_failures), (3, True))
        self.assertEqual((told.dry_run, told.reinvoked, told.versions), (True, True, ("v1",)))
        self.assertEqual([each.expression for each in told.conditions], ["true"])
        self.assertEqual(hook(timeoutSeconds=3600).seconds, 30)

    def test_where(self) -> None:
        """A URL, or a Service by its name in the cluster's DNS."""
        service = {"name": "s", "namespace": "n"}
        for config, callee in (
            ({"url": "https://h:8443/p?q=1"}, Callee("https://h:8443/p?q=1", "h")),
            ({"url": "https://h"}, Callee("https://h/", "h")),
            ({"url": "https://[::1]:1/"}, Callee("https://[::1]:1/", "::1")),
            ({"url": "https://h/", "caBundle": "UEVN"}, Callee("https://h/", "h", b"PEM")),
            ({"service": service}, Callee("https://s.n.svc:443/", "s.n.svc")),
            (
                {"service": {**service, "port": 8443, "path": "/v"}},
                Callee("https://s.n.svc:8443/v", "s.n.svc"),
            ),
        ):
            self.assertEqual(hook(clientConfig=config).callee, callee)

    def test_nowhere(self) -> None:
        """An address that is missing, or not https, is a problem of the webhook."""
        for config in (
            {},
            {"url": ""},
            {"url": "http://h/"},
            {"url": "https:///p"},
            {"url": "https://[/"},
            {"url": "https://h/", "caBundle": "?"},
        ):
            told = hook(clientConfig=config)
            self.assertEqual(told.callee, None, config)
            self.assertTrue(told.problem, config)
