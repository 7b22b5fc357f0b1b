"""How a process for jobs limits itself; each kind of job has its own numbers."""

from __future__ import annotations

import resource


def limit_process(memory_bytes: int) -> None:
    """Let this process have so much memory, and no further files and processes."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    for limit, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0)):
        resource.setrlimit(limit, (most, most))
    # The kernel does not limit the processes of root.
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def allow_time(cpu_seconds: int) -> None:
    """
    Limit the CPU time of this process from now on to so many seconds, or up to a second more: the
    kernel then ends the process.
    """
    usage = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(usage.ru_utime + usage.ru_stime) + 1 + cpu_seconds
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
