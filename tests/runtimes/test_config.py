"""
Tests for :mod:`twisted_exec.runtimes.config`.
"""

from __future__ import annotations

import copy
import os
import tempfile
from typing import Any

import yaml
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted.plugins import twisted_exec_drivers
from twisted_exec.journal.retention import Retention
from twisted_exec.runtimes import config
from twisted_exec.runtimes.config import ConfigError, load, parse
from twisted_exec.runtimes.processes import ProcessTable
from twisted_exec.runtimes.pty import PtyDriver
from twisted_exec.runtimes.qemu.command_line import Board
from twisted_exec.runtimes.qemu.driver import FIRMWARE, QemuDriver, QemuOptions

SHELL: dict[str, Any] = {
    "name": "shell",
    "driver": "pty",
    "command": ["/bin/sh", "-i"],
    "user": "nobody",
    "capabilities": {"cpu": "1", "memory": "64Mi"},
}
VM: dict[str, Any] = {
    "name": "vm",
    "driver": "qemu",
    "capabilities": {"cpu": 2, "memory": "256Mi", "example.com/gpu": "1"},
    "quantity": 3,
}


class ParseTests(SynchronousTestCase):
    """Tests for :func:`parse`."""

    def build(self, *entries: dict[str, Any]) -> list[Any]:
        clock = Clock()
        return [
            machine_class.build(clock, ProcessTable(clock, "X"))
            for machine_class in parse({"classes": list(entries)})
        ]

    def refusal(self, *entries: Any, **changes: Any) -> str:
        """Return the message for the shell class with changes, or for other entries."""
        chosen = entries or ({**SHELL, **changes},)
        with self.assertRaises(ConfigError) as caught:
            parse({"classes": list(chosen)}, "f.yaml")
        message = str(caught.exception)
        self.assertNotIn("\n", message)
        return message

    def test_example(self) -> None:
        """The example in the documentation is a valid file."""
        text = config.__doc__ or ""
        example = text.partition("::\n")[2].partition("\nEach driver")[0]
        self.assertEqual(
            [machine_class.name for machine_class in parse(yaml.safe_load(example))],
            ["shell", "vm"],
        )

    def test_journal(self) -> None:
        """A class may retain more or less output than the others."""
        (shell,) = self.build({**SHELL, "journal": {"days": 90, "size": "1Gi"}})
        self.assertEqual(shell.retention, Retention(90, 1 << 30))
        (shell,) = self.build({**SHELL, "journal": {"days": 1}})
        self.assertEqual(shell.retention, Retention(1, 64 << 20))
        self.assertIsNone(self.build(SHELL)[0].retention)
        self.assertIn("(shell): journal: days must be", self.refusal(journal={"days": -1}))
        self.assertIn("unknown key 'dayz'", self.refusal(journal={"dayz": 1}))

    def test_answer_queries(self) -> None:
        """Serial lines are answered, unless the class says no; others have a size of their own."""
        serial = {"name": "bench", "driver": "serial", "lines": {"a": {"device": "/dev/ttyS0"}}}
        serial["capabilities"] = SHELL["capabilities"]
        for entry, default in ((SHELL, False), (serial, True)):
            for said in ({}, {"answer_queries": False}, {"answer_queries": True}):
                (each,) = self.build({**entry, **said})
                self.assertIs(each.answers_queries, said.get("answer_queries", default))

    def test_pty(self) -> None:
        """A pty class with its options and defaults."""
        (shell,) = self.build({**SHELL, "environment": {"A": "b"}, "directory": "/srv"})
        self.assertEqual((shell.name, shell.quantity), ("shell", 100))
        self.assertEqual(shell.resources, {"cpu": 1, "memory": 64 << 20})
        assert isinstance(shell.driver, PtyDriver)
        options = shell.driver.options
        self.assertEqual(options.command, ("/bin/sh", "-i"))
        self.assertEqual(
            (options.user, options.same_user, options.directory), ("nobody", False, "/srv")
        )

    def test_qemu(self) -> None:
        """A QEMU class; the guest's memory is that of its capabilities."""
        (vm,) = self.build(VM)
        self.assertEqual(vm.resources, {"cpu": 2, "memory": 256 << 20, "example.com/gpu": 1})
        self.assertEqual(vm.quantity, 3)
        assert isinstance(vm.driver, QemuDriver)
        self.assertEqual(
            vm.driver.options, QemuOptions(board=Board(memory_mib=256, firmware=FIRMWARE))
        )

    def test_qemu_memory(self) -> None:
        """The guest's memory can be another."""
        (vm,) = self.build({**VM, "memory": "64Mi"})
        self.assertEqual(vm.driver.options.board.memory_mib, 64)

    def test_user(self) -> None:
        """Neither a user nor the flag is refused, and so are both."""
        neither = copy.deepcopy(SHELL)
        del neither["user"]
        for message in (self.refusal(neither), self.refusal(same_user=True)):
            self.assertIn("classes[0] (shell): a pty class needs either user: NAME", message)

    def test_unknown_key(self) -> None:
        """A mistyped key is shown, with what was probably meant."""
        self.assertEqual(
            self.refusal(comand=["x"]),
            "f.yaml: classes[0] (shell): unknown key 'comand'; did you mean command?",
        )

    def test_match(self) -> None:
        """Only its name selects a class whose machines are processes of the host, unless it says otherwise."""
        for driver, match, only_by_name in (
            (SHELL, {}, True),
            (SHELL, {"match": "capabilities"}, False),
            (VM, {}, False),
            (VM, {"match": "name"}, True),
        ):
            [built] = self.build({**driver, **match})
            self.assertEqual(built.only_by_name, only_by_name, (driver, match))
        self.assertIn("match must be one of auto, name, capabilities", self.refusal(match="any"))

    def test_refusals(self) -> None:
        """Wrong values are refused, with their place."""
        for changes, message in (
            ({"name": "No Name"}, "not a valid name of a class"),
            ({"driver": "xen"}, "there is no driver 'xen' (drivers: command, "),
            ({"driver": "qmeu"}, "there is no driver 'qmeu'; did you mean qemu? (drivers: "),
            (
                {"driver": "xen"},
                os.path.dirname(twisted_exec_drivers.__file__),
            ),
            ({"command": "sh -i"}, "command must be a list"),
            ({"command": []}, "command must be a list of strings"),
            ({"command": ["a", 1]}, "command must be a list of strings"),
            ({"command": None}, "command is missing"),
            ({"same_user": "yes"}, "same_user must be true or false"),
            ({"quantity": 0}, "quantity must be between"),
            ({"quantity": True}, "quantity must be a whole number"),
            ({"environment": {"A B": "c"}}, "environment: 'A B'"),
            ({"environment": {"A": 1}}, "environment: 'A'"),
            ({"capabilities": {"cpu": 1}}, "capabilities.memory is missing"),
            ({"capabilities": {"cpu": "500m", "memory": "1Gi"}}, "not a positive whole number"),
            ({"capabilities": {"cpu": 1, "memory": "much"}}, "'much' is not a quantity"),
            ({"user": "a\0b"}, "user holds a NUL"),
        ):
            self.assertIn(message, self.refusal(**changes))
        self.assertIn("f.yaml: classes[0] must be a mapping", self.refusal("shell"))
        self.assertIn("another class has this name", self.refusal(SHELL, SHELL))
        self.assertIn("memory: '1Mi' is not between", self.refusal({**VM, "memory": "1Mi"}))

    def test_documents(self) -> None:
        """A document that is no list of classes is refused."""
        for document in (None, [], "x", {}, {"classes": []}, {"classes": {}}, {"class": []}):
            with self.assertRaises(ConfigError):
                parse(document)


class LoadTests(SynchronousTestCase):
    """Tests for :func:`load`."""

    def refusal(self, content: bytes) -> str:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            with self.assertRaises(ConfigError) as caught:
                load(file.name)
            return str(caught.exception).replace(file.name, "FILE")

    def test_missing(self) -> None:
        """A file that is not there is named."""
        with self.assertRaises(ConfigError) as caught:
            load("/nonexistent/runtime.yaml")
        self.assertEqual(
            str(caught.exception),
            "cannot read /nonexistent/runtime.yaml: No such file or directory",
        )

    def test_not_yaml(self) -> None:
        """One line, with the place in the file."""
        message = self.refusal(b"classes: [\n")
        self.assertTrue(message.startswith("FILE: not YAML: "))
        self.assertIn("line 2", message)
        self.assertNotIn("\n", message)
        self.refusal(b"\xff\xfe\xfd")
        self.assertIn(
            "FILE: classes must be a list, not '2001-99-99' (line 1)",
            self.refusal(b"classes: 2001-99-99"),
        )

    def lines_refusal(self, lines: str, driver: str = "socket") -> str:
        """The message for a class with lines, the first of which is line 6 of the file."""
        head = "classes:\n- name: rack\n  driver: %s\n  capabilities: {cpu: 1, memory: 1Gi}\n  lines:\n"
        return self.refusal((head % driver + lines).encode())

    def test_lines(self) -> None:
        """A mistake in a line is refused with the place in the file and a remedy."""
        rfc2217 = "{endpoint: 'tcp:host=a:port=1', protocol: rfc2217, parity: no}"
        web = "FILE: classes[0] (rack): lines[%s]: %s (line %d)"
        name = (
            "no Machine can have the name %r; write NAME or NAMESPACE/NAME with lower-case letters, "
            "digits and hyphens, such as %s"
        )
        for lines, message in (
            (
                "    a: {endpoint: 'unix:/d'}\n    a: {endpoint: 'unix:/e'}\n",
                "FILE: line 7: the key 'a' is there twice (first in line 6); remove or rename one of them",
            ),
            (
                f"    a: {rfc2217}\n",
                web % ("a", "parity must be one of none, odd, even, mark, space, not no", 6),
            ),
            (
                "    no: {endpoint: 'unix:/d'}\n",
                "FILE: classes[0] (rack): lines: no is not text in YAML, so it is no name; put it in "
                "quotes: 'no' (line 6)",
            ),
            ("    web 1: {endpoint: 'unix:/d'}\n", web % ("web 1", name % ("web 1", "web-1"), 6)),
            (
                "    caf\u00e9: {endpoint: 'unix:/d'}\n",
                web % ("caf\u00e9", name % ("caf\u00e9", "cafe"), 6),
            ),
            ("    A_B.3: {endpoint: 'unix:/d'}\n", web % ("A_B.3", name % ("A_B.3", "a-b-3"), 6)),
            ("    a.b/c: {endpoint: 'unix:/d'}\n", web % ("a.b/c", name % ("a.b/c", "a-b-c"), 6)),
            ("    '!': {endpoint: 'unix:/d'}\n", web % ("!", name % ("!", "web-1"), 6)),
            (
                "    a:\n      protocol: raw\n      endpoint: 12\n",
                web
                % (
                    "a",
                    "endpoint must be a string, not 12; in quotes it is text: endpoint: '12'",
                    8,
                ),
            ),
            (
                "    a:\n      endpoint: 'unix:/d'\n      speed: 9\n",
                web % ("a", "unknown key 'speed'", 8),
            ),
        ):
            self.assertEqual(self.lines_refusal(lines), message)

    def test_one_line_two_names(self) -> None:
        """Two names never lead to one line, in no driver and no class."""
        for driver, lines in (
            ("socket", "    a: {endpoint: 'unix:/d'}\n    b: {endpoint: 'unix:path=/x/../d'}\n"),
            ("socket", "    a: {endpoint: 'tcp:h:1'}\n    b: {endpoint: 'tcp:port=1:host=H'}\n"),
            ("serial", "    a: {device: /dev/ttyS0}\n    b: {device: /dev//ttyS0}\n"),
            (
                "ipmi",
                "    a: {host: h}\n    b: {host: H, port: 623}\n  password_file: /p\n  user: u\n",
            ),
            ("ssh", "    a: {host: h}\n    b: {host: h, port: 22}\n  known_hosts: /k\n"),
        ):
            self.assertRegex(
                self.lines_refusal(lines, driver),
                r"lines\[b\]: two names must not lead to one line, and classes\[0\] \(rack\): "
                r"lines\[a\] has .* already; remove one of the two \(line 7\)",
            )
        other = "    a: {endpoint: 'unix:/d'}\n- name: b\n  driver: socket\n  capabilities: {cpu: 1, memory: 1Gi}\n"
        told = self.lines_refusal(other + "  lines:\n    b: {endpoint: 'unix:/d'}\n")
        self.assertIn("classes[1] (b): lines[b]: two names must not lead to one line", told)

    def test_no_python_objects(self) -> None:
        """YAML that would make Python objects makes nothing."""
        self.refusal(b"!!python/object/apply:os.system ['touch /tmp/planted']")
        self.assertFalse(os.path.exists("/tmp/planted"))

    def test_too_large(self) -> None:
        """A file that is no configuration is not read to its end."""
        self.assertIn("larger than", self.refusal(b"#" * (5 << 20)))
