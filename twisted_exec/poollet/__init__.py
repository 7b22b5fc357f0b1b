"""
Program: the poollet, which connects one pool to its machine runtime.
"""

PROGRAM = "exec-poollet"
