"""
Tests for :mod:`twisted_exec.cli.options`.
"""

from __future__ import annotations

import argparse
import os
import time

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.console.options import parse_options
from twisted_exec.cli.options import config_of, duration, since_time
from twisted_exec.kube.kubeconfig.client_config import (
    ClientConfig,
    ImpersonatedUser,
    KubeConfigError,
)


class ClusterOptionsTests(SynchronousTestCase):
    """The options override parts of a kubeconfig."""

    def config(self, *words: str) -> ClientConfig:
        path = self.mktemp()
        with open(path, "w") as stream:
            stream.write(
                "current-context: x\n"
                "clusters: [{name: c, cluster: {server: 'https://a', tls-server-name: n}},"
                " {name: d, cluster: {server: 'https://d'}}]\n"
                "users: [{name: u, user: {token: t, as: root}}, {name: v, user: {token: v}}]\n"
                "contexts: [{name: x, context: {cluster: c, user: u, namespace: lab}},"
                " {name: y, context: {cluster: d}}]\n"
            )
        return config_of(parse_options(["vm", "--kubeconfig", path, *words]))

    def test_none(self) -> None:
        """Without options, the file is used as it is."""
        config = self.config()
        self.assertEqual(
            (config.server, config.tls_server_name, config.namespace), ("https://a", "n", "lab")
        )
        self.assertEqual((config.token, config.impersonate), ("t", ImpersonatedUser("root")))

    def test_choices(self) -> None:
        """Options select another context, cluster, user or namespace."""
        self.assertEqual(self.config("--context", "y").server, "https://d")
        config = self.config("--cluster", "d", "--user", "v", "-n", "other")
        self.assertEqual(
            (config.server, config.token, config.namespace), ("https://d", "v", "other")
        )

    def test_server(self) -> None:
        """Options set the server's address and how its certificate is verified."""
        config = self.config("-s", "https://b:1", "--insecure-skip-tls-verify")
        self.assertEqual((config.server, config.tls_server_name), ("https://b:1", ""))
        self.assertTrue(config.insecure_skip_tls_verify)
        self.assertEqual(self.config("--tls-server-name", "m").tls_server_name, "m")
        with self.assertRaises(KubeConfigError) as caught:
            self.config("--certificate-authority", "/nonexistent")
        self.assertIn("certificate-authority: /nonexistent: No such", str(caught.exception))

    def test_blame(self) -> None:
        """An error that an option causes blames the option; other errors blame the file."""
        for words, told in (
            (("--server", "foo"), 'cluster "c": with the options given: server "foo" is not'),
            (("--user", "v", "--as-group", "g"), 'user "v": with the options given: as is missing'),
        ):
            with self.assertRaises(KubeConfigError) as caught:
                self.config(*words)
            self.assertIn(told, str(caught.exception))
        with self.assertRaises(KubeConfigError) as caught:
            self.config("--context", "z")
        self.assertNotIn("options given", str(caught.exception))

    def test_identity(self) -> None:
        """Options set the credentials and the impersonated user."""
        config = self.config(
            *("--token", "mine", "--as", "jane", "--as-uid", "7"),
            *("--as-group", "dev", "--as-group", "ops"),
        )
        self.assertEqual(config.token, "mine")
        self.assertEqual(config.impersonate, ImpersonatedUser("jane", "7", ("dev", "ops")))
        with self.assertRaises(KubeConfigError):
            self.config("--username", "u", "--password", "p")  # beside the file's token
        config = self.config("--cluster", "c", "--user", "v", "--as-group", "g", "--as", "x")
        self.assertEqual(config.impersonate.groups, ("g",))
        with self.assertRaises(KubeConfigError) as caught:
            self.config("--client-key", "/nonexistent")
        self.assertIn("client-key: /nonexistent", str(caught.exception))


def _set_zone(name: str | None) -> None:
    if name is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = name
    time.tzset()


class SinceTests(SynchronousTestCase):
    """Times, and durations before now."""

    def test_without_zone(self) -> None:
        """A time without a zone is one of this host; a date is its midnight."""
        self.addCleanup(_set_zone, os.environ.get("TZ"))
        _set_zone("UTC-2")
        for text, same in (
            ("2026-11-24", "2026-11-23T22:00:00Z"),
            ("2026-11-24T10:30", "2026-11-24T08:30:00Z"),
            ("2026-11-24 10:30:05", "2026-11-24T08:30:05Z"),
            ("2026-11-24 10:30+01:00", "2026-11-24T09:30:00Z"),
        ):
            self.assertEqual(since_time(text), since_time(same))
        for text in ("2026-13-01", "2026-11-24T25:00"):
            with self.assertRaisesRegex(argparse.ArgumentTypeError, "or 2026-11-20 08:00 here"):
                since_time(text)

    def test_neither(self) -> None:
        """The message shows a time and a duration."""
        for text in ("yesterday", "", "-5m"):
            with self.assertRaisesRegex(argparse.ArgumentTypeError, "no time .* no duration such"):
                since_time(text)


class DurationTests(SynchronousTestCase):
    """Tests for :func:`duration`."""

    def test_good(self) -> None:
        """Durations are written as in Go; a bare number is seconds."""
        for text, seconds in (
            ("7", 7.0),
            ("5s", 5.0),
            ("1m30s", 90.0),
            ("1.5h", 5400.0),
            ("500ms", 0.5),
            ("0", None),
            ("0s", None),
        ):
            self.assertEqual(duration(text), seconds)

    def test_bad(self) -> None:
        """Any other text is refused."""
        for text in ("", "-1", "-1s", "soon", "1d", "s", "5 s", "²", "1e9h", "99999h"):
            self.assertRaises(argparse.ArgumentTypeError, duration, text)
