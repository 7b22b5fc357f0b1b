"""
Texts from clients and their files, for people and logs.
"""

from __future__ import annotations


def shown(text: bytes, most: int = 64) -> str:
    """
    Return a text so that it does no harm in a terminal, a log, or quotes.

    :param most: bytes that are used of it.
    """
    characters = text[:most].decode("utf-8", "replace")
    return "".join(each if each.isprintable() and each not in '"\\' else "?" for each in characters)
