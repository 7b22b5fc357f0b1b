"""
Tests for :mod:`twisted_exec.sshd.options` and :mod:`twisted_exec.sshd.tap`.
"""

from __future__ import annotations

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.taps import assert_required, refusal
from twisted_exec.program.service import ServiceWithCleanup

from .files import write_files

if (skip := needs.conch()) is None:
    from twisted_exec.ssh.key_exchange import EXCHANGES, POST_QUANTUM
    from twisted_exec.sshd import options as sshd_options
    from twisted_exec.sshd.limits import Limits
    from twisted_exec.sshd.options import Options
    from twisted_exec.sshd.service import SSHDoor
    from twisted_exec.sshd.tap import makeService

REQUIRED = ("--kubeconfig=door.kubeconfig", "--users=users.yaml", "--host-key=host_ed25519")


class OptionsTests(SynchronousTestCase):
    """The command line."""

    skip = skip

    def options(self, *more: str) -> Options:
        options = Options()
        options.parseOptions([*REQUIRED, *more])
        return options

    def test_settings(self) -> None:
        """The options become settings; paths become absolute."""
        options = self.options(
            "--listen=tcp:22",
            "--login-seconds=10",
            "--max-logins=50",
            "--max-sessions-per-user=3",
            "--host-key=host_rsa",
            "--host-certificate=host_ed25519-cert.pub",
        )
        settings = options.settings()
        self.assertEqual((settings.listen, settings.login_seconds), ("tcp:22", 10))
        self.assertEqual(settings.limits, Limits(before_login=50, sessions_per_user=3))
        self.assertEqual(
            options["host-key"], [os.path.abspath(each) for each in ("host_ed25519", "host_rsa")]
        )
        self.assertEqual(options["users"], os.path.abspath("users.yaml"))
        self.assertEqual(self.options().settings().limits, Limits())

    def test_exchanges(self) -> None:
        """Clients without a post-quantum exchange are refused if the operator says so, and where ML-KEM is."""
        self.assertEqual(self.options().settings().exchanges, tuple(EXCHANGES))
        if not POST_QUANTUM:
            self.assertRaises(SystemExit, self.options, "--only-post-quantum")
            return
        settings = self.options("--only-post-quantum").settings()
        self.assertEqual(settings.exchanges, (b"mlkem768x25519-sha256",))
        self.patch(sshd_options, "POST_QUANTUM", ())
        with self.assertRaisesRegex(SystemExit, "--only-post-quantum needs ML-KEM"):
            self.options("--only-post-quantum")

    def test_mistakes(self) -> None:
        """Each mistake has a message with the option."""
        for option, why in (
            ("--listen=nowhere", "--listen"),
            ("--login-seconds=0", "--login-seconds"),
            ("--max-logins=0", "--max-logins"),
            ("--max-connections=-1", "--max-connections"),
        ):
            with self.assertRaisesRegex(SystemExit, why):
                self.options(option)
        assert_required(self, Options, REQUIRED)


class TapTests(SynchronousTestCase):
    """The program."""

    skip = skip

    def setUp(self) -> None:
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        write_files(self.directory)

    def options(self, **changed: str) -> Options:
        files = {"kubeconfig": "kubeconfig", "users": "users.yaml", "host-key": "host", **changed}
        options = Options()
        options.parseOptions([f"--{key}={self.directory / name}" for key, name in files.items()])
        return options

    def test_service(self) -> None:
        """makeService returns the program, without opening anything."""
        program = makeService(self.options())
        assert isinstance(program, ServiceWithCleanup)
        self.assertIsInstance(program.served, SSHDoor)
        self.assertIsNone(program.served.address)

    def test_modes(self) -> None:
        """Files that others can write are refused, with the remedy."""
        for name, key in (("kubeconfig", "kubeconfig"), ("users.yaml", "users")):
            path = self.directory / name
            for mode in (0o620, 0o602):
                path.chmod(mode)
                options = self.options(**{key: name})
                told = refusal(self, "exec-sshd", lambda options=options: makeService(options))  # type: ignore[misc]
                self.assertIn(f"other users can write {path}; type: chmod go-w {path}", told)
            path.chmod(0o644)
            makeService(self.options(**{key: name}))

    def test_files(self) -> None:
        """Each file that cannot be used is named in one line."""
        for key, name, why in (
            ("kubeconfig", "none", "none"),
            ("users", "none", "none"),
            ("users", "host", "host"),
            ("host-key", "none", "none"),
            ("host-key", "host.pub", "host.pub"),
        ):
            options = self.options(**{key: name})
            told = refusal(self, "exec-sshd", lambda options=options: makeService(options))  # type: ignore[misc]
            self.assertIn(f"{self.directory}/{why}", told)
