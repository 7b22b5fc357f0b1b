"""
The part of the input that a machine echoes: :mod:`twisted_exec.recording.echo`.
"""

from __future__ import annotations

from twisted_exec.recording.echo import ECHO_SECONDS, Echo

__all__ = ["ECHO_SECONDS", "Echo"]
