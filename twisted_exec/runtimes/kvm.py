"""
Whether the kernel runs virtual machines, and for us: see the kernel's ``virt/kvm/api.rst``.
"""

from __future__ import annotations

import fcntl
import os

DEVICE = "/dev/kvm"

# KVM_GET_API_VERSION, which has been 12 since Linux 2.6.22.
_GET_API_VERSION, _API_VERSION = 0xAE00, 12


def has_kvm(device: str = DEVICE) -> bool:
    """Whether it answers.  That it can run a certain guest shows only when it does."""
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
