"""JSON documents in responses."""

from __future__ import annotations

import json
from typing import Any


def render(document: Any) -> bytes:
    """Encode a JSON document for a response."""
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"
