"""Tests for :mod:`twisted_exec.nodeserver.leaves.credentials`."""

from __future__ import annotations

import os
from pathlib import Path

from twisted.internet.task import Clock
from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tests.nodeserver.support import kubeconfig, memory_cluster, put_secret
from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.api.status import Forbidden, ServiceUnavailable
from twisted_exec.nodeserver.leaves.credentials import LeafCredentials, credentials
from twisted_exec.nodeserver.leaves.spec import (
    Kubeconfig,
    KubeconfigData,
    KubeconfigFile,
    KubeconfigSecret,
)


class CredentialsTestCase(SynchronousTestCase):
    """A root in memory, and what is logged."""

    def setUp(self) -> None:
        self.clock, self.root = Clock(), memory_cluster()
        self.told: list[None] = []
        self.logged: list[str] = []

        def observe(event: object) -> None:
            self.logged.append(formatEvent(event))  # type: ignore[arg-type]

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)

    def begin(self, source: Kubeconfig) -> LeafCredentials:
        opened = credentials(source, self.root.client(), self.clock)
        opened.start(lambda: self.told.append(None))
        self.addCleanup(opened.stop)
        return opened

    def refusal(self, opened: LeafCredentials) -> str:
        """Why there are none; it is the problem, too."""
        with self.assertRaises(ServiceUnavailable) as caught:
            opened.current()
        self.assertEqual(caught.exception.message, opened.problem)
        self.assertNotIn("\n", opened.problem)
        return opened.problem


class FileCredentialsTests(CredentialsTestCase):
    """Tests for :class:`FileCredentials`."""

    def setUp(self) -> None:
        super().setUp()
        self.path = Path(self.mktemp()).absolute()

    def write(self, content: str) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_text(content)
        os.replace(fresh, self.path)

    def test_rotated(self) -> None:
        """Another content counts for the next request."""
        self.write(kubeconfig(token="old"))
        opened = self.begin(KubeconfigFile(str(self.path)))
        self.assertEqual(opened.current().token, "old")
        self.write(kubeconfig(token="new"))
        self.assertEqual(opened.current().token, "new")
        self.assertEqual(opened.problem, "")

    def test_any_form(self) -> None:
        """A file may name programs and files: who wrote it is on this machine."""
        plugin = {
            "command": "/bin/true",
            "apiVersion": "client.authentication.k8s.io/v1",
            "interactiveMode": "Never",
        }
        self.write(kubeconfig(exec=plugin))
        opened = self.begin(KubeconfigFile(str(self.path)))
        assert opened.current().plugin is not None
        self.assertEqual(opened.current().plugin.command, "/bin/true")

    def test_missing(self) -> None:
        """A file that is not there yet is a problem until it is, and is looked for now and then."""
        opened = self.begin(KubeconfigFile(str(self.path)))
        self.assertIn(f"{self.path} does not exist", self.refusal(opened))
        self.write(kubeconfig())
        self.refusal(opened)
        self.clock.advance(2)
        self.assertEqual(opened.current().token, "secret")
        self.assertEqual(opened.problem, "")

    def test_other_context(self) -> None:
        """A missing context is reported by name."""
        self.write(kubeconfig())
        message = self.refusal(self.begin(KubeconfigFile(str(self.path), "prod")))
        self.assertIn('no context "prod"', message)


class DataCredentialsTests(CredentialsTestCase):
    """Tests for :class:`DataCredentials`."""

    def test_read(self) -> None:
        """Data is read once."""
        opened = self.begin(KubeconfigData(kubeconfig().encode(), "cluster one"))
        self.assertIs(opened.current(), opened.current())

    def test_problems(self) -> None:
        """Invalid credentials are reported with their source."""
        for content, message in (
            (kubeconfig()[:40], "cluster one: not YAML"),
            (kubeconfig(tokenFile="/etc/passwd"), "tokenFile is not taken from here; use token"),
            ("x" * (5 << 20), "larger than 256 KiB"),
        ):
            opened = self.begin(KubeconfigData(content.encode(), "cluster one"))
            self.assertIn(message, self.refusal(opened))
        missing = KubeconfigData(b"", "cluster one", "cluster one has no kubeconfig")
        self.assertEqual(self.refusal(self.begin(missing)), "cluster one has no kubeconfig")


class SecretCredentialsTests(CredentialsTestCase):
    """Tests for :class:`SecretCredentials`."""

    told_of = KubeconfigSecret("leaves", "one")

    def test_least_privilege(self) -> None:
        """The client requests one Secret by name, and receives no other."""
        put_secret(self.root, kubeconfig(token="other"), "other")
        put_secret(self.root, kubeconfig(token="own"))
        self.assertEqual(self.begin(self.told_of).current().token, "own")
        self.assertEqual(
            {each[:3] for each in self.root.requests},
            {("list", "secrets", "leaves"), ("watch", "secrets", "leaves")},
        )
        put_secret(self.root, kubeconfig(token="again"), "other")
        self.assertEqual(len(self.told), 1)

    def test_rotated(self) -> None:
        """New content applies to the next request; failed requests are retried."""
        put_secret(self.root, kubeconfig(token="old"))
        opened = self.begin(self.told_of)
        put_secret(self.root, kubeconfig(token="new"))
        self.assertEqual(opened.current().token, "new")
        self.assertEqual(len(self.told), 3)  # the Secret was made anew: it went, and came

    def test_bad_rotation(self) -> None:
        """Invalid content leaves the last valid one in force; the log says so once, without quoting it."""
        put_secret(self.root, kubeconfig(token="old"))
        opened = self.begin(self.told_of)
        (key,) = self.root.objects
        for _ in range(2):
            secret = {**self.root.objects[key], "data": {"kubeconfig": "aGFsZjogew=="}}
            self.root.put(key, secret)
        self.assertEqual(opened.current().token, "old")
        self.assertEqual(opened.problem, "")
        warnings = [each for each in self.logged if "keeping the credentials from before" in each]
        self.assertEqual(len(warnings), 1)
        self.assertIn("secret leaves/one: not YAML", warnings[0])

    def test_taken_away(self) -> None:
        """Deleting the Secret withdraws the credentials; the message has a remedy."""
        put_secret(self.root, kubeconfig())
        opened = self.begin(self.told_of)
        self.root.remove((SECRETS.resource, "leaves", "one"))
        self.assertEqual(
            self.refusal(opened),
            "secret leaves/one does not exist; create it, with the leaf's kubeconfig under the key "
            '"kubeconfig"',
        )
        put_secret(self.root, kubeconfig())
        self.assertEqual(opened.current().token, "secret")

    def test_other_key(self) -> None:
        """A missing key is reported by name."""
        put_secret(self.root, kubeconfig(), key="value")
        self.assertEqual(
            self.refusal(self.begin(self.told_of)),
            'secret leaves/one does not have the leaf\'s kubeconfig under the key "kubeconfig"',
        )
        other = KubeconfigSecret("leaves", "one", "value")
        self.assertEqual(self.begin(other).current().token, "secret")

    def test_not_let(self) -> None:
        """If the root denies access to the Secret, the problem says so until it grants it."""
        self.root.problem = Forbidden("secrets is forbidden")
        opened = self.begin(self.told_of)
        self.assertEqual(
            self.refusal(opened), "secret leaves/one cannot be read: secrets is forbidden"
        )
        self.root.problem = None
        put_secret(self.root, kubeconfig())
        self.clock.advance(1)
        self.assertEqual(opened.current().token, "secret")

    def test_nothing_outside(self) -> None:
        """A user with write access to the Secret cannot run programs here."""
        put_secret(self.root, kubeconfig(exec={"command": "/bin/sh"}))
        message = self.refusal(self.begin(self.told_of))
        self.assertIn("exec is not taken from here; use a token or a certificate", message)
        self.assertNotIn("/bin/sh", message)
