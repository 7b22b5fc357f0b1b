"""
``exec-racks``: Machines and a list of lines from the Servers and BMCs of metal-operator.
"""

from __future__ import annotations

PROGRAM = "exec-racks"
