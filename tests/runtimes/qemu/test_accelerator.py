"""
Tests for :mod:`twisted_exec.runtimes.qemu.accelerator`.
"""

from __future__ import annotations

import os

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.runtimes.qemu.accelerator import DEVICE, has_kvm


class HasKvmTests(SynchronousTestCase):
    """Tests for :func:`has_kvm`."""

    def test_no_device(self) -> None:
        """Without the device there is none."""
        self.assertFalse(has_kvm("/nonexistent/kvm"))

    def test_other_device(self) -> None:
        """A device that does not answer like KVM is not KVM; no descriptor stays open."""
        before = set(os.listdir("/proc/self/fd"))
        self.assertFalse(has_kvm("/dev/null"))
        # What other tests have left may be closed meanwhile.
        self.assertEqual(set(os.listdir("/proc/self/fd")) - before, set())

    def test_this_host(self) -> None:
        """KVM without permission to use it is not available."""
        self.assertLessEqual(has_kvm(), os.access(DEVICE, os.R_OK | os.W_OK))
