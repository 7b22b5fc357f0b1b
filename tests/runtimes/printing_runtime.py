"""
A runtime whose machines print numbered lines, as a program for :mod:`.test_terminals_killed`.

``python -m tests.runtimes.printing_runtime STATE_DIRECTORY MACHINES`` prints ``up`` when all machines run, and then a dot
for each :data:`STEP_BYTES` that the first one has printed.
"""

from __future__ import annotations

import sys
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.logger import globalLogBeginner, textFileLogObserver

from tests.contracts.machine_runtime import machine
from tests.runtimes.support import LINKS, pause
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.request_cache import RequestCache
from twisted_exec.runtimes.config import parse
from twisted_exec.runtimes.processes import ProcessTable
from twisted_exec.runtimes.service import MARK, MachineRuntime
from twisted_exec.runtimes.settings import MachineSettings

reactor: Any = _reactor

STEP_BYTES = 2000
LINE_BYTES = 12
_PRINT = r"""
import os, time, tty
tty.setraw(1)
number = 0
while True:
    data = b"".join(b"%011d\n" % each for each in range(number, number + 341))
    number += 341
    while data:
        data = data[os.write(1, data):]
    time.sleep(0.002)  # as a machine that works
"""
PRINTER = {
    "name": "printer",
    "driver": "pty",
    "command": [sys.executable, "-I", "-S", "-c", _PRINT],
    "same_user": True,
    "capabilities": {"cpu": 1, "memory": "64Mi"},
}


def make(state: str) -> MachineRuntime:
    """Return a runtime that is not started."""
    table = ProcessTable(reactor, MARK)
    return MachineRuntime(
        [each.build(reactor, table) for each in parse({"classes": [PRINTER]})],
        table,
        reactor,
        MachineSettings(keep_machines=True),
        state_directory=state,
        cache=RequestCache(reactor),
        links=LINKS,
    )


async def run(state: str, machines: int) -> None:
    """Start the runtime, with new machines if there are none, and print how it goes on."""
    runtime = make(state)
    await runtime.prepare()
    runtime.startService()
    records = runtime.machines.records
    for number in range(machines - len(records)):
        vm = machine(f"x{number}", "printer", uid=f"u{number}")
        await runtime.create_machine(pb.CreateMachineRequest(machine=vm))
    while any(each.state != pb.MACHINE_RUNNING for each in records):
        await pause()
    first = next(iter(runtime.machines.supervisors.values())).journal
    print("up", end="", flush=True)
    steps, begin = 0, first.end

    def printed() -> None:
        nonlocal steps
        while begin + (steps + 1) * STEP_BYTES <= first.end:
            steps += 1
            print(".", end="", flush=True)

    first.watch(printed)


def main() -> None:
    """Run until the end of the process."""
    globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stderr)], redirectStandardIO=False)
    running = Deferred.fromCoroutine(run(sys.argv[1], int(sys.argv[2])))
    running.addErrback(lambda failure: (failure.printTraceback(), reactor.stop()))
    reactor.run()


if __name__ == "__main__":
    main()
