"""
An API server in the test's process, with machines in all states that the page shows, and no pool.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests import needs
from tests.apiserver.chain import ChainTestCase
from tests.apiserver.support import machine
from tests.chain import POOL
from tests.tiers import BROWSER
from twisted_exec.api import kinds
from twisted_exec.api.kinds import Object
from twisted_exec.api.resource import Resource

from . import shared
from .user import User, open_user

MACHINES, POOLS = kinds.MACHINES.resource, kinds.MACHINEPOOLS.resource
SIZES = {"desktop": (1440, 900), "tablet": (900, 700), "phone": (390, 844)}
_TOKEN = "token-of-ada"
_LINE = "[  OK  ] Reached target multi-user.target - Multi-User System, after 41.3 s of firmware."
LONG = "rescue-with-a-name-that-is-as-long-as-a-name-of-kubernetes-is"
_HEALTH = 'at offset 5123 the machine printed "md0: Disk failure on sdb1, disabling device."'


class FleetTestCase(ChainTestCase):
    """A browser and a server whose user ``ada`` may do everything."""

    starts = BROWSER
    skip = needs.chromium()
    groups = "system:masters"
    """Of ``ada``."""

    async def setUp(self) -> None:
        tokens = Path(self.mktemp())
        tokens.write_text(f"{_TOKEN},ada,1,{self.groups}\n")
        self.token_file = str(tokens)
        await super().setUp()
        # Of the machines: the scheduler reports a pool that is missing after some seconds.
        pool = {"apiVersion": POOLS.api_version, "kind": POOLS.kind, "metadata": {"name": POOL}}
        await self.admin.create(POOLS, pool)
        self.browser = await shared.profile(self)

    async def user(self, view: str = "machines", size: tuple[int, int] = SIZES["desktop"]) -> User:
        """Open a view as ``ada``."""
        width, height = size
        url = f"{self.server.url}/console/#/{view}"
        return await open_user(self.browser, url, _TOKEN, width=width, height=height)

    async def add_machines(self, count: int) -> None:
        """Create machines ``vm-0000`` and so on, all of them running."""
        for number in range(count):
            await self.add_machine(f"vm-{number:04}")

    async def add_machine(
        self,
        name: str,
        state: str = "Running",
        *conditions: Object,
        namespace: str = "default",
        **spec: Any,
    ) -> None:
        """Create a machine with a state and conditions, which no poollet replaces."""
        status = {"state": state, "conditions": [*conditions]}
        await self._add(MACHINES, name, machine(name, **spec)["spec"], status, namespace)

    async def _add(
        self,
        resource: Resource,
        name: str,
        spec: Object,
        status: Object,
        namespace: str = "default",
        created: str = "2026-11-20T08:00:00Z",
    ) -> None:
        # Past the API, which keeps users from what the server and poollets write.
        metadata = {
            "name": name,
            "namespace": namespace,
            "uid": f"{namespace}-{resource.plural}-{name}",
        }
        typed = {"apiVersion": resource.api_version, "kind": resource.kind}
        obj = {
            **typed,
            "metadata": metadata | {"creationTimestamp": created},
            "spec": spec,
            "status": status,
        }
        await self.storage.create(resource, obj)

    async def add_fleet(self) -> None:
        """Create machines in all states, sessions, recordings and an alert."""
        output, ready = condition("ConsoleOutput", "True", _LINE), condition("Ready", "True", "")
        sick = condition("ConsoleHealthy", "False", _HEALTH, "RaidDegraded")
        lost = condition("Ready", "False", "The serial line is lost: /dev/ttyS4 does not answer.")
        await self.add_machine("db-1", "Running", ready, sick)
        await self.add_machine("db-2", "Running", lost, output)
        await self.add_machine("build-7", "Shutdown", ready, power="Off")
        await self.add_machine("build-8", "Pending")
        full = "no room for class small: 3 of 3 machinepools"
        await self.add_machine(
            "build-9", "Pending", condition("Ready", "False", full, "OutOfCapacity")
        )
        await self.add_machine(LONG, "Running", ready)
        for number in range(1, 41):
            await self.add_machine(f"web-{number}", "Running", ready, output)
        for name, user in (("web-1", "ada"), ("web-1", "bob"), ("web-2", "carol")):
            await self.add_session(name, user)
        for name in ("web-2", "web-3"):
            await self.add_recording(name)
        await self.add_alert()
        for name, user in (("web-1", "bob"), (LONG, "ada"), ("db-1", "carol")):
            await self.add_request(name, user)

    async def add_session(self, name: str, user: str) -> None:
        """Create the ConsoleSession of a user of a machine."""
        session = f"{name}-{user}"
        spec = {"session": session, "user": user, "machine": name, "mode": "Drive"}
        where = {"machineResource": "machines.compute.ironcore.dev", "address": "10.0.0.7"}
        renewed = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        status = {"role": "Writer", "renewTime": renewed, "leaseDurationSeconds": 3600}
        await self._add(kinds.CONSOLESESSIONS.resource, session, spec | where, status)

    async def add_recording(self, name: str, namespace: str = "default") -> None:
        """Create the ConsoleRecording of a machine, which goes on until the last session of it ends, tomorrow."""
        spec = {"machine": name, "user": "administrator", "input": "none", "reason": "Ticket 4711"}
        policy = {"endsWithSessions": True, "retentionDays": 90}
        where = {"machineUID": f"{namespace}-{MACHINES.plural}-{name}", "pool": POOL}
        where["machineResource"] = "machines.compute.ironcore.dev"
        where["lastSessionTime"] = _time_in(86_400)
        status = {"phase": "Recording"}
        resource = kinds.CONSOLERECORDINGS.resource
        await self._add(resource, name, spec | policy | where, status, namespace)

    async def add_request(self, name: str, user: str, reason: str = "OPS-4711: disk") -> None:
        """Create the ConsoleRequest of a user of a machine; carol's is approved for a day."""
        spec = {"machine": name, "user": user, "right": "drive", "seconds": 86_400}
        spec |= {"machineResource": "machines.compute.ironcore.dev", "reason": reason}
        now, end = _time_in(0), _time_in(86_400)
        approval = {"approved": True, "expirationTime": end, "decidedBy": "bob", "message": "go on"}
        status = approval if user == "carol" else {}
        await self._add(kinds.CONSOLEREQUESTS.resource, f"{user}-asks", spec, status, created=now)

    async def add_alert(self) -> None:
        """Create a ConsoleAlert."""
        pattern = {"name": "md-degraded", "literal": "Disk failure", "condition": "RaidDegraded"}
        spec = {"patterns": [pattern]}
        pool = {"resource": "machinepools.compute.ironcore.dev", "name": POOL, "machines": 45}
        status = {"pools": [pool | {"state": "Watching", "matches": 1}]}
        await self._add(kinds.CONSOLEALERTS.resource, "storage", spec, status)


def _time_in(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def condition(name: str, status: str, message: str, reason: str = "Reported") -> Object:
    """Return a condition of a machine."""
    at = "2026-11-20T08:00:00Z"
    return {
        "type": name,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": at,
    }
