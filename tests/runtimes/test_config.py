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

import twisted.plugins
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
            ({"driver": "xen"}, "there is no driver 'xen'; there are: "),
            ({"driver": "xen"}, f"; plugins were searched in {twisted.plugins.__path__[0]}"),
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
        self.assertIn("more than once", self.refusal(SHELL, SHELL))
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
        self.assertTrue(message.startswith("FILE is not YAML: "))
        self.assertIn("line 2", message)
        self.assertNotIn("\n", message)
        self.refusal(b"\xff\xfe\xfd")
        self.assertIn("is not YAML", self.refusal(b"classes: 2001-99-99"))

    def test_no_python_objects(self) -> None:
        """YAML that would make Python objects makes nothing."""
        self.refusal(b"!!python/object/apply:os.system ['touch /tmp/planted']")
        self.assertFalse(os.path.exists("/tmp/planted"))

    def test_too_large(self) -> None:
        """A file that is no configuration is not read to its end."""
        self.assertIn("larger than", self.refusal(b"#" * (5 << 20)))
