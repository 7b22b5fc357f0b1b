"""
Tests for :mod:`twisted_exec.runtimes.machinebroker.service`, through a broker on a target in memory.
"""

from __future__ import annotations

from twisted_exec.iri.protos import machine_pb2 as pb

from .support import NAMESPACE, BrokerCase


class EventTests(BrokerCase):
    """Events of the target."""

    async def test_filters(self) -> None:
        """Only of our machines; from and to a time, in seconds or in nanoseconds."""
        broker = await self.make_runtime()
        created = await self.made(broker)
        stranger = {"metadata": {"name": "s", "namespace": NAMESPACE, "uid": "other"}}
        self.target.happened(stranger, "Strange")
        obj = self.target.object(created.metadata.id)
        self.target.happened(obj, "Later", lastTimestamp="2026-01-01T00:01:00Z")
        second = 10**9
        for first, last, expected in (
            (0, 0, ["Running", "Later"]),
            (1767225601, 0, ["Later"]),
            (1767225601 * second, 0, ["Later"]),
            (0, 1767225600, ["Running"]),
            (1767225600 * second, 1767225601 * second, ["Running"]),
        ):
            request = pb.EventFilter(events_from_time=first, events_to_time=last)
            events = (await broker.list_events(pb.ListEventsRequest(filter=request))).events
            self.assertEqual([each.spec.reason for each in events], expected, request)
