"""
The plugins by which twistd and endpoint strings find twisted-exec.

No logic, and nothing heavy is imported: every twistd of this environment
reads this file.  The directories above it have no ``__init__.py``: they belong to Twisted.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import (
    IStreamClientEndpoint,
    IStreamClientEndpointStringParserWithReactor,
)
from twisted.plugin import IPlugin
from zope.interface import implementer

from twisted_exec.program.maker import ProgramMaker

apiserver = ProgramMaker(
    "exec-apiserver",
    "twisted_exec.apiserver.tap",
    "Kubernetes-style API server for machines and their consoles.",
    "exec-apiserver",
)

poollet = ProgramMaker(
    "exec-poollet",
    "twisted_exec.poollet.tap",
    "Runs the machines of one pool on a machine runtime.",
    "exec-poollet",
)

runtime = ProgramMaker(
    "exec-runtime",
    "twisted_exec.runtimes.tap",
    "Machine runtime: shells and virtual machines on this host.",
    "exec-runtime",
)

broker = ProgramMaker(
    "exec-broker",
    "twisted_exec.runtimes.machinebroker.tap",
    "Machine runtime: machines of another cluster.",
    "exec-broker",
)

nodeserver = ProgramMaker(
    "exec-nodeserver",
    "twisted_exec.nodeserver.tap",
    "A kubelet's face for Pods that run in other clusters.",
    "exec-nodeserver",
)

spacemanager = ProgramMaker(
    "exec-spacemanager",
    "twisted_exec.spacemanager.tap",
    "A registry of control planes: Spaces, their providers, their credentials.",
    "exec-spacemanager",
)

racks = ProgramMaker(
    "exec-racks",
    "twisted_exec.racks.tap",
    "Machines and a list of lines from the Servers and BMCs of metal-operator.",
    "exec-racks",
)

sshd = ProgramMaker(
    "exec-sshd",
    "twisted_exec.sshd.tap",
    "Consoles for stock ssh, on a network.",
    "exec-sshd",
)

mcp = ProgramMaker(
    "exec-mcp",
    "twisted_exec.mcp.tap",
    "Tools for agents at consoles, by the Model Context Protocol over HTTP.",
    "exec-mcp",
)

standalone = ProgramMaker(
    "exec-standalone",
    "twisted_exec.standalone.tap",
    "API server, poollet, runtime and Space Manager on loopback, with two machines to try.",
    "exec-standalone",
)


@implementer(IPlugin, IStreamClientEndpointStringParserWithReactor)
class _ConsoleParser:
    """``console:NAME``, and options such as ``namespace=NS`` and ``context=CONTEXT``."""

    prefix = "console"

    def parseStreamClient(self, reactor: Any, *args: Any, **kwargs: Any) -> IStreamClientEndpoint:
        from twisted_exec.kube.console_endpoint import parse_console

        return parse_console(reactor, *args, **kwargs)


console = _ConsoleParser()
