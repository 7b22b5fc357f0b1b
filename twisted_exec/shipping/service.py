"""The service that ships the lines of all journals to all sinks."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry
from twisted.application.service import Service
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IReactorTime

from twisted_exec.journal.interfaces import IFollowedJournal
from twisted_exec.shipping.config import ShippingConfig
from twisted_exec.shipping.interfaces import Labels
from twisted_exec.shipping.metrics import ShippingMetrics
from twisted_exec.shipping.shipper import Shipper


class Shipping(Service):
    """Ships the lines of all machines to all sinks of a configuration."""

    def __init__(
        self, config: ShippingConfig, registry: CollectorRegistry, reactor: IReactorTime
    ) -> None:
        self.labels = config.labels
        metrics = ShippingMetrics(registry)
        self.shippers: list[Shipper] = []
        for each in config.sinks:
            shipper = Shipper(
                each.make(reactor),
                reactor,
                metrics.of(each.name),
                newest=each.newest,
                plain=each.plain,
                max_age_seconds=each.max_age_seconds,
            )
            metrics.watch(each.name, shipper)
            self.shippers.append(shipper)

    def add(self, labels: Labels, journal: IFollowedJournal) -> None:
        for shipper in self.shippers:
            shipper.add(labels, journal)

    def startService(self) -> None:
        super().startService()
        for shipper in self.shippers:
            shipper.start()

    def stopService(self) -> Deferred[Any]:
        """Save the cursors; the next start continues from there."""
        super().stopService()
        return gatherResults([Deferred.fromCoroutine(each.stop()) for each in self.shippers])
