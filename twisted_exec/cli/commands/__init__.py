"""
The subcommands of ``twisted-exec``: parsers, and what they import when a command runs.
"""

from __future__ import annotations
