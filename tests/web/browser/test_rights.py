"""
The consoles of users who may not list machines in a real browser.
"""

from __future__ import annotations

from tests.flows.deployment import machine
from tests.flows.test_three_programs import binding
from twisted_exec.api import kinds

from .base import WebTestCase
from .deployment import WebDeployment
from .steps import VM

MACHINES, ROLEBINDINGS = kinds.MACHINES.resource, kinds.ROLEBINDINGS.resource
_LABELS = "[...document.querySelectorAll('.panel .button')].filter((each) => each.checkVisibility()).map((each) => each.innerText).join()"
# When the console opened, and for what the page shows of the machine.
_HAS_READ_TWICE = """performance.getEntriesByType('resource').filter(({name, responseEnd}) =>
    responseEnd && name.endsWith('/machines/vm-1')).length > 1"""
# What the panel and screen readers say from now on.
_RECORD = """{
    self.said = "";
    new MutationObserver(() => {
        for (const each of document.querySelectorAll('.panel, [aria-live]')) self.said += `${each.innerText}\\n`;
    }).observe(document.body, {subtree: true, childList: true, characterData: true, attributes: true});
}"""
_LINE = "document.querySelector('.status-line').innerText"


class FewRightsTests(WebTestCase):
    """A shell, and eve, who may open its console and read the machine, but list none."""

    def make_deployment(self) -> WebDeployment:
        deployment = super().make_deployment()
        deployment.tokens["eve"] = "token-of-eve"
        deployment.groups = {"eve": "guests"}
        deployment.write_tokens()
        return deployment

    async def setUp(self) -> None:
        await super().setUp()
        await self.deployment.client.create(ROLEBINDINGS, binding("eve", "console-user"), "default")
        await self.deployment.create_machine("vm-1", "shell")

    async def power(self, value: str) -> None:
        await self.deployment.client.patch(MACHINES, "vm-1", {"spec": {"power": value}}, "default")

    async def test_powered_off(self) -> None:
        """
        The panel of a machine that is off says so, and opens the console when it runs.  While a session waits for the
        machine, the line below the terminal says its state.
        """
        await self.power("Off")
        await self.deployment.machine_in_state("vm-1", "Shutdown")
        eve = await self.user("eve")
        await eve.open(VM)
        await eve.until_page(
            "not running\\n+It is powered off[^]*opens as soon as the machine runs"
        )
        await self.power("On")
        await eve.until_terminal("[#$]$")
        await self.power("Off")
        await eve.page.until(f"/Machine: Shutdown/.test({_LINE})")
        await self.power("On")
        await eve.page.until(f"/You can type/.test({_LINE}) && !/Machine/.test({_LINE})")
        self.check_faults()

    async def test_view_only(self) -> None:
        """
        With ``view`` alone the panel of a machine that is off promises no console, and the list offers nothing that ends in a
        refusal.
        """
        await self.deployment.client.delete(ROLEBINDINGS, "eve", "default")
        await self.deployment.client.create(ROLEBINDINGS, binding("eve", "view"), "default")
        await self.power("Off")
        await self.deployment.machine_in_state("vm-1", "Shutdown")
        eve = await self.user("eve")
        await eve.open("machines?namespace=default")
        await eve.page.until("document.querySelector('td.more')?.textContent === '⋯'")
        await eve.open(VM)
        await eve.until_page("You may not open this console")
        self.assertNotIn(
            "opens as soon as",
            await eve.page.evaluate("document.querySelector('.panel').innerText"),
        )
        self.check_faults()

    async def test_deleted(self) -> None:
        """The panel of a machine that was deleted says nothing else meanwhile, nor does the page to screen readers."""
        eve = await self.user("eve")
        await eve.open(VM)
        await eve.until_terminal("[#$]$")
        await eve.page.until(_HAS_READ_TWICE)
        await eve.page.evaluate(_RECORD)
        await self.deployment.client.delete(MACHINES, "vm-1", "default")
        await eve.until_page("The machine is deleted")
        said = await eve.page.evaluate("self.said")
        self.assertNotRegex(said, "There is a new machine|a machine with this name was created")
        self.check_faults()

    async def test_withdrawn(self) -> None:
        """
        Whom to ask is said to a user whose right was withdrawn, before the words of the server, and
        alone to screen readers.  The console is offered again as soon as the right is back.
        """
        eve = await self.user("eve")
        await eve.open(VM)
        await eve.until_terminal("[#$]$")
        await self.deployment.client.delete(ROLEBINDINGS, "eve", "default")
        await eve.until_page(
            "Your right to this session has ended[^]*Ask your administrator for the role[^]*console-user[^]*is forbidden"
        )
        await eve.page.until(f"{_LABELS} === 'List of machines,Try again'")
        said = await eve.page.evaluate("document.querySelector('[aria-live]').innerText")
        self.assertNotIn("is forbidden", said)
        await self.check_layout(eve, "withdrawn", ".panel", ".panel .button", ".console-head")
        await self.deployment.client.create(ROLEBINDINGS, binding("eve", "console-user"), "default")
        await eve.until_page("You may open this console now")
        await eve.click_text(".panel button", "Open")
        await eve.until_page("You can type")
        self.check_faults()

    async def test_no_get(self) -> None:
        """Nor may eve read the machine: the panel offers another attempt, and another visit is one."""
        role = {
            "metadata": {"name": "typist"},
            "rules": [
                {
                    "apiGroups": ["compute.ironcore.dev"],
                    "resources": ["machines/exec"],
                    "verbs": ["create", "get"],
                },
                {
                    "apiGroups": ["compute.ironcore.dev"],
                    "resources": ["machines/console"],
                    "verbs": ["get", "drive", "observe"],
                },
            ],
        }
        client = self.deployment.client
        await client.create(kinds.CLUSTERROLES.resource, role)
        await client.delete(ROLEBINDINGS, "eve", "default")
        await client.create(ROLEBINDINGS, binding("eve", "typist"), "default")
        lost = machine("vm-3", "shell")
        lost["spec"]["machinePoolRef"] = {"name": "absent"}
        await client.create(MACHINES, lost, "default")
        await self.power("Off")
        await self.deployment.machine_in_state("vm-1", "Shutdown")
        eve = await self.user("eve")
        await eve.open("machines/default/vm-3")
        await eve.until_page('not running[^]*pool "[^"]+" does not exist')
        await eve.page.until(f"/Try again/.test({_LABELS})")
        await eve.open(VM)
        await eve.until_page("not running[^]*powered off")
        await eve.page.until(f"/Try again/.test({_LABELS})")
        await self.power("On")
        await self.deployment.machine_in_state("vm-1", "Running")
        await eve.open("machines")
        await eve.open(VM)
        await eve.until_terminal("[#$]$")
        self.check_faults()
