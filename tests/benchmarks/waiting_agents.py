"""
1 000 agents of 500 people at ``exec-mcp``, all of which wait for output: memory and CPU time, without them and with them.

Each agent has a connection, a session and one call of ``wait_for`` with its longest time.  The logs come through API server,
poollet and runtime, which are real.  At the end the machine prints a line, and the answer to each call must have it.
"""

from __future__ import annotations

import ssl
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from twisted.internet.threads import deferToThread

from tests import procfs
from tests.flows.deployment import Deployment, run_reactor
from twisted_exec.api.agents import agent_name
from twisted_exec.cli.mcp.protocol import VERSIONS
from twisted_exec.cli.mcp.table import MOST_SECONDS

from .agent_door import Agent, AgentAccess, AgentDoor
from .chain import Chain
from .console import connect
from .interpreter import with_bytecode
from .one_hop import wait_until

AGENTS, PEOPLE = 1000, 500
SECONDS = 30.0
"""How long CPU time is measured: twice the interval of the comments that the response to a waiting call has."""

_DOOR, _HOPS = "exec-mcp", ("api", "poollet", "runtime")
_MACHINE, _PRINTED = "quiet", "the-end"
_OPEN_SECONDS, _SETTLE_SECONDS = 120.0, 3.0


@dataclass(frozen=True)
class State:
    """
    The programs during some seconds, by name.

    :ivar mib: resident memory.
    :ivar cpu_ms: CPU time in one second.
    """

    mib: dict[str, float]
    cpu_ms: dict[str, float]


def state(pids: dict[str, int], seconds: float = SECONDS) -> State:
    """Measure programs that have settled."""
    time.sleep(_SETTLE_SECONDS)
    before = {name: procfs.exact_cpu_seconds(pid) for name, pid in pids.items()}
    time.sleep(seconds)
    spent = {name: procfs.exact_cpu_seconds(pid) - before[name] for name, pid in pids.items()}
    return State(
        {name: procfs.resident_bytes(pid) / (1 << 20) for name, pid in pids.items()},
        {name: each / seconds * 1e3 for name, each in spent.items()},
    )


def begin(access: AgentAccess, stack: ExitStack) -> list[Agent]:
    """Begin a session for each token; ``stack`` closes the connections."""
    tls = ssl.create_default_context(cafile=access.ca)
    agents = []
    for token in access.tokens:
        line = stack.enter_context(connect(access.port, tls))
        line.settimeout(MOST_SECONDS)
        agent = Agent(access, token, line)
        agent.ask("initialize", protocolVersion=VERSIONS[0])
        if (code := agent.answer()) != "200":
            raise ConnectionError(f"a session was refused: {code}")
        agents.append(agent)
    return agents


def measure(chain: Chain, door: int, access: AgentAccess) -> tuple[State, State, State]:
    """
    Return the states without agents, with their sessions, and while they wait.

    :param door: its process.
    """
    pids = {_DOOR: door, **{hop: chain.pid(hop) for hop in _HOPS}}
    runtime = pids["runtime"]
    with ExitStack() as stack:
        without = state(pids)
        agents = begin(access, stack)
        sessions = state(pids)
        sockets = procfs.open_sockets(runtime)
        asked = {"machine": _MACHINE, "pattern": _PRINTED, "timeout_seconds": MOST_SECONDS}
        for agent in agents:
            agent.ask("tools/call", name="wait_for", arguments=asked)
        wait_until(lambda: procfs.open_sockets(runtime) >= sockets + len(agents), _OPEN_SECONDS)
        waiting = state(pids)
        console = chain.through(_MACHINE)
        console.type(f"echo {_PRINTED}\n".encode())
        console.until(_PRINTED.encode())
        console.close()
        for agent in agents:
            if agent.answer() != "200" or b'\\"matched\\": true' not in agent.body:
                raise RuntimeError(f"a call has not waited: {agent.body!r}")
    return without, sessions, waiting


def report(without: State, sessions: State, waiting: State) -> None:
    """Print a line for each program."""
    print(f"{AGENTS} agents of {PEOPLE} people: without them; with their sessions; while all wait")
    print(f"{'':10}{'MiB':>30}{'ratio':>10}{'KiB of an agent':>20}   {'CPU ms in a second':>20}")
    columns = ("without", "sessions", "waiting", "waiting", "session", "waiting")
    print(f"{'':10}{''.join(f'{each:>10}' for each in columns)}   {'without':>10}{'waiting':>10}")
    for name, mib in without.mib.items():
        sizes = mib, sessions.mib[name], waiting.mib[name]
        session, whole = ((each - mib) * 1024 / AGENTS for each in sizes[1:])
        figures = "".join(f"{each:10.1f}" for each in sizes)
        print(
            f"{name:10}{figures}{sizes[2] / mib:10.2f}{session:10.1f}{whole:10.1f}   "
            f"{without.cpu_ms[name]:10.1f}{waiting.cpu_ms[name]:10.1f}"
        )


def main(directory: Path) -> None:
    """Run the benchmark."""

    async def measured() -> None:
        deployment = Deployment(str(directory / "chain"), unix_streams=True)
        names = [agent_name(f"p{at % PEOPLE}", f"a{at // PEOPLE}") for at in range(AGENTS)]
        door = AgentDoor(deployment, names)
        try:
            await deployment.start()
            await deployment.create_machine(_MACHINE, "shell")
            access = await door.start()
            assert door.program is not None
            report(*await deferToThread(measure, Chain(deployment), door.program.pid, access))
        finally:
            await door.stop()
            await deployment.stop()

    with with_bytecode(directory, _DOOR):
        run_reactor(measured)
