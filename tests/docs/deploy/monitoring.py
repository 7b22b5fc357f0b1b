"""
The alert rules and the dashboard in ``docs/deploy``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import yaml

from .files import DEPLOY

RULES = DEPLOY / "prometheus" / "alerts.yaml"
CONFIG = DEPLOY / "prometheus" / "prometheus.yml"
DASHBOARD = DEPLOY / "grafana" / "twisted-exec.json"

_METRIC = re.compile(r"\b(?:twisted_exec|process)_[a-z_]+")
_SELECTOR = re.compile(r"([a-z_:]+)\{([^}]*)\}")
_LABEL = re.compile(r"([a-z_]+) *(?:=~|!~|!=|=)")
_GROUPING = re.compile(r"\bby \(([^)]*)\)")
_TEMPLATE = re.compile(r"\$labels\.([a-z_]+)|\{\{ *([a-z_]+) *\}\}")


@dataclass(frozen=True)
class Query:
    """
    A query of an alert rule or a panel.

    :param name: of the rule or panel.
    :param text: what is shown of the result, with its labels.
    """

    name: str
    expression: str
    text: str

    @property
    def metrics(self) -> set[str]:
        """The names of the metrics of our programs."""
        return set(_METRIC.findall(self.expression))

    @property
    def labels(self) -> set[str]:
        """The names of the labels that the query or its text mentions."""
        found = {
            label
            for _, selector in _SELECTOR.findall(self.expression)
            for label in _LABEL.findall(selector)
        }
        for grouping in _GROUPING.findall(self.expression):
            found |= {label.strip() for label in grouping.split(",")}
        return found | {first or second for first, second in _TEMPLATE.findall(self.text)}


def rules() -> list[dict[str, Any]]:
    """Return all alert rules."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    """Return all panels of the dashboard."""
    return list(json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"])


def queries_of_rules() -> list[Query]:
    """Return the queries of all alert rules."""
    return [
        Query(rule["alert"], rule["expr"], " ".join(rule["annotations"].values()))
        for rule in rules()
    ]


def queries_of_panels() -> list[Query]:
    """Return the queries of all panels."""
    return [
        Query(panel["title"], target["expr"], target["legendFormat"])
        for panel in panels()
        for target in panel.get("targets", ())
    ]
