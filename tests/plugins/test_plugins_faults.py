"""
A fault of other systems' command lines (10), as the promise that ours keep.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from twisted.application.service import IServiceMaker
from twisted.plugin import getPlugins
from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.test_options import arguments
from tests.mcp.test_service import CONFIGURATION
from tests.poollet.test_options import KUBECONFIG
from tests.runtimes.test_options import CONFIG
from tests.sshd.files import write_files
from twisted_exec.program import start as program_module

from .test_plugins import PROGRAMS

OF_ITSELF = {"pods-view", "scheduler", "web", "config", "log-level", "quiet"}
"""
Options that no service reads: flags for defaults, which exist to be refused beside their opposites, and
options that take effect when the command line is read.
"""


def remembering(kind: type) -> Any:
    """Options that remember what they are asked for once they have been read."""

    def ask(self: Any, name: str) -> Any:
        self.__dict__.setdefault("asked", set()).add(name)
        return dict.__getitem__(self, name)

    def get(self: Any, name: str, default: Any = None) -> Any:
        return ask(self, name) if name in self else default

    return type(kind.__name__, (kind,), {"__getitem__": ask, "get": get})()


class OptionTests(SynchronousTestCase):
    """Every program with no more than it needs."""

    def least(self) -> dict[str, list[str]]:
        """For each program the shortest command line."""
        kubeconfig, config = Path(self.mktemp()), Path(self.mktemp())
        kubeconfig.write_text(KUBECONFIG)
        config.write_text(CONFIG)
        issuers = Path(self.mktemp())
        issuers.write_text(json.dumps(CONFIGURATION))
        target = "unix:///run/x/iri.sock"
        door = Path(self.mktemp())
        door.mkdir()
        of_sshd = write_files(door)  # with a kubeconfig that has a token
        return {
            "exec-apiserver": arguments(),
            "exec-broker": [
                f"--kubeconfig={kubeconfig}",
                "--namespace=ns",
                "--source-cluster-name=a",
                f"--iri-listen={target}",
            ],
            "exec-mcp": [
                *(each for each in of_sshd if each.startswith("--kubeconfig=")),
                "--resource-url=https://mcp.example.org/mcp",
                "--tls-cert-file=tls.crt",
                "--tls-private-key-file=tls.key",
                f"--authentication-config={issuers}",
            ],
            "exec-nodeserver": [
                f"--kubeconfig={kubeconfig}",
                "--kosmos",
                "--tls-cert-file=tls.crt",
                "--tls-private-key-file=tls.key",
                "--client-ca-file=ca.crt",
                "--node-address=10.0.0.7",
            ],
            "exec-poollet": [
                f"--kubeconfig={kubeconfig}",
                "--machine-pool-name=pool-a",
                f"--machine-runtime-endpoint={target}",
                "--tls-cert-file=tls.crt",
                "--tls-private-key-file=tls.key",
            ],
            "exec-racks": [
                f"--kubeconfig={kubeconfig}",
                "--list=rack.csv",
                "--namespace=default",
                "--machine-class=server",
                "--machine-pool=rack-7",
            ],
            "exec-runtime": [f"--config={config}", f"--iri-listen={target}"],
            "exec-spacemanager": [f"--kubeconfig={kubeconfig}"],
            "exec-sshd": of_sshd,
            "exec-standalone": [f"--state-dir={self.mktemp()}"],
        }

    def otherwise(self) -> dict[str, list[list[str]]]:
        """Command lines of what some options are for alone."""
        kubeconfig = Path(self.mktemp())
        kubeconfig.write_text(KUBECONFIG)
        behind = ["--aggregated", f"--kubeconfig={kubeconfig}"]
        files = ("client-certificate", "client-key", "certificate-authority")
        kubelets = [f"--kubelet-{name}=/{name}" for name in files]
        recording = [
            "--record-namespaces=*",
            "--recorder-certificate=recorder.crt",
            "--recorder-key=recorder.key",
            "--recording-dir=recordings",
            "--recording-store=file:///recordings",
        ]
        return {
            "exec-broker": [[*self.least()["exec-broker"], "--space=lab-7"]],
            "exec-nodeserver": [
                [*self.least()["exec-nodeserver"], "--spaces=here"],
                [*self.least()["exec-nodeserver"], *recording],
            ],
            "exec-apiserver": [
                [*arguments(client_ca_file=""), *behind],
                [*arguments(), *kubelets],
            ],
        }

    def test_10_options(self) -> None:
        """There is no option that a program takes and then never looks at."""
        least = self.least()
        self.assertEqual(sorted(least), PROGRAMS)
        for maker in getPlugins(IServiceMaker):
            if maker.tapname not in least:
                continue
            module = import_module(maker.module)
            for name in ("use_monotonic_clock", "stop_once"):
                self.patch(program_module, name, lambda reactor: None)
            asked: set[str] = set()
            for words in (least[maker.tapname], *self.otherwise().get(maker.tapname, [])):
                options = remembering(module.Options)
                options.parseOptions(words)
                options.asked.clear()
                maker.makeService(options)
                asked |= options.asked
            self.assertEqual(set(options) - asked - OF_ITSELF, set(), maker.tapname)

    def test_10_in_vain(self) -> None:
        """What would have no effect beside what else is given is refused, and why is told."""
        files = ("ca-file", "cert-file", "private-key-file")
        iri = [f"--iri-{name}=/{name}" for name in files]
        consoles = ["--tls-cert-file=/c", "--tls-private-key-file=/k"]
        unix = "--streaming-listen=unix:/run/x/stream.sock"
        of_runtimes = [
            (["--iri-client-names=a"], "--iri-client-names needs --iri-ca-file"),
            ([*iri, "--iri-client-names=a"], "--iri-ca-file is for a TCP --iri-listen"),
            (consoles, "--tls-cert-file is for a TCP --streaming-listen"),
            ([*consoles, unix], "--tls-cert-file is for a TCP --streaming-listen"),
        ]
        runtime = [f"--machine-runtime-{name}=/{name}" for name in files]
        signed = ["--cluster-signing-duration=720h"]
        for program, told in {
            "exec-apiserver": [
                (signed, "needs --cluster-signing-cert-file: nothing is signed"),
                (["--context=x"], "--context needs --aggregated: there is no host"),
            ],
            "exec-broker": of_runtimes,
            "exec-runtime": of_runtimes,
            "exec-poollet": [
                (runtime, "--machine-runtime-ca-file is for a TCP --machine-runtime-endpoint"),
                (["--serving-cert-signer=a.b/c"], "--serving-cert-signer needs --cert-dir"),
            ],
        }.items():
            least = self.least()[program]
            for more, why in told:
                self.assertIn(why, self.refusal(program, [*least, *more]))

    def refusal(self, program: str, words: list[str]) -> str:
        """The line with which a command line is refused."""
        (maker,) = [each for each in getPlugins(IServiceMaker) if each.tapname == program]
        for name in ("use_monotonic_clock", "stop_once"):
            self.patch(program_module, name, lambda reactor: None)
        options = maker.options()
        with self.assertRaises(SystemExit) as caught:
            options.parseOptions(words)
            maker.makeService(options)
        return str(caught.exception.code)
