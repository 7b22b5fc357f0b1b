"""
A machine that is off until the sessions of its console have ended.
"""

from __future__ import annotations

from twisted_exec.api import kinds

from .base import WebTestCase
from .deployment import WebDeployment
from .steps import VM

MACHINES = kinds.MACHINES.resource


class _ImpatientDeployment(WebDeployment):
    """A deployment whose sessions wait for their machine for a few seconds only."""

    async def start_runtime(self, *options: str) -> None:
        await super().start_runtime("--resume-seconds=5", *options)


class PowerTests(WebTestCase):
    """Two users at the console of a shell."""

    def make_deployment(self) -> WebDeployment:
        return _ImpatientDeployment(self.mktemp())

    async def test_writer(self) -> None:
        """
        The user who powers the machine on becomes the writer, also one from whom another user had taken the console;
        a user who has chosen to observe goes on with that.
        """
        await self.deployment.create_machine("vm-1", "shell")
        ada = await self.user()
        await self.open_terminal(ada)
        bob = await self.user("bob")
        await bob.open(VM)
        await bob.until_page("Observing; ada types")
        await bob.click_text(".console-head button", "Take over")
        await bob.click_text("dialog button", "Take over")
        await ada.until_page("Observing; bob types")
        await self.power_off()
        for user in (ada, bob):
            await user.until_page("The machine is not running")
        await ada.click_text(".panel button", "Power on")
        await bob.until_page("Observing; ada types")
        await ada.until_page("You can type")
        await ada.click_text(".console-head button", "Observe only")
        await ada.until_page("Observing; nobody types")
        await bob.click_text(".console-head button", "Type here")
        await ada.until_page("Observing; bob types")
        await self.power_off()
        for user in (ada, bob):
            await user.until_page("The machine is not running")
        await ada.click_text(".panel button", "Power on")
        await bob.until_page("You can type")
        await ada.until_page("Observing; bob types")
        self.check_faults()

    async def power_off(self) -> None:
        """Power the machine off, and wait until it is off."""
        change = {"spec": {"power": "Off"}}
        await self.deployment.client.patch(MACHINES, "vm-1", change, "default")
        await self.deployment.machine_in_state("vm-1", "Shutdown")
