"""Tests for ``twisted_exec.ssh``."""
