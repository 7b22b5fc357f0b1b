"""
Alerts, with the API server, the poollet and the runtime in processes of their own.
"""

from __future__ import annotations

import signal
from typing import Any

from twisted.internet import reactor

from tests.flows.consoles import watch
from tests.flows.deployment import pause
from twisted_exec.api import kinds

from .test_logs import MACHINES, PROMPT, LogCase

ALERTS, EVENTS = kinds.CONSOLEALERTS.resource, kinds.EVENTS.resource
PANIC = "Kernel panic - not syncing: test"


class AlertTests(LogCase):
    """A shell that prints what an alert looks for."""

    exact = True

    async def setUp(self) -> None:
        await super().setUp()
        spec = {
            "presets": ["linux"],
            "patterns": [{"name": "marker", "literal": "MARK-", "throttleSeconds": 0}],
        }
        await self.deployment.client.create(
            ALERTS, {"metadata": {"name": "linux"}, "spec": spec}, "default"
        )
        await self.entry(lambda entry: entry.get("state") == "Watching")

    async def entry(self, expected: Any) -> dict[str, Any]:
        """Wait until the pool's entry in the alert's status is as expected."""
        while True:
            alert = await self.deployment.client.get(ALERTS, "linux", "default")
            for entry in (alert.get("status") or {}).get("pools") or ():
                if expected(entry):
                    return dict(entry)
            await pause()

    async def events(self) -> list[str]:
        """Return the messages of alerts, sorted."""
        listed = await self.deployment.client.list(EVENTS, "default")
        messages = [event["message"] for event in listed["items"]]
        return sorted(message for message in messages if "alert linux" in message)

    async def event_of(self, word: str) -> None:
        while not any(word in message for message in await self.events()):
            await pause()

    async def test_event(self) -> None:
        """
        A panic becomes an Event and a condition, also while nobody is attached.
        """
        screen = await watch(self.deployment.admin, "sh")
        end = await screen.until(PROMPT)
        screen.type(b"(sleep 1; echo Kernel' panic - not syncing: test') & echo o''k\n")
        await screen.until(rb"ok\r\n", start=end)
        await screen.leave()
        await self.event_of(PANIC)
        while True:
            machine = await self.deployment.client.get(MACHINES, "sh", "default")
            conditions = {each["type"]: each for each in machine["status"]["conditions"]}
            healthy = conditions.get("ConsoleHealthy", {})
            if healthy.get("status") == "False":
                break
            await pause()
        self.assertEqual(healthy["reason"], "KernelPanic")

    async def test_killed(self) -> None:
        """
        No Event is lost or repeated when the runtime, the poollet and the API server are killed.
        """
        deployment = self.deployment
        await self.say("MARK-1")
        await self.event_of("MARK-1")
        await deployment.poollet.stop(signal.SIGKILL)
        await deployment.start_poollet()
        await self.until_back()
        await self.say("MARK-2")
        await deployment.runtime.stop(signal.SIGKILL)
        await deployment.start_runtime()
        await self.event_of("MARK-2")
        await self.until_back()
        await self.say("MARK-3")
        await deployment.api.stop(signal.SIGKILL)
        await deployment.start_api()
        await self.event_of("MARK-3")
        since = reactor.seconds()
        while reactor.seconds() - since < 2:
            await pause()
        # A late Event may be about the machine of the test before, in the same deployment.
        messages = [message for message in await self.events() if "MARK-" in message]
        words = [message.split('"')[1] for message in messages]
        self.assertEqual(sorted(words), ["MARK-1", "MARK-2", "MARK-3"])
