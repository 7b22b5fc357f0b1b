"""
Syntax of names, labels and annotations, and names for ``generateName``.

Each check returns a list of problems, mostly worded as in Kubernetes
(``k8s.io/apimachinery/pkg/util/validation``).
"""

from __future__ import annotations

import re
import secrets

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = rf"({_QUALIFIED})?"

_LABEL_RE = re.compile(_LABEL)
_SUBDOMAIN_RE = re.compile(_SUBDOMAIN)
_QUALIFIED_RE = re.compile(_QUALIFIED)
_VALUE_RE = re.compile(_VALUE)

_LABEL_WORDS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    f"for validation is '{_LABEL}')"
)
_SUBDOMAIN_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    rf"for validation is '{_SUBDOMAIN}')"
)
_QUALIFIED_WORDS = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    f"validation is '{_QUALIFIED}')"
)
_VALUE_WORDS = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    f"or '12345', regex used for validation is '{_VALUE}')"
)

_MOST_MATCHED = 4096
"""Characters of a value that is compared with a pattern."""

# Kubernetes' safe alphabet, without vowels, so that no word appears by chance.
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def _longer_than(limit: int, value: str) -> list[str]:
    if len(value) > limit:
        return [f"must be no more than {limit} characters"]
    return []


def _unlike(pattern: re.Pattern[str], words: str, value: str) -> list[str]:
    # The pattern takes linear time, which is wasted on megabytes: those are too long anyway.
    if len(value) <= _MOST_MATCHED and not pattern.fullmatch(value):
        return [words]
    return []


def dns_label(value: str) -> list[str]:
    """Check a DNS label of up to 63 characters: names of machines and namespaces."""
    return _longer_than(63, value) + _unlike(_LABEL_RE, _LABEL_WORDS, value)


def dns_subdomain(value: str) -> list[str]:
    """Check a DNS subdomain of up to 253 characters: names of most objects."""
    return _longer_than(253, value) + _unlike(_SUBDOMAIN_RE, _SUBDOMAIN_WORDS, value)


def path_segment(value: str) -> list[str]:
    """Check a single segment of a URL path, such as the name of a role: ``system:basic-user``."""
    if value in (".", ".."):
        return [f"may not be '{value}'"]
    wrong = [f"may not contain '{mark}'" for mark in "/%" if mark in value]
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in value):
        wrong.append("may not contain control characters")
    return wrong + _longer_than(253, value)


def qualified_name(value: str) -> list[str]:
    """Check a label key, ``[PREFIX/]NAME``."""
    prefix, slash, name = value.rpartition("/")
    wrong: list[str] = []
    if slash:
        if not prefix:
            wrong.append("prefix part must be non-empty")
        else:
            wrong += [f"prefix part {problem}" for problem in dns_subdomain(prefix)]
    if not name:
        wrong.append("name part must be non-empty")
    elif len(name) > 63:
        wrong.append("name part must be no more than 63 characters")
    return wrong + _unlike(_QUALIFIED_RE, _QUALIFIED_WORDS, name)


def label_value(value: str) -> list[str]:
    """Check a label value."""
    return _longer_than(63, value) + _unlike(_VALUE_RE, _VALUE_WORDS, value)


def generated(prefix: str) -> str:
    """Return a name for ``generateName``: the prefix, cut if too long, and random characters."""
    return prefix[:58] + "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(5))
