"""
The choice between KVM and emulation.
"""

from __future__ import annotations

import fcntl
import os

from twisted_exec.runtimes.interfaces import MachineFacts
from twisted_exec.runtimes.qemu.command_line import AUTO, KVM, TCG

DEVICE = "/dev/kvm"
# KVM_GET_API_VERSION, which has been 12 since Linux 2.6.22.
_GET_API_VERSION, _API_VERSION = 0xAE00, 12


def has_kvm(device: str = DEVICE) -> bool:
    """
    Return true if KVM responds; it may still fail to run a certain guest.

    Source: the kernel's ``virt/kvm/api.rst``.
    """
    try:
        descriptor = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return fcntl.ioctl(descriptor, _GET_API_VERSION, 0) == _API_VERSION
    except OSError:
        return False
    finally:
        os.close(descriptor)


class Accelerator:
    """The accelerator of one machine."""

    def __init__(self, option: str, facts: MachineFacts) -> None:
        self._option, self._facts = option, facts
        self.current = ""

    def choose(self) -> str:
        self.current = self._option
        if self._option == AUTO:
            failed_before = os.path.exists(self._mark())
            self.current = KVM if has_kvm() and not failed_before else TCG
        return self.current

    @property
    def may_fall_back(self) -> bool:
        """True if the machine runs with KVM, but the class also permits emulation."""
        return self.current == KVM and self._option != KVM

    def emulate(self) -> None:
        self.current = TCG

    def record_failure(self, why: str) -> None:
        """Exclude KVM for later runs of the machine, and post an Event."""
        try:
            os.makedirs(self._facts.storage, mode=0o700, exist_ok=True)
            with open(self._mark(), "w"):
                pass
        except OSError:
            pass  # a later run tries KVM again, and falls back again
        self._facts.event("Warning", "KVMFailed", why)

    def _mark(self) -> str:
        return os.path.join(self._facts.storage, "no-kvm")
