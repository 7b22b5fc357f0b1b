"""
A runtime whose machines cost nothing, to measure the poollet alone.

``python -m tests.benchmarks.idle_runtime TARGET`` serves it until it is ended.
"""

from __future__ import annotations

import sys

from twisted.internet import reactor

from tests.poollet.doubles import MemoryRuntime
from twisted_exec.iri.server import IRIServer


def main(target: str) -> None:
    runtime = MemoryRuntime()
    runtime.classes = {"shell": ({"cpu": 1, "memory": 64 << 20}, 10_000)}
    server = IRIServer(runtime, target, reactor)
    reactor.callWhenRunning(server.startService)
    reactor.addSystemEventTrigger("before", "shutdown", server.stopService)
    reactor.callWhenRunning(print, "ready", flush=True)
    reactor.run()


if __name__ == "__main__":
    main(sys.argv[1])
