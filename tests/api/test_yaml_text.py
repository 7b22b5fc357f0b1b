"""Tests for :mod:`twisted_exec.api.yaml_text`."""

from __future__ import annotations

import json
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as some
from twisted.trial.unittest import SynchronousTestCase

from tests import soak
from twisted_exec.api import bodies
from twisted_exec.api.yaml_text import yaml_bytes

_TEXT = some.one_of(
    some.text(some.characters(exclude_categories=["Cs"])),
    some.from_regex(r"[-+~=<!&*%@`|>{}\[\],?:#'\" ./0-9a-zA-Z_]{0,12}", fullmatch=True),
    some.sampled_from(["On", "NULL", "~", "1e3", "0x1f", "12:30", "2026-01-01", "-", "a: b", "a:"]),
)
_VALUES = some.recursive(
    some.one_of(
        some.none(),
        some.booleans(),
        some.integers(-(2**63), 2**63 - 1),
        some.floats(allow_nan=False, allow_infinity=False),
        _TEXT,
    ),
    lambda inner: some.one_of(some.lists(inner), some.dictionaries(_TEXT, inner)),
    max_leaves=20,
)


class YAMLBytesTests(SynchronousTestCase):
    """Tests for :func:`yaml_bytes`."""

    def test_layout(self) -> None:
        """Collections are blocks as kubectl prints them; only text that needs it is quoted."""
        document = {
            "spec": {"power": "On", "sizes": [1, 2.5, 1e16], "empty": {}, "none": []},
            "kind": "Machine",
            "list": [{"name": "a", "args": ["x y", "-v"]}, ["b", []], {}],
            "text": "two\nlines",
            "image": "registry.example/a/b:v1",
            "time": "2026-11-21T12:00:00Z",
            "": "ü",
            "unset": None,
        }
        self.assertEqual(
            yaml_bytes(document).decode(),
            '"": "ü"\n'
            "image: registry.example/a/b:v1\n"
            "kind: Machine\n"
            "list:\n"
            "- args:\n"
            "  - x y\n"
            '  - "-v"\n'
            "  name: a\n"
            "- - b\n"
            "  - []\n"
            "- {}\n"
            "spec:\n"
            "  empty: {}\n"
            "  none: []\n"
            '  power: "On"\n'
            "  sizes:\n"
            "  - 1\n"
            "  - 2.5\n"
            "  - 1.0e+16\n"
            'text: "two\\nlines"\n'
            'time: "2026-11-21T12:00:00Z"\n'
            "unset: null\n",
        )

    @given(_VALUES)
    def test_read_back(self, value: Any) -> None:
        """PyYAML reads the same data, and so does this server in a request."""
        text = yaml_bytes(value)
        self.assertEqual(json.dumps(yaml.safe_load(text)), json.dumps(value, sort_keys=True))

    @settings(max_examples=soak.figure_of("api.test_yaml_text.YAMLBytesTests.test_request"))
    @given(some.dictionaries(_TEXT, _VALUES))
    def test_request(self, value: dict[str, Any]) -> None:
        """The answer of one request can be the body of the next."""
        read = bodies.decode("application/yaml", yaml_bytes({"a": value}))
        self.assertEqual(json.dumps(read), json.dumps({"a": value}, sort_keys=True))
