"""
Tests for :mod:`twisted_exec.cli.space.kubeconfig`.
"""

from __future__ import annotations

import json
import os

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.commands.registry import make_parser
from twisted_exec.cli.failures import InputError
from twisted_exec.cli.space import kubeconfig
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.spaces.interfaces import SpaceName

TOKEN = "token-of-one"  # not part of any temporary path
ELSEWHERE = ClientConfig("https://one.example:6443", token=TOKEN)
NAMESPACE = "spaceprovider-default"


class PinnedTests(SynchronousTestCase):
    """A written kubeconfig keeps its cluster, whatever ``$KUBECONFIG`` is when it is used."""

    def words(self, *more: str, environ: dict[str, str] | None = None) -> tuple[list[str], str]:
        options = make_parser().parse_args(["space", "kubeconfig", "one", *more])
        name = SpaceName("one", "default", NAMESPACE)
        config = kubeconfig.with_credential_plugin(
            ELSEWHERE, name, options, environ or {"HOME": "/nonexistent"}
        )
        assert config.plugin is not None
        return list(config.plugin.args[4:]), dict(config.plugin.env)["KUBECONFIG"]

    def write(self, context: str) -> str:
        path = os.path.abspath(self.mktemp())
        with open(path, "w", encoding="ascii") as file:
            json.dump(
                {
                    "clusters": [{"name": "c", "cluster": {"server": "https://hub"}}],
                    "contexts": [{"name": context, "context": {"cluster": "c"}}],
                    "current-context": context,
                },
                file,
            )
        return path

    def test_files(self) -> None:
        """A written kubeconfig keeps the merged files and the current context."""
        one, two = self.write("a"), self.write("b")
        found = self.words(environ={"KUBECONFIG": f"{one}:{two}"})
        self.assertEqual(found, (["--context=a"], f"{one}:{two}"))
        found = self.words("--kubeconfig", two, environ={"KUBECONFIG": one})
        self.assertEqual(found, (["--context=b"], two))
        self.assertEqual(self.words("--kubeconfig", two, "--context=x")[0], ["--context=x"])

    def test_none(self) -> None:
        """
        Without a kubeconfig, as in a pod, the written one sets ``KUBECONFIG`` to the null device.
        """
        self.assertEqual(self.words(), ([], os.devnull))

    def test_options(self) -> None:
        """Options are repeated in the kubeconfig, with absolute paths; secrets are refused."""
        words, _ = self.words("-s", "https://h", "--as", "joe", "--as-group", "g", "--client-key=k")
        self.assertEqual(
            words,
            [
                "--server=https://h",
                f"--client-key={os.path.abspath('k')}",
                "--as=joe",
                "--as-group=g",
            ],
        )
        for secret in ("--token=x", "--password=x"):
            with self.assertRaises(InputError) as caught:
                self.words(secret)
            self.assertIn("for all to read", str(caught.exception))
