"""
Writing of YAML in the layout of ``kubectl get -o yaml``.

Keys and structure are as there. A text that is not plain is in double quotes, also one of several lines.
"""

from __future__ import annotations

import json
import re
from typing import Any

# No number, date or mark of YAML begins with a letter; the words that mean something else follow.
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@-]*(?:[ :][A-Za-z0-9_./@-]+)*")
_WORDS = frozenset(("y", "yes", "n", "no", "true", "false", "on", "off", "null"))
_NOT_ASCII = re.compile(r"[^\x20-\x7e]")


def yaml_bytes(document: Any) -> bytes:
    """Encode JSON data as YAML, with sorted keys."""
    lines: list[str] = []
    _add(lines, "", "", document)
    lines.append("")
    return "\n".join(lines).encode()


def _add(lines: list[str], first: str, rest: str, value: Any) -> None:
    if isinstance(value, dict) and value:
        for key in sorted(value):
            each = value[key]
            if each and isinstance(each, dict | list):
                lines.append(f"{first}{_text(key)}:")
                inner = rest if isinstance(each, list) else f"{rest}  "
                _add(lines, inner, inner, each)
            else:
                lines.append(f"{first}{_text(key)}: {_scalar(each)}")
            first = rest
    elif isinstance(value, list) and value:
        for each in value:
            _add(lines, f"{first}- ", f"{rest}  ", each)
            first = rest
    else:
        lines.append(first + _scalar(value))


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    text = json.dumps(value)
    # YAML 1.1 requires a point in a float.
    return text.replace("e", ".0e") if type(value) is float and "." not in text else text


def _text(value: str) -> str:
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    if value.isprintable():
        return quoted
    return _NOT_ASCII.sub(lambda match: f"\\U{ord(match[0]):08x}", quoted)
