"""Tests for :mod:`twisted_exec.auth.expressions`."""
