"""
Programs on another system: code to run before the import of a program.
"""

from __future__ import annotations

MACOS = """
import errno, os, resource, select, signal, socket, sys
import asyncio, subprocess, urllib.request  # with parts that only a real macOS has

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("grpc", "grpc_status") or name.startswith("google.protobuf"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.platform = "darwin"
sys.meta_path.insert(0, Missing())
for module, names in {
    os: "memfd_create pidfd_open sched_getaffinity eventfd splice getrandom O_PATH O_TMPFILE",
    resource: "prlimit",
    select: "epoll EPOLLIN EPOLLOUT",
    signal: "SIGPWR SIGSTKFLT SIGPOLL sigtimedwait",
    socket: "SOCK_CLOEXEC SOCK_NONBLOCK SO_PEERCRED SO_PASSCRED AF_NETLINK AF_PACKET AF_VSOCK",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
real_open = os.open

def open_without_proc(path, *arguments, **more):
    if str(path).startswith("/proc/"):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
    return real_open(path, *arguments, **more)

os.open = open_without_proc
"""
"""
macOS, and an installation without grpcio and protobuf: names that only Linux has are missing, and so
is ``/proc``.
"""

WINDOWS = """
import os
os.name = "nt"
"""
"""Windows, as far as our check looks."""
