"""
``exec-sshd``: consoles for stock ssh, on a network.
"""

from __future__ import annotations

PROGRAM = "exec-sshd"
