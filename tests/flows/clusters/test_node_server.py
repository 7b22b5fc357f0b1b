"""
``exec-nodeserver`` as a separate program between a root and a leaf of ours: it maintains its Node,
serves kubectl, and stops.
"""

from __future__ import annotations

import json
import os
import signal

from tests.chain import NODE_SERVER
from tests.flows import kubectls, programs
from tests.nodeserver.clusters import LEAF, POD, ROOT_NODE
from tests.runtimes.support import pause
from twisted_exec.api.kinds import NODES
from twisted_exec.api.status import NotFound

from .test_leaves import ECHO, LeafTestCase


class ProgramTests(LeafTestCase):
    """The program, from its start to its end."""

    async def serve(self) -> None:
        """Start the program as an operator would."""
        root, pair = self.clusters.root, self.clusters.root.pki.pair("runtime-kubelet")
        kubeconfig = {"file": self.clusters.leaf.kubeconfig(NODE_SERVER)}
        leaf = {"name": LEAF, "kubeconfig": kubeconfig, "nodes": [{"name": ROOT_NODE}]}
        leaves = os.path.join(root.directory, "leaves.json")
        with open(leaves, "w") as file:
            json.dump({"leaves": [leaf]}, file)
        options = {
            "kubeconfig": root.kubeconfig(NODE_SERVER),
            "leaves": leaves,
            "listen": "tcp:0:interface=127.0.0.1",
            "health-listen": "tcp:0:interface=127.0.0.1",
            "client-ca-file": root.client_ca,
            "client-allowed-names": "kube-apiserver-kubelet-client",
            "audit-log": os.path.join(root.directory, "audit.jsonl"),
        }
        argv = [programs.script("twistd"), "-n", "--pidfile=", NODE_SERVER]
        # The remaining settings come from Kosmos's environment variables.
        where = {
            "LEAF_NODE_IP": "127.0.0.1",
            "APISERVER_CERT_LOCATION": pair.certificate,
            "APISERVER_KEY_LOCATION": pair.key,
        }
        told = [f"--{name}={value}" for name, value in options.items()]
        self.program = programs.start([*argv, *told], env=where)
        self.addCleanup(self.program.stop, 9)
        found = await self.program.until(rb"serving Nodes at 127.0.0.1:(\d+)\s")
        self.port = int(found[1])
        self.audit_log = options["audit-log"]
        await self.kept()

    async def kept(self) -> None:
        """Wait until the Node exists and has the program's port."""
        while True:
            try:
                node = await self.clusters.root.admin.get(NODES.resource, ROOT_NODE)
            except NotFound:
                node = {}
            endpoints = (node.get("status") or {}).get("daemonEndpoints") or {}
            if (endpoints.get("kubeletEndpoint") or {}).get("Port") == self.port:
                return
            await pause()

    async def test_program(self) -> None:
        """
        A Pod is reached through the maintained Node; SIGTERM ends its sessions with a message.
        """
        code, stdout, told = await self.kubectl("exec", POD, "--", "echo", "hello")
        self.assertEqual((code, stdout), (0, "hello\n"), told)
        user = self.begin("exec", "-i", POD, "--", *ECHO)
        user.type(b"on\n")
        await user.until(b"<on>")
        self.program.transport.signalProcess(signal.SIGTERM)  # type: ignore[union-attr]
        self.assertNotEqual(await user.ended, 0)
        self.assertIn(b"exec-nodeserver is restarting", user.output)
        # After a clean shutdown, Twisted exits by the signal that it received.
        self.assertEqual(await self.program.ended, -signal.SIGTERM)
        self.assertIn(b"Server Shut Down.", self.program.output)
        self.assertNotIn(b"Traceback", self.program.output)
        with open(self.audit_log) as file:
            records = [json.loads(line) for line in file]
        ends = [each for each in records if each["event"] == "end"]
        self.assertEqual(len(records), 2 * len(ends))
        self.assertEqual(ends[-1]["reason"], "ShuttingDown")
        self.assertEqual({each["user"] for each in ends}, {"kube-apiserver-kubelet-client"})

    async def test_killed(self) -> None:
        """When the program is killed, kubectl shows that its connection was lost, which the root tells it."""
        argv = ("exec", "-i", POD, "--", *ECHO)
        users = {name: self.begin(*argv, name=name) for name in kubectls.some()}
        for user in users.values():
            user.type(b"on\n")
            await user.until(b"<on>")
        self.program.transport.signalProcess(signal.SIGKILL)  # type: ignore[union-attr]
        for name, user in users.items():
            self.assertEqual(await user.ended, 1, name)
            self.assertIn(b"error: the connection behind this hop was lost", user.output, name)
