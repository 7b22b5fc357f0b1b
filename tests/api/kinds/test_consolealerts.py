"""
Tests for :mod:`twisted_exec.api.kinds.consolealerts`.
"""

from __future__ import annotations

from typing import Any
from unittest import skipUnless

from tests.api.kinds.support import KindTestCase
from twisted_exec.api import patterns
from twisted_exec.api.kinds import CONSOLEALERTS
from twisted_exec.api.kinds.alert_patterns import PRESETS, patterns_of
from twisted_exec.api.patterns import Pattern, PatternSet


class ConsoleAlertTests(KindTestCase):
    """ConsoleAlerts."""

    kind = CONSOLEALERTS

    def patterns_refused(self, *several: dict[str, Any]) -> list[str]:
        return self.refused(spec={"patterns": list(several)})

    def test_defaults(self) -> None:
        """
        A pattern needs a name and a text; the rest has defaults.
        """
        alert = self.create(spec={"patterns": [{"name": "a", "literal": "x"}]})
        self.assertEqual(
            alert["spec"]["patterns"],
            [{"name": "a", "literal": "x", "severity": "Warning", "throttleSeconds": 300}],
        )

    def test_presets(self) -> None:
        """
        One word selects a shipped set.
        """
        self.create(spec={"presets": ["linux"]})
        self.assertEqual(
            self.refused(spec={"presets": ["vax"]}),
            ['spec.presets[0]: Unsupported value: "vax": supported values: "linux"'],
        )
        self.assertIn(
            'spec.presets[1]: Duplicate value: "linux"',
            self.refused(spec={"presets": ["linux", "linux"]}),
        )

    def test_nothing_to_look_for(self) -> None:
        """
        An alert needs patterns.
        """
        self.assertEqual(
            self.refused(spec={}),
            ["spec.patterns: Required value: an alert needs presets or patterns"],
        )

    @skipUnless(patterns.SUPPORTED, patterns.UNSUPPORTED)
    def test_too_complex_in_all(self) -> None:
        """
        The regular expressions of an alert have a limit in all; literal texts between them do not count.
        """
        several: list[dict[str, Any]] = []
        for number in range(6):
            several += [
                {"name": f"l{number}", "literal": "x"},
                {"name": f"r{number}", "regex": f"(a{{1,100}}){{1,10}}{number}"},
            ]
        self.assertEqual(
            self.patterns_refused(*several),
            [
                'spec.patterns[11].regex: Invalid value: "(a{1,100}){1,10}5": it is too complex together with '
                "the expressions before it: 10000 instructions are the limit"
            ],
        )

    def test_too_many(self) -> None:
        """
        An alert has at most 64 patterns of at most 1 KiB.
        """
        several = [{"name": f"p{number}", "literal": "x"} for number in range(65)]
        self.assertEqual(
            self.patterns_refused(*several),
            ["spec.patterns: Too many: 65: must have at most 64 items"],
        )
        for text, unit in (("x" * 1025, "characters"), ("\u00e9" * 513, "bytes")):
            self.assertIn(
                f"spec.patterns[0].literal: Too long: may not be more than 1024 {unit}",
                self.patterns_refused({"name": "a", "literal": text}),
            )

    @skipUnless(patterns.SUPPORTED, patterns.UNSUPPORTED)
    def test_bad_regex(self) -> None:
        """
        The message has the position within the expression.
        """
        self.assertEqual(
            self.patterns_refused({"name": "a", "literal": "x"}, {"name": "b", "regex": "ab(c"}),
            ['spec.patterns[1].regex: Invalid value: "ab(c": character 3: missing ): ab(c'],
        )

    def test_without_the_extra(self) -> None:
        """
        Without google-re2 an API server accepts any expression.
        """
        self.patch(patterns, "SUPPORTED", False)
        self.create(spec={"patterns": [{"name": "b", "regex": "ab(c"}]})

    def test_bad_patterns(self) -> None:
        """
        Exactly one text, a name of its own, printable text, a reason in CamelCase.
        """
        for pattern, message in (
            (
                {"name": "a"},
                "spec.patterns[0]: Required value: exactly one of literal and regex must be set",
            ),
            (
                {"name": "a", "literal": "x", "regex": "x"},
                "spec.patterns[0]: Required value: exactly one of literal and regex must be set",
            ),
            (
                {"name": "a", "literal": "x\ny"},
                'spec.patterns[0].literal: Invalid value: "x\\ny": must be printable characters; a regex '
                "can name others",
            ),
        ):
            self.assertEqual(self.patterns_refused(pattern), [message])
        for wrong in ({"name": "A_"}, {"condition": "not camel"}, {"throttleSeconds": -1}):
            self.assertEqual(len(self.patterns_refused({"name": "a", "literal": "x", **wrong})), 1)
        twice = self.patterns_refused({"name": "a", "literal": "x"}, {"name": "a", "literal": "y"})
        self.assertEqual(twice, ['spec.patterns[1].name: Duplicate value: "a"'])

    def test_selector(self) -> None:
        """
        A selector that matches no valid label is refused.
        """
        spec = {"presets": ["linux"]}
        for selector in (
            {"matchLabels": {"-": "x"}},
            {"matchLabels": {"a": "x" * 64}},
            {"matchExpressions": [{"key": "a", "operator": "Near"}]},
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["x"] * 100}]},
        ):
            self.assertTrue(self.refused(spec={**spec, "selector": selector}), selector)
        self.create(spec={**spec, "selector": {"matchLabels": {"app": "web"}}})


LINES = {
    "kernel-panic": [
        b"[    1.5] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000009"
    ],
    "kernel-oops": [
        b"[   12.1] BUG: kernel NULL pointer dereference, address: 0000000000000000",
        b"Internal error: Oops: 96000004 [#1] PREEMPT SMP",
        b"Oops: general protection fault, probably for non-canonical address 0xdead000000000100",
        b"kernel BUG at mm/slub.c:305!",
    ],
    "kernel-lockup": [b"watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [kworker/3:1:123]"],
    "oom-kill": [
        b"Out of memory: Killed process 812 (java) total-vm:8123kB, anon-rss:1kB",
        b"Memory cgroup out of memory: Killed process 99 (stress)",
    ],
    "hung-task": [b"INFO: task jbd2/vda1-8:123 blocked for more than 120 seconds."],
    "machine-check": [b"mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 4: b200000000070f0f"],
    "emergency-shell": [
        b'You are in emergency mode. After logging in, type "journalctl -xb" to view',
        b"(initramfs) ",
    ],
    "no-root-device": [
        b'VFS: Cannot open root device "sda1" or unknown-block(0,0): error -6',
        b"ALERT!  /dev/sda1 does not exist.  Dropping to a shell!",
    ],
    "boot-loader-rescue": [b"grub rescue> ", b"No bootable device."],
}


class PresetTests(KindTestCase):
    """The shipped sets."""

    def test_lines(self) -> None:
        """
        The set for Linux finds lines of real systems, and each under its name.
        """
        several = patterns_of({"presets": ["linux"]})
        found = PatternSet([each.pattern for each in several])
        self.assertEqual({each.name for each in several}, set(LINES))
        for name, lines in LINES.items():
            for line in lines:
                self.assertIn(name, {several[at].name for at in found.search(line)}, line)

    def test_harmless_lines(self) -> None:
        """
        A usual boot matches nothing.
        """
        found = PatternSet([each.pattern for each in patterns_of({"presets": ["linux"]})])
        for line in (
            b"[    0.000000] Kernel command line: root=/dev/vda1 panic=10 oops=panic",
            b"[    0.32] mce: CPU supports 10 MCE banks",
            b"Starting Rescue Shell...",
            b"vm login: ",
        ):
            self.assertEqual(found.search(line), [], line)

    def test_literal(self) -> None:
        """
        The sets work without google-re2.
        """
        for several in PRESETS.values():
            self.assertFalse(any(each.pattern.is_regex for each in several))

    def test_own_patterns(self) -> None:
        """
        An alert's own patterns follow those of its sets.
        """
        spec = self_made = {"patterns": [{"name": "a", "regex": "x", "condition": "Bad"}]}
        (pattern,) = patterns_of(self_made)
        self.assertEqual((pattern.pattern, pattern.condition), (Pattern("x", True), "Bad"))
        self.assertEqual(patterns_of({**spec, "presets": ["linux"]})[-1], pattern)
