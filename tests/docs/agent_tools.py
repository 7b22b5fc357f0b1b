"""
The table of tools in ``docs/reference/agents-mcp-tools.inc``.

``python -m tests.docs.agent_tools`` writes it; the tests compare.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from twisted_exec.cli.mcp.table import TOOLS, Tool

PATH = Path(__file__).parents[2] / "docs/reference/agents-mcp-tools.inc"


def text() -> str:
    """Return the table."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield from (".. list-table::", "   :header-rows: 1", "   :widths: 18 14 34 34", "")
    yield from _row("tool", "kind", "what it does", "parameters")
    for tool in TOOLS:
        yield from _row(f"``{tool.name}``", _kind(tool), tool.description, _parameters(tool))


def _kind(tool: Tool) -> str:
    if not tool.acts:
        return "reads"
    return "acts, destructive" if tool.destructive else "acts"


def _parameters(tool: Tool) -> str:
    names = [
        f"``{name}``{' (required)' if name in tool.required else ''}" for name in tool.properties
    ]
    return ", ".join(names)


def _row(first: str, *others: str) -> Iterator[str]:
    yield f"   * - {first}"
    yield from (f"     - {_escaped(each)}" for each in others)


def _escaped(text: str) -> str:
    return text.replace("wait_for matches", "``wait_for`` matches")


if __name__ == "__main__":
    PATH.write_text(text())
