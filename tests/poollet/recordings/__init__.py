"""
Tests for :mod:`twisted_exec.poollet.recordings`.
"""
