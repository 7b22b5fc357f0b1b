"""
Console alerts: what to look for in what machines print, and what each pool has found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from twisted_exec.api import fields, names, patterns
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds import validation
from twisted_exec.api.kinds.alert_patterns import PRESETS, SEVERITIES, THROTTLE_SECONDS, WARNING
from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.kinds.schemas import LABEL_SELECTOR
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import array, integer, moment, string, struct

MOST_PATTERNS = 64
MOST_POOLS = 256
_LONGEST_THROTTLE_SECONDS = 7 * 24 * 3600

WATCHING, DEGRADED, UNSUPPORTED = STATES = ("Watching", "Degraded", "Unsupported")

_PATTERN = struct(
    {
        "name": string(
            "name identifies the pattern within the alert, such as disk-full.",
            minLength=1,
            maxLength=63,
        ),
        "literal": string(
            "literal is the text to look for. Exactly one of literal and regex must be set.",
            minLength=1,
            maxLength=patterns.MOST_BYTES,
        ),
        "regex": string(
            "regex is a regular expression in the syntax of RE2. It is searched in each line: ^ and $ match at "
            "the beginning and the end of the line. All of an alert together may have 10000 instructions in "
            "RE2's program: \\pL has 1200. Exactly one of literal and regex must be set.",
            minLength=1,
            maxLength=patterns.MOST_BYTES,
        ),
        "severity": string(
            "severity is Info, Warning or Critical. Events of Info are of type Normal, others of type Warning.",
            enum=list(SEVERITIES),
            default=WARNING,
        ),
        "condition": string(
            "condition is a one-word CamelCase reason, such as DiskFull. If it is set, a match sets the machine's "
            "condition ConsoleHealthy to False with this reason, until the machine starts again.",
            pattern="[A-Z][A-Za-z0-9]{0,63}",
        ),
        "throttleSeconds": integer(
            "throttleSeconds is the minimum time between two Events about this pattern and the same machine. "
            "Matches in between are counted.",
            minimum=0,
            maximum=_LONGEST_THROTTLE_SECONDS,
            default=THROTTLE_SECONDS,
        ),
    },
    required=["name"],
)
_SPEC = struct(
    {
        "selector": {
            **LABEL_SELECTOR,
            "description": "selector selects machines of the alert's namespace by their labels. An empty selector "
            "selects all of them.",
        },
        "presets": array(
            string(enum=sorted(PRESETS)),
            "presets are shipped sets of patterns. linux has patterns for kernel panics and other failures of "
            "Linux and its boot loaders.",
            unique=True,
            maxItems=len(PRESETS),
        ),
        "patterns": array(
            _PATTERN,
            "patterns are the texts to look for.",
            keys=["name"],
            maxItems=MOST_PATTERNS,
        ),
    },
    description="spec says what to look for, and in the output of which machines.",
)
_POOL = struct(
    {
        "resource": string("resource is the resource of the pool, in the format PLURAL.GROUP."),
        "name": string("name is the name of the pool."),
        "state": string(
            "state is Watching; Degraded if the pool's machine runtime cannot search some of the patterns; or "
            "Unsupported if it searches for nothing.",
            enum=list(STATES),
        ),
        "message": string("message says why the state is not Watching.", maxLength=1024),
        "observedGeneration": integer(
            "observedGeneration is the metadata.generation that the pool's machine runtime uses."
        ),
        "machines": integer("machines is the number of the pool's machines that are selected."),
        "matches": integer("matches is the number of matches, without those that were throttled."),
        "lastMatchTime": moment("lastMatchTime is when the last matching line was printed."),
        "lastMachine": string("lastMachine is the machine that printed it."),
        "lastPattern": string("lastPattern is the name of the pattern that matched."),
    },
    required=["resource", "name"],
)
_STATUS = struct(
    {
        "pools": array(
            _POOL,
            "pools are the pools with selected machines. Each poollet writes its own entry.",
            keys=["resource", "name"],
            maxItems=MOST_POOLS,
        )
    },
    description="status is the observed state of the alert.",
)


def _pools(alert: Mapping[str, Any]) -> list[Any]:
    return list((alert.get("status") or {}).get("pools") or ())


def _sum(key: str) -> Any:
    return lambda alert: str(sum(int(pool.get(key, 0)) for pool in _pools(alert)))


def _state(alert: Mapping[str, Any]) -> str:
    return ",".join(sorted({str(pool.get("state", "")) for pool in _pools(alert)})) or "<none>"


def _last(alert: Mapping[str, Any]) -> str:
    return max((pool.get("lastMatchTime", "") for pool in _pools(alert)), default="") or "<none>"


def _presets(alert: Mapping[str, Any]) -> str:
    return ",".join(alert.get("spec", {}).get("presets", ())) or "<none>"


def _validate(alert: Object) -> list[Cause]:
    return list(_problems(alert.get("spec", {})))


def _problems(spec: Mapping[str, Any]) -> Iterator[Cause]:
    yield from validation.label_selector(spec.get("selector", {}), "spec.selector")
    presets, given = spec.get("presets", []), spec.get("patterns", [])
    if not presets and not given:
        yield fields.required("spec.patterns", "an alert needs presets or patterns")
    regexes = patterns.problems(each["regex"] for each in given if _has_regex(each))
    for at, pattern in enumerate(given):
        field = f"spec.patterns[{at}]"
        yield from _pattern_problems(pattern, field)
        if _has_regex(pattern) and (problem := next(regexes)):
            yield fields.invalid(f"{field}.regex", pattern["regex"], problem)
    names_before = set()
    for at, pattern in enumerate(given):
        if pattern["name"] in names_before:
            yield fields.duplicate(f"spec.patterns[{at}].name", pattern["name"])
        names_before.add(pattern["name"])


def _pattern_problems(pattern: Mapping[str, Any], field: str) -> Iterator[Cause]:
    for problem in names.dns_label(pattern["name"]):
        yield fields.invalid(f"{field}.name", pattern["name"], problem)
    if ("literal" in pattern) == ("regex" in pattern):
        yield fields.required(field, "exactly one of literal and regex must be set")
        return
    if "literal" in pattern:
        literal = pattern["literal"]
        if len(literal.encode("utf-8", "replace")) > patterns.MOST_BYTES:
            yield fields.too_long(f"{field}.literal", patterns.MOST_BYTES)
        elif not literal.isprintable():
            detail = "must be printable characters; a regex can name others"
            yield fields.invalid(f"{field}.literal", literal, detail)


def _has_regex(pattern: Mapping[str, Any]) -> bool:
    return "regex" in pattern and "literal" not in pattern


CONSOLEALERTS = Kind(
    resource=Resource("console.twisted-exec.dev", "v1alpha1", "consolealerts", "ConsoleAlert"),
    singular="consolealert",
    short_names=("alerts", "alert"),
    description="ConsoleAlert looks for patterns in what machines print on their consoles, and posts Events.",
    schema={"spec": _SPEC, "status": _STATUS},
    required=("spec",),
    columns=(
        Column("Presets", _presets, "The shipped sets of patterns"),
        Column("State", _state, "The states of the pools"),
        Column("Machines", _sum("machines"), "The number of selected machines"),
        Column(
            "Matches", _sum("matches"), "The number of matches, without those that were throttled"
        ),
        Column("Last Match", _last, "When the last matching line was printed", moment=True),
    ),
    has_status=True,
    counts_generation=True,
    work_factor=8,  # regular expressions are compiled
    validate=_validate,
)
