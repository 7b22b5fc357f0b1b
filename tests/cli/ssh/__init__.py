"""Tests for ``twisted_exec.cli.ssh``."""
