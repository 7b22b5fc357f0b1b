"""Tests for :mod:`twisted_exec.kube.kubeconfig.plugin`: real programs."""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.internet.utils import getProcessValue
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.clocks import expire
from tests.kube.plugins import V1, PluginScript
from tests.tiers import PROGRAMS
from twisted_exec.kube.kubeconfig import plugin as plugin_module
from twisted_exec.kube.kubeconfig.client_config import (
    ALWAYS,
    IF_AVAILABLE,
    ClientConfig,
    KubeConfigError,
    Material,
)
from twisted_exec.kube.kubeconfig.plugin import Credential, exec_info, parse_credential, run_plugin

CONFIG = ClientConfig("https://api:6443/prefix")


class RunTests(TestCase):
    """Tests for :func:`run_plugin`."""

    starts = PROGRAMS

    def script(self, body: str) -> PluginScript:
        return PluginScript(Path(self.mktemp()), body)

    async def refusal(self, script: PluginScript, **more: Any) -> str:
        """Return a run's error message, without the prefix that names the plugin."""
        with self.assertRaises(KubeConfigError) as caught:
            await run_plugin(script.plugin(**more), CONFIG, reactor)
        message = str(caught.exception)
        prefix = f"the credential plugin {script.path} "
        self.assertTrue(message.startswith(prefix), message)
        self.assertNotIn("\n", message)
        return message.removeprefix(prefix)

    async def test_token(self) -> None:
        """
        The plugin gets its arguments and variables and empty standard input, and returns a token.
        """
        script = self.script("answer(token='t' + sys.stdin.read())")
        found = await run_plugin(
            script.plugin(args=("a", "b c"), env=(("N", "v"),)), CONFIG, reactor
        )
        self.assertEqual(found, Credential("t"))
        (run,) = script.runs()
        self.assertEqual((run["args"], run["env"]), (["a", "b c"], "v"))
        self.assertEqual(
            run["info"],
            {"kind": "ExecCredential", "apiVersion": V1, "spec": {"interactive": False}},
        )

    async def test_certificate(self) -> None:
        """The plugin returns a certificate with its key and an expiry time."""
        script = self.script(
            "answer(clientCertificateData='C', clientKeyData='K',"
            " expirationTimestamp='2030-01-02T03:04:05Z')"
        )
        found = await run_plugin(script.plugin(), CONFIG, reactor)
        self.assertEqual((found.certificate, found.key), (b"C", b"K"))
        self.assertEqual(found.expires, datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC))

    async def test_looked_for_in_path(self) -> None:
        """
        A bare command is looked up in PATH; if it is missing, the error carries the install hint.
        """
        script = self.script("answer(token='t')")
        self.patch(os, "environ", {**os.environ, "PATH": str(script.directory)})
        found = await run_plugin(
            plugin_module.ExecPlugin("plugin", V1, interactive_mode="Never"), CONFIG, reactor
        )
        self.assertEqual(found.token, "t")
        nowhere = plugin_module.ExecPlugin("nowhere", V1, install_hint="get it\nhere")
        with self.assertRaises(KubeConfigError) as caught:
            await run_plugin(nowhere, CONFIG, reactor)
        self.assertEqual(
            str(caught.exception),
            "the credential plugin nowhere is not there, or is no program: get it here",
        )

    async def test_remedy(self) -> None:
        """The error names the user and the kubeconfig, and what to do next."""
        config = replace(CONFIG, credentials_source='user "ada" in /config')
        script = self.script("sys.exit(3)")
        for plugin, remedy in (
            (script.plugin(), "failed with exit code 3; run it by hand, or log in again"),
            (plugin_module.ExecPlugin("nowhere", V1), "is not there, or is no program; install it"),
        ):
            with self.assertRaises(KubeConfigError) as caught:
                await run_plugin(plugin, config, reactor)
            self.assertEqual(
                str(caught.exception),
                f'the credential plugin {plugin.command} {remedy}: it is the plugin of user "ada" in /config',
            )

    async def test_no_program(self) -> None:
        """A file that is not executable fails with a clear message."""
        script = self.script("")
        os.chmod(script.path, 0o600)
        self.assertIn("is not there, or is no program", await self.refusal(script))

    async def test_fails(self) -> None:
        """The error states the exit code or signal, and never shows the output."""
        self.assertEqual(
            await self.refusal(self.script("answer(token='canary'); sys.exit(3)")),
            "failed with exit code 3",
        )
        self.assertEqual(
            await self.refusal(self.script("os.kill(os.getpid(), 15)")),
            f"failed with signal {signal.SIGTERM:d}",
        )

    async def test_prints_too_much(self) -> None:
        """Output beyond 1 MiB fails the run."""
        script = self.script("while True: print('x' * 65536)")
        self.assertEqual(await self.refusal(script), "prints more than 1 MiB")

    async def test_slow(self) -> None:
        """The run times out even if a child process keeps the output open."""
        self.patch(plugin_module, "PLUGIN_SECONDS", 3600.0)
        script = self.script(
            "import subprocess; child = subprocess.Popen(['sleep', '20']);"
            " open(here + '/up', 'w').close(); child.wait()"
        )
        refusal = Deferred.fromCoroutine(self.refusal(script))
        await self._until_up(script)
        expire(reactor, 3000)
        self.assertEqual(await refusal, "did not answer within 3600 s")

    async def test_cancelled(self) -> None:
        """Cancelling the Deferred kills the plugin."""
        script = self.script(
            "open(here + '/pid', 'w').write(str(os.getpid())); os.rename(here + '/pid', here + '/up')\n"
            "time.sleep(60)"
        )
        running = run_plugin(script.plugin(), CONFIG, reactor)
        up = await self._until_up(script)
        running.cancel()
        await self.assertFailure(running, CancelledError)
        pid = int(up.read_text())
        while _lives(pid):
            await self._pause()

    async def test_children(self) -> None:
        """The children of a plugin that is given up end with it, also when the plugin itself has ended."""
        self.patch(plugin_module, "PLUGIN_SECONDS", 3600.0)
        start = (
            "import subprocess\n"
            "child = subprocess.Popen(['sleep', '1000'])\n"
            "open(here + '/pid', 'w').write(str(child.pid)); os.rename(here + '/pid', here + '/up')\n"
        )
        for body in (start + "child.wait()", start):
            script = self.script(body)
            refusal = Deferred.fromCoroutine(self.refusal(script))
            child = int((await self._until_up(script)).read_text())
            expire(reactor, 3000)
            self.assertEqual(await refusal, "did not answer within 3600 s")
            while _lives(child):
                await self._pause()

    async def test_program_stops(self) -> None:
        """A plugin ends with the program that needs its answer."""
        script = self.script(
            "open(here + '/pid', 'w').write(str(os.getpid())); os.rename(here + '/pid', here + '/up')\n"
            "time.sleep(1000)"
        )
        program = Path(self.mktemp())
        program.write_text(_PROGRAM.format(path=script.path, version=V1))
        ended = getProcessValue(sys.executable, [str(program)], env=os.environ)
        pid = int((await self._until_up(script)).read_text())
        (script.directory / "stop").touch()
        self.assertEqual(await ended, 0)
        while _lives(pid):
            await self._pause()

    async def _until_up(self, script: PluginScript) -> Path:
        """Wait for the file by which a plugin says that it runs; return its path."""
        up = script.directory / "up"
        while not up.exists():
            await self._pause()
        return up

    def _pause(self) -> Deferred[None]:
        return deferLater(reactor, 0.02, lambda: None)  # type: ignore[arg-type]

    async def test_always_interactive(self) -> None:
        """A plugin with interactiveMode Always is not started without a terminal."""
        script = self.script("answer(token='t')")
        told = await self.refusal(script, interactive_mode=ALWAYS)
        self.assertEqual(told, "needs a terminal as standard input, and there is none")
        self.assertEqual(script.runs(), [])

    async def test_interactive(self) -> None:
        """With a terminal, ``interactive`` is true unless interactiveMode is Never."""
        script = self.script("answer(token='t')")
        for mode, told in ((ALWAYS, True), (IF_AVAILABLE, True), ("Never", False)):
            plugin = script.plugin(interactive_mode=mode)
            await run_plugin(plugin, CONFIG, reactor, interactive=True)
            self.assertIs(script.runs()[-1]["info"]["spec"]["interactive"], told)


_PROGRAM = """
import os
from twisted.internet import reactor, task
from twisted_exec.kube.kubeconfig.client_config import NEVER, ClientConfig, ExecPlugin
from twisted_exec.kube.kubeconfig.plugin import run_plugin

plugin = ExecPlugin({path!r}, {version!r}, interactive_mode=NEVER)
run_plugin(plugin, ClientConfig("https://api:6443"), reactor)
stop = os.path.join(os.path.dirname(plugin.command), "stop")
task.LoopingCall(lambda: os.path.exists(stop) and reactor.running and reactor.stop()).start(0.02)
reactor.run()
"""
"""Runs a plugin, and stops when the file ``stop`` appears."""


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class InfoTests(SynchronousTestCase):
    """Tests for :func:`exec_info`."""

    def test_cluster(self) -> None:
        """With provideClusterInfo the plugin gets the cluster as kubectl encodes it."""
        config = ClientConfig(
            "https://127.0.0.1:1",
            ca=Material(data=b"CA"),
            tls_server_name="nn",
            proxy_url="http://u:p@127.0.0.1:3",
        )
        plugin = plugin_module.ExecPlugin(
            "x", V1, provide_cluster_info=True, cluster_config='{"a": [1, "b"]}'
        )
        self.assertEqual(
            exec_info(plugin, config, True)["spec"],
            {
                "cluster": {
                    "server": "https://127.0.0.1:1",
                    "tls-server-name": "nn",
                    "certificate-authority-data": base64.b64encode(b"CA").decode(),
                    "proxy-url": "http://u:p@127.0.0.1:3",
                    "config": {"a": [1, "b"]},
                },
                "interactive": True,
            },
        )
        bare = ClientConfig("https://a", insecure_skip_tls_verify=True)
        self.assertEqual(
            exec_info(plugin_module.ExecPlugin("x", V1, provide_cluster_info=True), bare, False),
            {
                "kind": "ExecCredential",
                "apiVersion": V1,
                "spec": {
                    "cluster": {"server": "https://a", "insecure-skip-tls-verify": True},
                    "interactive": False,
                },
            },
        )


class ParseTests(SynchronousTestCase):
    """Tests for :func:`parse_credential`."""

    plugin = plugin_module.ExecPlugin("x", V1)

    def refusal(self, told: Any) -> str:
        output = told if isinstance(told, bytes) else json.dumps(told).encode()
        with self.assertRaises(KubeConfigError) as caught:
            parse_credential(self.plugin, output)
        self.assertNotIn("canary", str(caught.exception))
        return str(caught.exception).removeprefix("the credential plugin x ")

    def status(self, **status: Any) -> dict[str, Any]:
        return {"kind": "ExecCredential", "apiVersion": V1, "status": status}

    def test_refusals(self) -> None:
        """Each invalid output has its own message, which shows nothing of the output."""
        v1beta1 = "client.authentication.k8s.io/v1beta1"
        for told, words in (
            (b"", "did not print JSON"),
            (b"[" * 100000, "did not print JSON"),
            (b"\xff", "did not print JSON"),
            (["canary"], "did not print an ExecCredential"),
            ({"kind": "Secret"}, "did not print an ExecCredential"),
            (self.status(token="canary") | {"apiVersion": v1beta1}, "in the apiVersion"),
            ({"kind": "ExecCredential", "apiVersion": V1}, "without a status"),
            (self.status(), "neither a token nor a client certificate"),
            (self.status(token=None), "neither a token nor a client certificate"),
            (self.status(token=7), "other than strings"),
            (self.status(token="t", clientKeyData="canary"), "only one of"),
            (self.status(token="t", clientCertificateData="canary"), "only one of"),
            (self.status(token="t", expirationTimestamp="canary"), "not RFC 3339"),
            (self.status(token="t", expirationTimestamp="2030-01-01T00:00:00"), "not RFC 3339"),
            (self.status(clientCertificateData="\ud800", clientKeyData="x"), "what is no text"),
        ):
            self.assertIn(words, self.refusal(told))

    def test_moments(self) -> None:
        """Timestamps may have fractions and offsets."""
        told = self.status(token="t", expirationTimestamp="2030-01-01T01:00:00.123456789+01:00")
        found = parse_credential(self.plugin, json.dumps(told).encode())
        assert found.expires is not None
        since = found.expires - datetime(2030, 1, 1, tzinfo=UTC)
        self.assertTrue(timedelta(0) < since < timedelta(seconds=1))

    @settings(max_examples=200, deadline=None, database=None)
    @given(
        st.dictionaries(
            st.sampled_from(
                ["token", "clientCertificateData", "clientKeyData", "expirationTimestamp"]
            ),
            st.none() | st.integers() | st.text(max_size=8) | st.lists(st.none(), max_size=1),
        )
    )
    def test_any_status(self, status: dict[str, Any]) -> None:
        """Any status yields a credential or a one-line KubeConfigError."""
        try:
            parse_credential(self.plugin, json.dumps(self.status(**status)).encode())
        except KubeConfigError as refused:
            self.assertNotIn("\n", str(refused))
