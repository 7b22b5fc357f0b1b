"""Limits of a shared console: bytes of scrollback and of lag, and seconds of waits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ConsoleLimits:
    """
    Limits of a shared console.

    :param scrollback_bytes: past output that a new viewer gets.
    :param lag_bytes: a viewer farther behind usually skips to the newest byte.
    :param pace_bytes: a paced line is paused while its fastest viewer is this far behind.
    :param quiet_seconds: time without output after which a session whose input ended is ended.
    :param restart_seconds: how long viewers wait for the next line; 0: not at all.
    """

    scrollback_bytes: int = 256 << 10
    lag_bytes: int = 1 << 20
    pace_bytes: int = 512 << 10
    quiet_seconds: float = 2.0
    restart_seconds: float = 0.0


DEFAULT_LIMITS = ConsoleLimits()
