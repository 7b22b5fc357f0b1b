"""
Answers to scenarios, so told that those of two servers can be compared.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twisted_exec.api import times

from .apply_scenarios import VERSION, Step

_RECORD = Path(__file__).parents[1] / "captures/kube-apiserver-1.33.1-apply.json"
RECORDED: dict[str, list[dict[str, Any]]] = json.loads(_RECORD.read_text())
"""What kube-apiserver 1.33.1 answered, by scenario and step."""

_METADATA = ("name", "labels", "annotations", "finalizers", "ownerReferences", "generation")


@dataclass(frozen=True)
class Answer:
    """A recorded response."""

    code: int
    document: Any
    headers: Mapping[str, str]


class Steps:
    """A scenario as it runs: knows which time belongs to which step."""

    def __init__(self) -> None:
        self._seconds: list[int] = []
        self._version = ""

    def begin(self, now: float) -> None:
        """The next step begins."""
        self._seconds.append(int(now))

    def raw(self, step: Step) -> bytes:
        """The step's body."""
        text = step.body if isinstance(step.body, str) else json.dumps(step.body)
        return text.replace(VERSION, self._version).encode()

    def ended(self, answer: Answer) -> None:
        """Keep the version of the object that came back, if one did."""
        if answer.code < 300:
            self._version = answer.document["metadata"].get("resourceVersion", self._version)

    def without_times(self, text: str) -> str:
        """A text with the steps' times told as steps."""
        for number, second in enumerate(self._seconds):
            text = text.replace(times.timestamp(second), f"step {number}")
        return text

    def told(self, timestamp: str) -> str:
        """A time as the step in which it was: ``step 2``; those before the scenario stay."""
        second = int(times.seconds(timestamp))
        number = bisect_right(self._seconds, second) - 1
        return f"step {number}" if number >= 0 else timestamp


def answer_of(answer: Answer, steps: Steps) -> dict[str, Any]:
    """The part of a response that all servers must agree on."""
    told: dict[str, Any] = {"code": answer.code}
    if answer.code >= 300:
        return told | _refusal(answer.document, steps)
    document, metadata = answer.document, answer.document["metadata"]
    told |= {key: metadata[key] for key in _METADATA if key in metadata}
    told |= {key: document[key] for key in document if key not in _apart(document)}
    if warnings := answer.headers.get("Warning"):
        told["warnings"] = warnings
    if "managedFields" in metadata:
        told["managedFields"] = [
            entry | ({"time": steps.told(entry["time"])} if "time" in entry else {})
            for entry in metadata["managedFields"]
        ]
    return told


def _apart(document: Any) -> tuple[str, ...]:
    # Machines and namespaces begin with a status here and there, which no scenario writes.
    begun = document["kind"] in ("Machine", "Namespace")
    return ("apiVersion", "kind", "metadata", *(["status"] if begun else []))


def _refusal(status: Any, steps: Steps) -> dict[str, Any]:
    told = {key: status[key] for key in ("message", "reason", "details") if status.get(key)}
    found: dict[str, Any] = json.loads(steps.without_times(json.dumps(told)))
    return found


def alike(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without what says nothing: the order of causes, those told twice, types of Go."""
    text = json.dumps(answer).replace('[]string{\\"Some\\"}', '[\\"Some\\"]')
    found: dict[str, Any] = json.loads(text)
    if causes := found.get("details", {}).get("causes"):
        unique = {json.dumps(cause, sort_keys=True) for cause in causes}
        found["details"]["causes"] = [json.loads(cause) for cause in sorted(unique)]
    return found
