"""Tests for :mod:`twisted_exec.runtimes.lines.redfish`."""
