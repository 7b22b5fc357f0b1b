"""
Patterns that are searched in the output of machines: literal text and regular expressions.

Regular expressions have the syntax of RE2, which needs linear time for every expression and every
text.  Most need the package ``google-re2``; literal text works without.  Python's own ``re`` is no
substitute: a hostile expression or line stops the whole program.

Source: https://github.com/google/re2/wiki/Syntax.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

UNSUPPORTED = (
    "regular expressions need the Python package google-re2, which is not installed on this host: "
    "pip install google-re2"
)

MOST_BYTES = 1 << 10
"""Limit of one pattern."""

MOST_INSTRUCTIONS = 10_000
"""Limit of the regular expressions of one object together, in instructions of RE2's program."""

_MOST_INSTRUCTIONS = 5_000
"""Limit of one regular expression, in instructions."""
_MOST_CLASSES = 16
"""Limit of Unicode classes in one expression, because RE2 parses them slowly."""
_CLASS_INSTRUCTIONS = 300
"""The least cost of a Unicode class, for its parsing."""
_CHECK_BYTES = 128 << 10
"""Memory for the check of an expression, which bounds its time to a few milliseconds."""
_SEARCH_BYTES = 8 << 20
_EXAMPLE_BYTES = 40
_KEPT = 1024
_CLASS = re.compile(r"\\[pP]")
_TOO_COMPLEX = "it is too complex: repeat less"
_META = frozenset(b"\\.+*?()|[]{}^$")

# Expressions for which a match in a line need not be one in the text around it.
_ANCHORS = re.compile(r"\\[AzCQ]|\(\?[a-zA-Z]*-")

try:
    import re2
except ImportError:  # no wheel for this system
    re2 = None

SUPPORTED = re2 is not None
"""Whether regular expressions work in this process."""


class PatternError(ValueError):
    """A pattern that cannot be used; the message is for the user."""


@dataclass(frozen=True)
class Pattern:
    """One pattern; literal text unless ``is_regex``."""

    text: str
    is_regex: bool = False


class Search:
    """One pattern, to be searched in bytes."""

    def __init__(self, pattern: Pattern) -> None:
        """
        :param pattern: in a regular expression, ``^`` and ``$`` match at each line.
        :raises PatternError: it is not valid, or needs google-re2, which is missing.
        """
        literal = _literal_of(pattern)
        self._literal = literal or b""
        self._compiled: Any = None
        if not pattern.text:
            raise PatternError("it is empty")
        if literal is None:
            if wrong := problem(pattern.text):
                raise PatternError(wrong)
            if not SUPPORTED:
                raise PatternError(UNSUPPORTED)
            self._compiled = re2.compile(b"(?m)" + pattern.text.encode(), _options(_SEARCH_BYTES))
        # Anchors of the text, and flags that could change the others.
        self._has_text_anchor = any(each in pattern.text for each in ("\\A", "\\z", "(?"))

    @property
    def finds_in_blocks(self) -> bool:
        """
        Return whether a match in any line is also found when several lines are searched at once.
        """
        return self._compiled is None or not self._has_text_anchor

    def end_in(self, text: bytes) -> int:
        """Return where the first match ends, or -1."""
        if self._compiled is None:
            at = text.find(self._literal)
            return at if at < 0 else at + len(self._literal)
        match = self._compiled.search(text)
        return -1 if match is None else int(match.end())

    def example(self) -> str:
        """Return a short text in which the pattern matches; empty if none is known."""
        text = self._literal
        if self._compiled is not None:
            # The least text that may match at the start; it is one that matches for most patterns.
            text, _ = self._compiled.possiblematchrange(_EXAMPLE_BYTES)
        example = text.decode(errors="replace")
        fits = len(text) < _EXAMPLE_BYTES and example.isprintable() and self.end_in(text) >= 0
        return example if fits else ""

    def spans(self, text: bytes) -> Iterator[tuple[int, int]]:
        """
        Iterate over the starts and ends of the matches, which do not overlap; empty ones count.
        """
        if self._compiled is not None:
            for match in self._compiled.finditer(text):
                yield match.span()
            return
        at = text.find(self._literal)
        while at >= 0:
            end = at + len(self._literal)
            yield at, end
            at = text.find(self._literal, end)


class PatternSet:
    """
    Several patterns, searched at once.

    Without google-re2, only literal text matches.

    :param patterns: valid ones; literal text has no line ends.
    :raises PatternError: they need too much memory together.
    """

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._literals = [
            (number, pattern.text.encode())
            for number, pattern in enumerate(patterns)
            if not pattern.is_regex
        ]
        self._numbers = [number for number, each in enumerate(patterns) if each.is_regex]
        self._regexes = self._anywhere = None
        if SUPPORTED and self._numbers:
            several = [patterns[number].text for number in self._numbers]
            self._regexes = _regex_set(several)
            if not any(_ANCHORS.search(text) for text in several):
                self._anywhere = _regex_set([f"(?m:{text})" for text in several])

    def search(self, line: bytes) -> list[int]:
        """Return the indices of the patterns that match one line, in ascending order."""
        return self._search(self._literals, True, line)

    def within(self, lines: bytes) -> Callable[[bytes], list[int]] | None:
        """
        Look at several lines at once, with newlines between them.

        :return: :meth:`search` for these lines only; ``None`` if no line matches.
        """
        literals = [each for each in self._literals if each[1] in lines]
        is_match = self._regexes is not None and (
            self._anywhere is None or bool(self._anywhere.Match(lines))
        )
        return partial(self._search, literals, is_match) if literals or is_match else None

    def _search(
        self, literals: Sequence[tuple[int, bytes]], with_regexes: bool, line: bytes
    ) -> list[int]:
        found = [number for number, literal in literals if literal in line]
        if with_regexes and self._regexes is not None:
            found += [self._numbers[at] for at in self._regexes.Match(line) or ()]
            found.sort()
        return found


def _regex_set(several: Sequence[str]) -> Any:
    made = re2.Set.SearchSet(_options(_SEARCH_BYTES))
    try:
        for text in several:
            made.Add(text)
        made.Compile()
    except re2.error:
        raise PatternError("they are too complex together: repeat less") from None
    return made


def problem(regex: str) -> str:
    """
    Return what is wrong with a regular expression; empty if nothing is.

    Without google-re2, only the length is checked.
    """
    return next(problems([regex]))


def problems(several: Iterable[str]) -> Iterator[str]:
    """
    Yield what is wrong with each of the regular expressions of one object, as :func:`problem`; they
    share a limit.
    """
    left = MOST_INSTRUCTIONS
    for regex in several:
        if left <= 0:
            yield (
                "it is too complex together with the expressions before it: "
                f"{MOST_INSTRUCTIONS} instructions are the limit"
            )
            continue
        wrong, instructions = "", 0
        if len(regex.encode("utf-8", "replace")) > MOST_BYTES:
            wrong = f"it has more than {MOST_BYTES} bytes"
        elif SUPPORTED:
            wrong, instructions = _checked(regex)
        left -= instructions
        yield wrong


@lru_cache(_KEPT)
def _checked(regex: str) -> tuple[str, int]:
    classes = len(_CLASS.findall(regex))
    if classes > _MOST_CLASSES:
        return f"it is too complex: {_MOST_CLASSES} Unicode classes are the limit", 0
    try:
        instructions = int(re2.compile(regex, _options(_CHECK_BYTES)).programsize)
    except re2.error as error:
        wrong = _explained(regex, error.args[0] if error.args else b"")
        return wrong, _MOST_INSTRUCTIONS if wrong == _TOO_COMPLEX else len(regex)
    except UnicodeEncodeError as error:  # a lone surrogate
        return f"character {error.start + 1}: it is not a Unicode character", 0
    wrong = _TOO_COMPLEX if instructions > _MOST_INSTRUCTIONS else ""
    return wrong, max(instructions, classes * _CLASS_INSTRUCTIONS)


def _explained(regex: str, reported: bytes | str) -> str:
    text = reported.decode("utf-8", "replace") if isinstance(reported, bytes) else reported
    what, _, fragment = text.partition(": ")
    if "compile failed" in text:
        return _TOO_COMPLEX
    if what in ("missing )", "unexpected )"):
        at = _unbalanced(regex)
    elif what.startswith("trailing"):
        at = len(regex) - 1
    else:
        at = max(0, regex.find(fragment))
    return f"character {at + 1}: {text}"


def _unbalanced(regex: str) -> int:
    opened: list[int] = []
    in_class = -1
    at = 0
    while at < len(regex):
        char = regex[at]
        if char == "\\":
            at += 1
        elif in_class >= 0:
            if char == "]" and at > in_class + 1:
                in_class = -1
        elif char == "[":
            in_class = at + 1 if regex[at + 1 : at + 2] == "^" else at
        elif char == "(":
            opened.append(at)
        elif char == ")":
            if not opened:
                return at
            opened.pop()
        at += 1
    return opened[0] if opened else 0


def _literal_of(pattern: Pattern) -> bytes | None:
    text = pattern.text.encode("utf-8", "surrogateescape")
    if not pattern.is_regex:
        return text
    literal, at = bytearray(), 0
    while at < len(text):
        byte = text[at]
        if byte == 0x5C and at + 1 < len(text) and text[at + 1] in _META:
            at += 1
            byte = text[at]
        elif byte in _META:
            return None
        literal.append(byte)
        at += 1
    return bytes(literal)


def _options(memory_bytes: int) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = memory_bytes
    return options
