"""
Programs that are restarted on the same ports, with machines that print what they get.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor as _reactor

from tests.flows.deployment import Deployment, StandaloneDeployment
from tests.flows.programs import Program

reactor: Any = _reactor

ECHO = "echo"
"""Class of the machines."""
READY = b"ready\n"
"""What they print first."""
_CLASSES = f"""
classes:
- name: {ECHO}
  driver: pty
  command: [/bin/sh, -c, stty raw -echo; echo ready; exec cat]
  same_user: true
  capabilities: {{cpu: "1", memory: 64Mi}}
  quantity: 1000
"""
_READY_LINES = {
    "exec-apiserver": rb"listens at https",
    "exec-runtime": rb"RuntimeHost#info\]",
    "exec-poollet": rb"is registered",
    "exec-standalone": rb"\nReady",
}


class Programs(Deployment):
    """
    Three programs on ports that stay the same; machines outlive their runtime.

    :ivar ready_seconds: from the start of the last program until it was ready.
    """

    fork = False
    drain = "--drain-seconds=1.5"
    names: tuple[str, ...] = ("api", "poollet", "runtime")

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        (self.directory / "runtime.yaml").write_text(_CLASSES)
        self.poollet_port, self.streams_port = self.reserved.add(), self.reserved.add()

    def twistd(self, plugin: str, *options: str) -> Program:
        return self.timed(plugin, super().twistd(plugin, *options))

    def timed(self, plugin: str, program: Program) -> Program:
        """Note when a program is ready that was just started."""
        began = reactor.seconds()

        def ready(_: object) -> None:
            self.ready_seconds = reactor.seconds() - began

        program.until(_READY_LINES[plugin]).addCallbacks(ready, lambda _: None)
        return program

    async def start_rest(self) -> None:
        await self.start_runtime()
        await self.start_poollet()
        await self.create_class(ECHO, "64Mi")

    async def start_runtime(self, *options: str) -> None:
        listen = f"--streaming-listen=tcp:{self.streams_port}:interface=127.0.0.1"
        await super().start_runtime("--keep-machines", listen, *options)

    async def start_poollet(self, *options: str) -> None:
        listen = f"--listen=tcp:{self.poollet_port}:interface=127.0.0.1"
        await super().start_poollet(listen, *options)

    def user(self, number: int) -> str:
        """Return the kubeconfig of one of many users."""
        return self.kubeconfig(f"user-{number}", ["system:masters"])


class Standalone(StandaloneDeployment, Programs):
    """All parts in one process."""

    names = ("standalone",)

    def launch(self) -> Program:
        return self.timed("exec-standalone", super().launch())

    def user(self, number: int) -> str:
        return self.admin
