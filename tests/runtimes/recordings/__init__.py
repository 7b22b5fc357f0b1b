"""
Tests for :mod:`twisted_exec.runtimes.recordings`.
"""
