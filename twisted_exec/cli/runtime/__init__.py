"""A machine runtime that a command uses directly, without an API server."""

from __future__ import annotations
