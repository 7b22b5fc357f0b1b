"""Completion of command lines."""

from __future__ import annotations
