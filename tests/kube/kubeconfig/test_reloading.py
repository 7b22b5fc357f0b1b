"""Tests for :mod:`twisted_exec.kube.kubeconfig.reloading`."""

from __future__ import annotations

import json
import os
from pathlib import Path

from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tests.tls.support import authority, client_identity
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.kubeconfig.connection import tls
from twisted_exec.kube.kubeconfig.headers import auth_headers
from twisted_exec.kube.kubeconfig.loader import Overrides
from twisted_exec.kube.kubeconfig.reloading import ReloadingConfig


def kubeconfig(server: str) -> str:
    """A kubeconfig for one server."""
    return json.dumps(
        {
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
            "clusters": [{"name": "it", "cluster": {"server": server}}],
            "users": [{"name": "me", "user": {}}],
        }
    )


class FollowedConfigTests(SynchronousTestCase):
    """Tests for :class:`ReloadingConfig`."""

    def setUp(self) -> None:
        directory = Path(self.mktemp()).absolute()
        directory.mkdir()
        self.path = directory / "config"
        self.replace(kubeconfig("https://one:6443"))

    def replace(self, content: str) -> None:
        """Replace the file atomically, as programs that renew credentials do."""
        fresh = self.path.with_suffix(".new")
        fresh.write_text(content)
        os.replace(fresh, self.path)

    def test_unchanged(self) -> None:
        """Unchanged files return the same configuration object."""
        followed = ReloadingConfig(str(self.path))
        self.assertIs(followed.current(), followed.current())

    def test_replaced(self) -> None:
        """A replaced file applies to the next call."""
        followed = ReloadingConfig(str(self.path))
        self.assertEqual(followed.current().server, "https://one:6443")
        self.replace(kubeconfig("https://two:6443"))
        self.assertEqual(followed.current().server, "https://two:6443")

    def test_half_written(self) -> None:
        """
        An invalid or missing file leaves the configuration as it was, until the next valid write.
        """
        followed = ReloadingConfig(str(self.path))
        self.replace("{half")
        self.assertEqual(followed.current().server, "https://one:6443")
        os.unlink(self.path)
        self.assertEqual(followed.current().server, "https://one:6443")
        self.replace(kubeconfig("https://two:6443"))
        self.assertEqual(followed.current().server, "https://two:6443")

    def test_listed(self) -> None:
        """All files in KUBECONFIG are followed, even ones created later."""
        later = self.path.with_name("first")
        environ = {"KUBECONFIG": f"{later}:{self.path}"}
        followed = ReloadingConfig(environ=environ)
        later.write_text(kubeconfig("https://first:6443"))
        self.assertEqual(followed.current().server, "https://first:6443")

    def test_missing(self) -> None:
        """A file in KUBECONFIG that does not exist hides no change of the files behind it."""
        environ = {"KUBECONFIG": f"{self.path.with_name('missing')}:{self.path}"}
        followed = ReloadingConfig(environ=environ)
        self.replace(kubeconfig("https://two:6443"))
        self.assertEqual(followed.current().server, "https://two:6443")

    def test_overrides(self) -> None:
        """Values that override the file also override the next one."""
        overrides = Overrides(namespace="lab", token="mine")
        followed = ReloadingConfig(str(self.path), overrides=overrides)
        self.replace(kubeconfig("https://two:6443"))
        config = followed.current()
        self.assertEqual(
            (config.server, config.namespace, config.token), ("https://two:6443", "lab", "mine")
        )

    def with_files(self) -> ReloadingConfig:
        """Return a kubeconfig whose certificates and token are in separate files."""
        self.issued = client_identity("me")
        self.files = {
            "ca": authority("serving").certificate_pem,
            "crt": self.issued.certificate_pem,
            "key": self.issued.key_pem,
            "token": b"first",
        }
        for name, content in self.files.items():
            self.path.with_suffix(f".{name}").write_bytes(content)
        told = json.loads(kubeconfig("https://one:6443"))
        told["clusters"][0]["cluster"]["certificate-authority"] = "config.ca"
        told["users"][0]["user"] = {
            "client-certificate": "config.crt",
            "client-key": "config.key",
            "tokenFile": "config.token",
        }
        self.replace(json.dumps(told))
        return ReloadingConfig(str(self.path))

    def change(self, name: str, content: bytes) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_bytes(content)
        os.replace(fresh, self.path.with_suffix(f".{name}"))

    def test_named_files(self) -> None:
        """Certificate and key are reloaded only as a matching pair."""
        followed = self.with_files()
        before = followed.current()
        self.assertEqual(before.certificate.data, self.issued.certificate_pem)
        other = client_identity("me")
        self.change("key", other.key_pem)
        self.assertEqual(followed.current(), before)
        self.change("crt", other.certificate_pem[:50])
        self.assertEqual(followed.current(), before)
        self.assertIs(followed.current(), followed.current())
        self.change("crt", other.certificate_pem)
        self.assertEqual(followed.current().certificate.data, other.certificate_pem)
        self.assertEqual(followed.current().key.data, other.key_pem)

    def test_half_written_authority(self) -> None:
        """A truncated CA bundle does not replace the CA."""
        followed, second = self.with_files(), authority("others").certificate_pem
        before = followed.current()
        self.change("ca", self.files["ca"] + second[:200])
        self.assertEqual(followed.current(), before)
        self.change("ca", self.files["ca"] + second)
        self.assertEqual(followed.current().ca.data, self.files["ca"] + second)

    def test_said_once(self) -> None:
        """An unusable file is logged once, without its content."""
        told: list[str] = []
        followed = self.with_files()
        followed.current()
        globalLogPublisher.addObserver(observer := lambda event: told.append(formatEvent(event)))
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        self.change("key", b"secret")
        for _ in range(3):
            followed.current()
        self.assertEqual(len(told), 1)
        self.assertIn("the old contents stay", told[0])
        self.assertNotIn("secret", told[0])

    def test_empty_token(self) -> None:
        """An empty token file leaves the previous token in use."""
        followed = self.with_files()
        for content, wanted in ((b"first", b"first"), (b"", b"first"), (b"second\n", b"second")):
            self.change("token", content)
            self.assertEqual(
                auth_headers(followed.current()), [(b"Authorization", b"Bearer " + wanted)]
            )

    def test_never_good(self) -> None:
        """Files that were never valid fail on use, until they become valid."""
        followed = self.with_files()
        self.change("key", b"")
        followed = ReloadingConfig(str(self.path))
        with self.assertRaises(KubeConfigError) as caught:
            tls(followed.current())
        self.assertIn("key", str(caught.exception))
        self.change("key", self.files["key"])
        tls(followed.current())

    def test_nothing_to_follow(self) -> None:
        """Construction without any kubeconfig fails."""
        with self.assertRaises(KubeConfigError):
            ReloadingConfig(str(self.path.with_name("nowhere")))
