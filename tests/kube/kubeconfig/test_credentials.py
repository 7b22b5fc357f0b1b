"""Tests for :mod:`twisted_exec.kube.kubeconfig.credentials`: real plugins."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from twisted.internet import reactor
from twisted.internet.defer import CancelledError, gatherResults
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from tests.kube.plugins import PluginScript
from tests.tiers import PROGRAMS
from twisted_exec.kube.kubeconfig.client_config import (
    ClientConfig,
    ImpersonatedUser,
    KubeConfigError,
)
from twisted_exec.kube.kubeconfig.credentials import PluginCredentials, renewed, settled

COUNTED = "answer(token=f't{count}')"
EXPIRING = "answer(token=f't{count}', expirationTimestamp='2030-01-01T00:00:00Z')"
EXPIRY = datetime(2030, 1, 1, tzinfo=UTC)


class CredentialsCase(TestCase):
    """Builds plugin scripts, each in its own directory."""

    def script(self, body: str) -> PluginScript:
        return PluginScript(Path(self.mktemp()), body)


class SettledTests(CredentialsCase):
    """Tests for :func:`settled` and :func:`renewed`."""

    starts = PROGRAMS

    async def test_no_plugin(self) -> None:
        """Without a plugin, or with a token of its own, a configuration stays as it is."""
        script = self.script(COUNTED)
        for config in (
            ClientConfig("https://a"),
            ClientConfig("https://a", token="mine", plugin=script.plugin()),
        ):
            self.assertIs(await settled(config, reactor), config)
            self.assertIsNone(await renewed(config, reactor, config))
        self.assertEqual(script.runs(), [])

    async def test_once_for_all(self) -> None:
        """
        Configurations with the same plugin and server share a credential, whatever they
        impersonate.
        """
        script = self.script(COUNTED)
        config = ClientConfig("https://a", plugin=script.plugin())
        other = replace(config, namespace="lab", impersonate=ImpersonatedUser("jane"), source="x")
        both = await gatherResults([settled(config, reactor), settled(other, reactor)])
        self.assertEqual([each.token for each in both], ["t1", "t1"])
        self.assertEqual((both[1].namespace, both[1].impersonate.user), ("lab", "jane"))
        self.assertIsNone(both[0].plugin)
        self.assertEqual((await settled(config, reactor)).token, "t1")
        elsewhere = replace(config, server="https://b")
        self.assertEqual((await settled(elsewhere, reactor)).token, "t2")

    async def test_refused(self) -> None:
        """After a refusal the plugin runs once more, however many callers report the refusal."""
        script = self.script(COUNTED)
        config = ClientConfig("https://a", plugin=script.plugin())
        shown = await settled(config, reactor)
        others = await gatherResults([renewed(config, reactor, shown) for _ in range(3)])
        self.assertEqual([each and each.token for each in others], ["t2"] * 3)
        late = await renewed(config, reactor, shown)
        self.assertEqual(late and late.token, "t2")

    async def test_nothing_else(self) -> None:
        """If the plugin repeats the refused credential, no renewal follows."""
        config = ClientConfig("https://a", plugin=self.script("answer(token='t')").plugin())
        shown = await settled(config, reactor)
        self.assertIsNone(await renewed(config, reactor, shown))

    async def test_source(self) -> None:
        """The settled configuration says for messages which plugin it is from, and when it expires."""
        plugin = self.script(EXPIRING).plugin()
        config = ClientConfig("https://a", plugin=plugin, credentials_source='user "u" in f')
        shown = await settled(config, reactor)
        self.assertEqual(shown.expires, EXPIRY.timestamp())
        self.assertEqual(shown.credentials_source, f'the plugin {plugin.command} of user "u" in f')

    async def test_certificate(self) -> None:
        """A plugin may return a client certificate instead of a token."""
        script = self.script("answer(clientCertificateData='C', clientKeyData='K')")
        shown = await settled(ClientConfig("https://a", plugin=script.plugin()), reactor)
        self.assertEqual((shown.certificate.read(), shown.key.read()), (b"C", b"K"))


class PluginCredentialsTests(CredentialsCase):
    """Tests for :class:`PluginCredentials`."""

    starts = PROGRAMS

    def credentials(self, script: PluginScript) -> PluginCredentials:
        config = ClientConfig("https://a", plugin=script.plugin())
        self.now = EXPIRY - timedelta(hours=1)
        return PluginCredentials(config, reactor, lambda: self.now)

    async def test_expiry(self) -> None:
        """A credential is reused until it expires."""
        credentials = self.credentials(self.script(EXPIRING))
        self.assertEqual((await credentials.credential()).token, "t1")
        self.now = EXPIRY - timedelta(seconds=1)
        self.assertEqual((await credentials.credential()).token, "t1")
        self.now = EXPIRY
        self.assertEqual((await credentials.credential()).token, "t2")

    async def test_fails(self) -> None:
        """A failure reaches every waiting caller; the next call runs the plugin again."""
        script = self.script(FAILING)
        credentials = self.credentials(script)
        asking = [credentials.credential() for _ in range(2)]
        for each in asking:
            await self.assertFailure(each, KubeConfigError)
        self.assertEqual((await credentials.credential()).token, "t2")

    async def test_cancelled_by_another(self) -> None:
        """A caller that hears of a failure may cancel the next one."""
        credentials = self.credentials(self.script(FAILING))
        one, two = credentials.credential(), credentials.credential()

        def cancel(failure: Failure) -> None:
            failure.trap(KubeConfigError)
            two.cancel()

        await one.addErrback(cancel)
        await self.assertFailure(two, CancelledError)
        self.assertEqual((await credentials.credential()).token, "t2")

    async def test_cancelled(self) -> None:
        """The plugin ends only when the last waiting caller cancels."""
        script = self.script("time.sleep(0.2); answer(token=f't{count}')")
        credentials = self.credentials(script)
        one, two = credentials.credential(), credentials.credential()
        one.cancel()
        await self.assertFailure(one, CancelledError)
        self.assertEqual((await two).token, "t1")
        credentials = self.credentials(self.script("time.sleep(60)"))
        alone = credentials.credential()
        alone.cancel()
        await self.assertFailure(alone, CancelledError)


FAILING = """
if count == 1:
    sys.exit(1)
answer(token=f't{count}')
"""
