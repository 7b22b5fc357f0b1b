"""
What a leaf says, in the form that it should have.

A leaf may be anyone's, and its JSON may be anything.  Whoever reads it would have to ask of each part
whether it is what it should be; so that is done once, where it arrives.  What is not in its form is
left out: nothing is guessed.  Pure.
"""

from __future__ import annotations

from twisted_exec.kube.interfaces import Object


def mapping(told: object) -> Object:
    """An object; empty where it is none."""
    return told if isinstance(told, dict) else {}


def texts(told: object) -> dict[str, str]:
    """The strings of an object."""
    return {key: value for key, value in mapping(told).items() if isinstance(value, str)}


def mappings(told: object) -> list[Object]:
    """The objects of a list."""
    return [each for each in told if isinstance(each, dict)] if isinstance(told, list) else []


def named(told: object, key: str = "name") -> list[Object]:
    """Those of them that say what they are, by a string that is not empty."""
    return [each for each in mappings(told) if each.get(key) and isinstance(each[key], str)]
