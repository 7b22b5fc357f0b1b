"""File descriptors of a program: their limit, and how many sessions and connections fit into it."""

from __future__ import annotations

import os
import resource

_ENDLESS = 1 << 20

_inherited: tuple[int, int] | None = None
"""Limits of this process before it raised them."""


def descriptor_limit() -> int:
    """Return the most file descriptors that this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _ENDLESS if soft == resource.RLIM_INFINITY else soft


def raise_descriptor_limit() -> None:
    """Raise the soft limit of descriptors to the hard one."""
    global _inherited
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        return  # "unlimited" may exceed what the kernel permits; the old limit remains
    _inherited = soft, hard


def inherited_descriptor_limits() -> tuple[int, int] | None:
    """
    Return the soft and the hard limit that this process was started with, or ``None`` if it has not
    changed them.
    """
    return _inherited


def restore_descriptor_limit(pid: int) -> None:
    """
    Give a child process the limits that this process was started with.

    Programs in a user's shell may use select(2), or close every possible descriptor when they start.
    """
    if _inherited is None:
        return
    try:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, _inherited)
    except (ProcessLookupError, PermissionError):
        pass  # it has ended, or has changed its user


def open_descriptors() -> int:
    """Return the number of this process's open file descriptors."""
    try:
        # Linux 6.2 reports it as the size of the directory; a listing of many takes long.
        return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0
