"""
Label and field selectors: ``app=web,tier in (a, b),!old`` and ``metadata.name=x``.

Source: ``k8s.io/apimachinery/pkg/labels`` and ``pkg/fields``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from twisted_exec.api import names
from twisted_exec.api.status import BadRequest

_SET = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUALS = re.compile(r"(?P<key>[^\s=!]+)\s*(?P<operator>==|=|!=)\s*(?P<values>[^\s=!,]*)")
_COMPARE = re.compile(r"(?P<key>[^\s<>]+)\s*(?P<operator><|>)\s*(?P<values>-?[0-9]{1,18})")
_PUNCTUATION = re.compile(r"[(),]")
_LIMIT_CHARACTERS = 4096
_LIMIT_TERMS = 256
"""The most different terms of a selector."""
_REMEMBERED = 128
OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}
"""The operators of ``matchExpressions``, and those of :class:`Requirement`."""
WITH_VALUES = ("In", "NotIn")
"""The operators that need values; the others must not have any."""

Field = Callable[[Mapping[str, Any]], str]
"""Returns one selectable field of an object; a missing one is empty."""


@dataclass(frozen=True)
class Requirement:
    """One term of a label selector.  ``operator``: in, notin, exists, absent, <, >."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels fulfil this requirement."""
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value in self.values
            case "notin":
                return value not in self.values
            case "exists":
                return value is not None
            case "absent":
                return value is None
        return value is not None and self._compares(value)

    def _compares(self, value: str) -> bool:
        if not re.fullmatch(r"-?[0-9]{1,18}", value):
            return False
        (bound,) = self.values
        return int(value) < int(bound) if self.operator == "<" else int(value) > int(bound)


@dataclass(frozen=True)
class LabelSelector:
    """Requirements that must all hold; an empty selector matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with these labels is selected."""
        return all(requirement.matches(labels) for requirement in self.requirements)


def of_object(definition: Mapping[str, Any] | None) -> LabelSelector:
    """
    Parse a ``LabelSelector`` object; an empty or missing one selects everything.

    Objects that an earlier release has stored may have selectors that no server accepts now.

    :raises ValueError: an operator is unknown, has no values although it needs them, or has values
        that it does not compare.
    """
    definition = definition or {}
    requirements = [
        Requirement(key, "in", frozenset([value]))
        for key, value in sorted((definition.get("matchLabels") or {}).items())
    ]
    for each in definition.get("matchExpressions") or ():
        name, values = str(each.get("operator")), each.get("values") or ()
        if name not in OPERATORS:
            raise ValueError(f"{name!r} is not a valid label selector operator")
        if bool(values) is not (name in WITH_VALUES):
            wrong = "must not have values" if values else "needs values"
            raise ValueError(f"the operator {name} of a label selector {wrong}")
        requirements.append(Requirement(each.get("key"), OPERATORS[name], frozenset(values)))
    return LabelSelector(tuple(requirements))


@lru_cache(maxsize=_REMEMBERED)
def parse_labels(text: str) -> LabelSelector:
    """
    Parse a label selector.

    :raises BadRequest: the text is malformed or too long.
    """
    _check_length(text)
    if not text.strip():
        return LabelSelector()
    return LabelSelector(tuple(_requirement(term) for term in _different(_label_terms(text))))


def _label_terms(text: str) -> Iterator[str]:
    commas, in_values = [], False
    for found in reversed(list(_PUNCTUATION.finditer(text))):
        if found[0] != ",":
            in_values = found[0] == ")"
        elif not in_values:
            commas.append(found.start())
    first = 0
    for comma in reversed(commas):
        yield text[first:comma].strip()
        first = comma + 1
    yield text[first:].strip()


def _different(terms: Iterable[str]) -> list[str]:
    different = list(dict.fromkeys(terms))
    if len(different) > _LIMIT_TERMS:
        raise BadRequest(
            f"a selector has {len(different)} different terms: {_LIMIT_TERMS} are the limit"
        )
    return different


def _requirement(term: str) -> Requirement:
    if match := _SET.fullmatch(term):
        values = frozenset(value.strip() for value in match["values"].split(","))
        return _checked(Requirement(match["key"], match["operator"], values), term)
    if match := _COMPARE.fullmatch(term):
        return _checked(Requirement(match["key"], match["operator"], frozenset([match["values"]])))
    if match := _EQUALS.fullmatch(term):
        operator = "notin" if match["operator"] == "!=" else "in"
        return _checked(Requirement(match["key"], operator, frozenset([match["values"]])), term)
    if term.startswith("!"):
        return _checked(Requirement(term[1:].strip(), "absent"), term)
    return _checked(Requirement(term, "exists"), term)


def _checked(requirement: Requirement, term: str = "") -> Requirement:
    wrong = names.qualified_name(requirement.key)
    for value in requirement.values if term else ():
        wrong += names.label_value(value)
    if wrong:
        raise BadRequest(f'unable to parse label selector "{term}": {wrong[0]}')
    return requirement


@dataclass(frozen=True)
class FieldSelector:
    """Terms ``(field, equal, value)`` that must all hold."""

    terms: tuple[tuple[str, bool, str], ...] = ()

    def matches(self, obj: Mapping[str, Any], fields: Mapping[str, Field]) -> bool:
        """
        Return whether an object is selected.

        :param fields: of the kind; :meth:`check` has been called.
        """
        return all((fields[key](obj) == value) is equal for key, equal, value in self.terms)

    def check(self, fields: Mapping[str, Field]) -> None:
        """
        Check that the fields of all terms are selectable.

        :raises BadRequest: a field is not selectable.
        """
        for key, _, _ in self.terms:
            if key not in fields:
                raise BadRequest(f"field label not supported: {key}")

    def required(self, key: str) -> str | None:
        """Return the value that ``key`` must equal, or ``None`` if the selector leaves it open."""
        for term, equal, value in self.terms:
            if term == key and equal:
                return value
        return None


EVERYTHING = FieldSelector()
"""The selector without terms."""


@lru_cache(maxsize=_REMEMBERED)
def parse_fields(text: str) -> FieldSelector:
    """
    Parse a field selector: ``a=b``, ``a==b``, ``a!=b``, joined by commas.

    :raises BadRequest: the text is malformed or too long.
    """
    _check_length(text)
    return FieldSelector(tuple(_field_term(term) for term in _different(_field_terms(text))))


def _field_terms(text: str) -> list[str]:
    # A backslash escapes a comma, an equals sign or a backslash in a value.
    return [term for term in re.findall(r"((?:[^,\\]|\\.)+)", text) if term]


def _field_term(term: str) -> tuple[str, bool, str]:
    match = re.match(r"([^=!\\]+)(==|!=|=)", term)
    value = term[match.end() :] if match else ""
    if match is None or re.search(r"(?<!\\)=", value):
        raise BadRequest(
            f"invalid selector: '{term}'; can't understand it: fields are selected as name=value"
        )
    return match[1], match[2] != "!=", re.sub(r"\\([,=\\])", r"\1", value)


def _check_length(text: str) -> None:
    if len(text) > _LIMIT_CHARACTERS:
        raise BadRequest(f"selector is longer than {_LIMIT_CHARACTERS} characters")
