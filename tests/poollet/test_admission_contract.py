"""
The admissions of a poollet keep the contract of
:class:`~twisted_exec.streaming.location.IStreamAdmission`.
"""

from __future__ import annotations

import contextlib

from tests.contracts.stream_admission import StreamAdmissionContract
from tests.poollet.test_text_urls_log_route import JANE_MAY, LogCase
from twisted_exec.poollet.admission import PoolMachineAdmission
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused


class AdmissionTests(StreamAdmissionContract, LogCase):
    """Of consoles and of logs."""

    admissions = {"exec": PoolMachineAdmission, "log": PoolMachineAdmission}
    resuming = ("exec",)

    async def setUp(self) -> None:
        await super().setUp()
        await self.start()
        self.allowed |= {("jane", "machines/exec", "vm"), JANE_MAY}

    async def ask_for(self, word: str, *, allowed: bool) -> None:
        """As :meth:`StreamAdmissionContract.ask_for`."""
        user = b"jane" if allowed else b"joe"
        with contextlib.suppress(UpgradeRefused):
            if word == "exec":
                await self.view(user=user)
            else:
                await self.read(user=user)
