"""The subcommands of ``twisted-exec``."""

from __future__ import annotations
