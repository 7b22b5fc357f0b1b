"""
Validation of fields that several kinds have: references, labels, selectors, addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Any

from twisted_exec.api import fields, names, quantity, selectors
from twisted_exec.api.fields import Cause

IPV4, IPV6 = "IPv4", "IPv6"
FAMILIES = (IPV4, IPV6)
Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_MOST_SELECTOR_TERMS = 64


def reference(
    obj: Mapping[str, Any],
    key: str,
    field: str,
    *,
    needed: bool = False,
    rule: Callable[[str], list[str]] = names.dns_subdomain,
) -> Iterator[Cause]:
    """
    Check that ``obj[key]["name"]`` is a valid name.

    :param field: path of ``obj[key]``.
    """
    if key not in obj and not needed:
        return
    name = obj.get(key, {}).get("name", "")
    if not name:
        yield fields.required(f"{field}.name", "must specify a name")
        return
    for problem in rule(name):
        yield fields.invalid(f"{field}.name", name, problem)


def labels(values: Mapping[str, str], field: str) -> Iterator[Cause]:
    """Check the keys and values of labels."""
    for key, value in values.items():
        for problem in names.qualified_name(key):
            yield fields.invalid(field, key, problem)
        for problem in names.label_value(value):
            yield fields.invalid(field, value, problem)


def label_selector(selector: Mapping[str, Any], field: str) -> Iterator[Cause]:
    """
    Check a label selector that fits its schema.

    Source: ``ValidateLabelSelector`` of ``k8s.io/apimachinery/pkg/apis/meta/v1/validation``.
    """
    terms = len(selector.get("matchLabels", {})) + sum(
        1 + len(each.get("values", ())) for each in selector.get("matchExpressions", ())
    )
    if terms > _MOST_SELECTOR_TERMS:
        yield fields.too_many(field, terms, _MOST_SELECTOR_TERMS)
        return
    yield from labels(selector.get("matchLabels", {}), f"{field}.matchLabels")
    for index, each in enumerate(selector.get("matchExpressions", ())):
        yield from _expression(each, f"{field}.matchExpressions[{index}]")


def _expression(expression: Mapping[str, Any], field: str) -> Iterator[Cause]:
    operator, values = expression["operator"], expression.get("values", ())
    if operator not in selectors.OPERATORS:
        yield fields.not_supported(f"{field}.operator", operator, selectors.OPERATORS)
    elif operator in selectors.WITH_VALUES and not values:
        detail = "must be specified when `operator` is 'In' or 'NotIn'"
        yield fields.required(f"{field}.values", detail)
    elif operator not in selectors.WITH_VALUES and values:
        detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        yield fields.forbidden(f"{field}.values", detail)
    for problem in names.qualified_name(expression["key"]):
        yield fields.invalid(f"{field}.key", expression["key"], problem)
    for index, value in enumerate(values):
        for problem in names.label_value(value):
            yield fields.invalid(f"{field}.values[{index}]", value, problem)


def positive(resources: Mapping[str, Any], key: str, field: str) -> Iterator[Cause]:
    """Check that ``resources[key]`` is present and positive."""
    if key not in resources:
        yield fields.required(f"{field}[{key}]", f"must specify {key}")
        return
    try:
        amount = quantity.parse(resources[key])
    except ValueError as error:
        yield fields.invalid(f"{field}[{key}]", resources[key], str(error))
        return
    if amount <= 0:
        yield fields.invalid(f"{field}[{key}]", resources[key], "must be greater than zero")


def unchanged(new: Any, old: Any, field: str) -> Iterator[Cause]:
    """Check that a field is unchanged."""
    if new != old:
        yield fields.forbidden(field, "field is immutable")


def set_once(new: Any, old: Any, field: str) -> Iterator[Cause]:
    """Check that a field is unchanged once it is set."""
    if old:
        yield from unchanged(new, old, field)


def address_of(text: str) -> Address | None:
    """Parse an IP address; ``None`` if it is invalid."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def network_of(text: str) -> Network | None:
    """Parse a prefix, ``ADDRESS/BITS``; ``None`` if it is invalid or has host bits set."""
    try:
        return ip_network(text) if "/" in text else None
    except ValueError:
        return None


def family_of(value: Address | Network) -> str:
    """Return ``IPv4`` or ``IPv6``."""
    return IPV4 if value.version == 4 else IPV6


def bits_of(family: str) -> int:
    """Return the address length of an IP family in bits."""
    return 32 if family == IPV4 else 128
