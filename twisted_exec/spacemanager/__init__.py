"""
The Space Manager: a registry of control planes, and their controllers.
"""

PROGRAM = "exec-spacemanager"
