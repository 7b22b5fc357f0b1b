"""
The Space Manager: a registry of control planes, kept true.
"""

PROGRAM = "exec-spacemanager"
