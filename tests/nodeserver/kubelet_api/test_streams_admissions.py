"""
The admissions of a node server keep the contract of
:class:`~twisted_exec.streaming.location.IStreamAdmission`.
"""

from __future__ import annotations

from typing import Any

from tests.contracts.stream_admission import StreamAdmissionContract
from tests.nodeserver.stream_chain import ROOT, SPDY_HEAD, ChainTestCase
from twisted_exec.nodeserver.kubelet_api.logs import PodLogAdmission, log_routes
from twisted_exec.nodeserver.kubelet_api.streams import PodAdmission, stream_routes


class AdmissionTests(StreamAdmissionContract, ChainTestCase):
    """Of streams and of logs."""

    admissions = {"exec": PodAdmission, "log": PodLogAdmission}

    def routes(self) -> Any:
        """As :meth:`ChainTestCase.routes`."""
        return [*stream_routes(self.collaborators), *log_routes(self.collaborators)]

    async def ask_for(self, word: str, *, allowed: bool) -> None:
        """As :meth:`StreamAdmissionContract.ask_for`."""
        user = ROOT if allowed else "jane"
        if word == "exec":
            target = "/exec/default/web/main?command=sh&output=1"
            client = await self.ask(target, *SPDY_HEAD, user=user)
        else:
            client = await self.ask("/containerLogs/default/web/main", method="GET", user=user)
        await self.answered(client)
        client.transport.abortConnection()
