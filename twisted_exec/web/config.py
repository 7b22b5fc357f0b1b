"""
``/console/config.json``: what a page must know before its first request to the API.
"""

from __future__ import annotations

from typing import Any


def hosted_config() -> dict[str, Any]:
    """Return the configuration of a page that an API server serves."""
    return {"local": False, "login": ["token", "certificate"], "oidc": [], "cluster": ""}
