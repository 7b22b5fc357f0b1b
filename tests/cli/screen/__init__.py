"""
Tests for :mod:`twisted_exec.cli.screen`.
"""
