"""
``twisted-exec web`` in front of a real kube-apiserver, with our API server behind that.
"""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.trial.unittest import TestCase

from tests import needs
from tests.apiserver.chain import EXEC
from tests.flows import programs
from tests.flows.deployment import pause
from tests.flows.resuming import Typist
from tests.interop import chains
from tests.interop.aggregated_cluster import AggregatedCluster
from tests.interop.hosts import kubectl
from twisted_exec.api import kinds
from twisted_exec.api.status import APIError
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.console import ConsoleOptions, open_console
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.transport import HTTPTransport, Request

reactor: Any = _reactor

CLIENT = str(Path(__file__).with_name("page_client.mjs"))
URL = re.compile(rb"(http://127\.0\.0\.1:\d+)/console/#secret=(\S+)\n")


class WebTests(TestCase):
    """A machine with a shell, and a user with a client certificate for the kube-apiserver."""

    skip = needs.aggregated()
    timeout = 240

    async def setUp(self) -> None:
        cluster = self.cluster = AggregatedCluster("web")
        self.addCleanup(cluster.stop)
        cluster.start()
        runtime = chains.our_runtime(cluster.programs, cluster.make.revision, class_name="pty")
        chains.our_poollet(cluster, "local", runtime)
        chains.shell(cluster, "local")
        cluster.user("ada", [])
        kubectl(
            cluster.kubeconfig, "create", "rolebinding", "ada", "--clusterrole=edit", "--user=ada"
        )
        while self.state() != "Running":
            await pause()

    def state(self) -> str:
        path = "jsonpath={.status.state}"
        return kubectl(self.cluster.kubeconfig, "get", "machine", "vm", "-o", path)

    async def page(self) -> ClientConfig:
        """Start the command; return a page that has logged in."""
        kubeconfig = self.cluster.programs.path("ada.kubeconfig")
        words = ["twisted-exec", "web", "vm", "--no-browser"]
        program = programs.start(words, env={"KUBECONFIG": kubeconfig})
        self.addCleanup(program.stop)
        match = await program.until(URL.pattern)
        server, secret = match[1].decode(), match[2].decode()
        http = HTTPTransport(ClientConfig(server), reactor)
        body = json.dumps({"secret": secret}).encode()
        code, _, answer = await http.collect(
            Request("POST", "/console/login", body), timeout_seconds=30, limit_bytes=1 << 16
        )
        await http.close()
        self.assertEqual(code, 200, answer)
        return ClientConfig(server, token=json.loads(answer)["token"])

    async def test_page(self) -> None:
        """The page lists and watches, opens a console, and has the rights of the user."""
        page = await self.page()
        client = KubeClient(page, reactor)
        self.addCleanup(client.close)
        machines = kinds.MACHINES.resource
        listed = await client.list(machines, "default")
        self.assertEqual([each["metadata"]["name"] for each in listed["items"]], ["vm"])
        with self.assertRaises(APIError) as caught:
            await client.list(kinds.MACHINEPOOLS.resource)
        self.assertEqual(caught.exception.code, 403)
        self.assertIn('User "ada" cannot list', caught.exception.message)

        user = Typist()
        await open_console(page, "default", "vm", user, reactor, ConsoleOptions(resume=False))
        self.addCleanup(user.leave)
        user.type(b"echo he''re\n")
        while b"here\r\n" not in user.printed:
            self.assertIsNone(user.detached_with)
            await pause()
        sessions = kinds.CONSOLESESSIONS.resource
        while not (items := (await client.list(sessions, "default"))["items"]):
            await pause()
        self.assertEqual([each["spec"]["user"] for each in items], ["ada"])
        await self.resumed(page)

    async def resumed(self, page: ClientConfig) -> None:
        """Open a console with the modules of the page, and load the page again: the session goes on."""
        url = f"{page.server}{EXEC.format('vm')}?stdin=true&stdout=true&tty=true&readOnly=true"
        words = ["node", CLIENT, url.replace("http", "ws", 1), page.token]
        program = programs.start(words)
        self.addCleanup(program.stop)
        # Before the server has said where in the output the session is, a page has nothing to resume.
        await program.until(rb'open \{"resumable":true\}(?s:.*)placed')
        os.kill(program.pid, signal.SIGUSR2)
        await program.until(rb"resumed \{")
        await program.stop(signal.SIGKILL)
