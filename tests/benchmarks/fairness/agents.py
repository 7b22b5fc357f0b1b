"""
The row ``agents``: a crowd of agents at a door of a chain, each with a session, who call a tool again and again.
"""

from __future__ import annotations

import ssl
import time
from contextlib import ExitStack
from typing import Any

from tests.benchmarks.agent_door import Agent, AgentAccess
from tests.benchmarks.console import connect
from twisted_exec.cli.mcp.protocol import VERSIONS

AGENTS = 500
AT_ONCE = 50
"""Connections of one thread."""


def flood(door: AgentAccess, tokens: list[str], done: Any, until: float) -> None:
    """Let some agents call the same tool at the same time, again and again."""
    tls = ssl.create_default_context(cafile=door.ca)
    with ExitStack() as stack:
        agents = []
        for token in tokens:
            line = stack.enter_context(connect(door.port, tls))
            line.settimeout(60)
            agents.append(Agent(door, token, line))
        for agent in agents:
            agent.ask("initialize", protocolVersion=VERSIONS[0])
        for agent in agents:
            agent.answer()
        while time.monotonic() < until:
            for agent in agents:
                done.sent += agent.ask(
                    "tools/call", name="get_screen", arguments={"machine": "sink"}
                )
            for agent in agents:
                done.answers[agent.answer()] += 1
