"""
The subcommands of ``twisted-exec``: options and parsers, which import the rest when a command runs.
"""

from __future__ import annotations
