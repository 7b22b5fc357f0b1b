"""
Tests for :mod:`twisted_exec.screens`.
"""
