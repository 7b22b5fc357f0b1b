"""
The configuration of shipping: :mod:`twisted_exec.shipping.config`.
"""

from __future__ import annotations

import os
from typing import Any

from twisted.internet import reactor
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program.config_file import ConfigError
from twisted_exec.shipping.config import load, parse

_OTLP = {"kind": "otlp", "url": "https://loki.example/otlp/v1/logs"}
_SYSLOG = {"kind": "syslog", "address": "logs.example"}
_FILES = {"kind": "files", "directory": "/var/log/consoles"}


class ConfigTests(SynchronousTestCase):
    """Documents."""

    def test_sinks(self) -> None:
        """A file has any number of sinks; each is made from it."""
        path = os.path.abspath(self.mktemp())
        with open(path, "w") as file:
            file.write(
                "labels: {pool: pool-a}\n"
                "sinks:\n"
                "  loki: {kind: otlp, url: 'https://loki.example/otlp/v1/logs', max_age: 168h}\n"
                "  central: {kind: syslog, address: '[2001:db8::1]:10514', plain: true}\n"
                "  files: {kind: files, directory: /var/log/consoles, start: newest}\n"
            )
        config = load(path)
        self.assertEqual(config.labels, {"pool": "pool-a"})
        self.assertEqual([each.name for each in config.sinks], ["loki", "central", "files"])
        loki, central, files = config.sinks
        self.assertEqual((loki.max_age_seconds, loki.newest, loki.plain), (604800, False, False))
        self.assertTrue(central.plain)
        self.assertTrue(files.newest)
        for each in config.sinks:
            self.assertEqual(each.make(reactor).name, each.name)

    def test_wrong(self) -> None:
        """Each mistake is one line with its place."""
        token = self.mktemp()
        cases: list[tuple[dict[str, Any], str]] = [
            ({}, "sinks is missing"),
            ({"sinks": {}}, "sinks is empty"),
            ({"sinks": {"A": _OTLP}}, "lower-case letters, digits and hyphens"),
            (
                {"sinks": {"a": {**_OTLP, "kind": "loki"}}},
                "kind must be one of otlp, syslog, files",
            ),
            ({"sinks": {"a": {**_OTLP, "uri": "x"}}}, "unknown key 'uri'; did you mean url?"),
            ({"sinks": {"a": {**_OTLP, "url": "loki:3100"}}}, "is not a URL such as https://"),
            ({"sinks": {"a": {**_OTLP, "url": "https://a:b@c/"}}}, "headers_file"),
            ({"sinks": {"a": {**_OTLP, "url": "https://c:99999/"}}}, "is not a URL"),
            (
                {"sinks": {"a": {"kind": "otlp", "url": "http://c/", "token_file": token}}},
                "token_file and headers_file need a url with https",
            ),
            ({"sinks": {"a": {**_OTLP, "headers_file": token}}}, "cannot read headers file"),
            ({"sinks": {"a": {**_OTLP, "certificate_file": "x"}}}, "go together"),
            ({"sinks": {"a": {**_OTLP, "max_age": "7d"}}}, "max_age: '7d' is no duration"),
            ({"sinks": {"a": {**_SYSLOG, "address": "a:b:c"}}}, "not of the form HOST:PORT"),
            ({"sinks": {"a": {**_SYSLOG, "address": "a:70000"}}}, "not of the form HOST:PORT"),
            ({"sinks": {"a": {**_SYSLOG, "facility": "local8"}}}, "facility must be one of"),
            ({"sinks": {"a": {**_FILES, "directory": "logs"}}}, "is not an absolute path"),
            ({"sinks": {"a": {**_FILES, "max_size": "1Ki"}}}, "is not between 64Ki and 1Ti"),
            ({"sinks": {"a": _FILES}, "labels": {"a b": "c"}}, "labels: 'a b' is not a name"),
            ({"sinks": {"a": _FILES}, "labels": {"a": 1}}, "the value of a must be"),
        ]
        for document, message in cases:
            with self.subTest(message), self.assertRaises(ConfigError) as caught:
                parse(document, "shipping.yaml")
            self.assertIn(message, str(caught.exception))
            self.assertTrue(str(caught.exception).startswith("shipping.yaml"))
