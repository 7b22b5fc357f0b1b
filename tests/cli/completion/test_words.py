"""
Tests for :mod:`twisted_exec.cli.completion.words`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.commands.registry import make_parser
from twisted_exec.cli.completion.words import Completion, complete
from twisted_exec.cli.console import options as console


class Names:
    """Two names of everything; remembers the options of the last request."""

    def of(self, name: str, options: Mapping[str, Any]) -> Iterable[str]:
        self.options = options
        return [f"{name}-1", f"{name}-2"]


class CompleteTests(SynchronousTestCase):
    """Tests for :func:`complete`."""

    def setUp(self) -> None:
        self.names = Names()

    def completion(self, *words: str) -> Completion:
        return complete(make_parser(), words, self.names)

    def words(self, *words: str) -> list[str]:
        """The candidates without their descriptions."""
        return [word for word, _ in self.completion(*words).words]

    def console(self, *words: str) -> list[str]:
        return [word for word, _ in complete(console.make_parser(), words, self.names).words]

    def test_commands(self) -> None:
        """Commands and their commands are candidates, with descriptions."""
        self.assertIn(("pki", "make certificates"), self.completion("").words)
        self.assertEqual(self.words("comp"), ["completion"])
        self.assertEqual(self.words("pki", "ren"), ["renew"])
        self.assertEqual(self.words("nonsense", "")[:2], ["pki", "iri"])

    def test_options(self) -> None:
        """Options are candidates after a dash, each once unless it may be repeated."""
        self.assertEqual(self.words("doctor", "--kubec"), ["--kubeconfig"])
        self.assertEqual(self.words("doctor", "--kubeconfig", "x", "--kubec"), [])
        self.assertEqual(self.words("doctor", "--as-group", "x", "--as-g"), ["--as-group"])
        self.assertIn("-n", self.words("doctor", "-"[:1]) + self.words("doctor", "-n"))
        self.assertEqual(self.words("doctor", "--", "--kubec"), [])

    def test_choices(self) -> None:
        """The values of an option that has choices are candidates."""
        self.assertEqual(self.words("completion", ""), ["bash", "zsh", "fish"])
        self.assertEqual(self.words("doctor", "-o", "j"), ["json"])
        self.assertEqual(self.words("doctor", "--output=j"), ["--output=json"])
        self.assertEqual(self.words("doctor", "--dialect", "sph"), ["spheric", "spheric-machines"])

    def test_names(self) -> None:
        """Machines, namespaces, contexts, clusters and users come from elsewhere."""
        self.assertEqual(self.words("doctor", "machine-1"), ["machine-1"])
        self.assertEqual(self.console(""), ["machine-1", "machine-2"])
        self.assertEqual(self.console("machines/"), ["machines/machine-1", "machines/machine-2"])
        self.assertEqual(self.console("vm", ""), [])
        for option, name in (("-n", "namespace"), ("--context", "context"), ("--user", "user")):
            self.assertEqual(self.console(option, ""), [f"{name}-1", f"{name}-2"])
        self.assertEqual(self.console("--space", ""), ["space-1", "space-2"])
        self.assertEqual(self.console("--context=context-1"), ["--context=context-1"])

    def test_options_for_names(self) -> None:
        """The options on the line choose the kubeconfig and the namespace of the names."""
        self.console("--kubeconfig=k", "-nlab", "--as-group", "a", "--as-group", "b", "")
        options = self.names.options
        self.assertEqual((options["kubeconfig"], options["namespace"]), ("k", "lab"))
        self.assertEqual((options["as_group"], options["token"]), (["a", "b"], None))

    def test_other_users(self) -> None:
        """An option of the same name that creates a new user has no candidates."""
        self.assertEqual(self.words("pki", "user", "--user", ""), [])

    def test_paths(self) -> None:
        """The shell completes files."""
        for words in (("backup", ""), ("doctor", "--kubeconfig", ""), ("pki", "init", "x")):
            self.assertTrue(self.completion(*words).is_path, words)
        self.assertFalse(self.completion("doctor", "--token", "").is_path)

    def test_many_values(self) -> None:
        """An option with several values ends at the next option."""
        self.assertEqual(self.words("pki", "user", "--group", "a", "b", "--us"), ["--user"])
