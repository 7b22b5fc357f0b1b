"""
Tests for :mod:`twisted_exec.cli.commands.pki`.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import stat
from datetime import UTC, datetime, timedelta

from cryptography import x509
from twisted.trial.unittest import SynchronousTestCase

from tests.tls.pki.support import KillingTestCase
from twisted_exec.cli.main import main
from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pki.authority import Authority
from twisted_exec.tls.pki.directory import create_pki, open_pki
from twisted_exec.tls.server import PeerCertificate

AUTHORITIES = ["ca.crt", "client-ca.crt", "requestheader-ca.crt"]


class PKICommandTestCase(SynchronousTestCase):
    """Base of tests for ``twisted-exec pki``."""

    def setUp(self) -> None:
        self.root = os.path.abspath(self.mktemp())
        os.makedirs(self.root)
        self.directory = os.path.join(self.root, "pki")

    def run_pki(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main(["pki", *arguments])
            except SystemExit as exit_:
                code = int(exit_.code or 0)
        return code, out.getvalue(), err.getvalue()

    def good(self, *arguments: str, next_step: str = "") -> list[str]:
        """
        Run a command that succeeds; return the names of the files it printed.

        :param next_step: end of its message on standard error.
        """
        code, out, err = self.run_pki(*arguments)
        self.assertEqual(code, 0, err)
        self.assertEqual(bool(err), bool(next_step), err)
        self.assertTrue(err.rstrip().endswith(next_step), err)
        self.assertNotIn("PRIVATE", out)
        paths = out.splitlines()
        for path in paths:
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600, path)
        return [os.path.basename(path) for path in paths]

    def bad(self, *arguments: str) -> str:
        """Run a command that fails; return its one line of error."""
        code, out, err = self.run_pki(*arguments)
        self.assertEqual((code, out), (1, ""))
        self.assertEqual(err.count("\n"), 1)
        self.assertTrue(err.startswith("twisted-exec pki"), err)
        return err

    def chain(self, name: str) -> list[x509.Certificate]:
        path = os.path.join(self.directory, name)
        return pem.certificates(read_file(path), path)


class PKICommandTests(PKICommandTestCase):
    """Tests for ``twisted-exec pki``."""

    def test_renew(self) -> None:
        """Only certificates that expire soon are renewed, with the same subject."""
        self.good("init", self.directory)
        self.good("user", self.directory, "--user", "ada", "--group", "ops", "staff")
        self.good("runtime", self.directory, "--runtime", "a", "--name", "h.example", "::1")
        self.assertEqual(self.good("renew", self.directory), [])
        before = self.chain("runtime-a.crt")[0], self.chain("user-ada.crt")[0]
        self.assertEqual(
            self.good("renew", self.directory, "--within", "366"),
            ["runtime-a.crt", "runtime-a.key", "user-ada.crt", "user-ada.key"],
        )
        after = self.chain("runtime-a.crt")[0], self.chain("user-ada.crt")[0]
        for old, new in zip(before, after, strict=True):
            self.assertEqual(old.subject, new.subject)
            self.assertNotEqual(old.public_key(), new.public_key())
            for kind in (x509.ExtendedKeyUsage, x509.KeyUsage):
                self.assertEqual(
                    old.extensions.get_extension_for_class(kind).value,
                    new.extensions.get_extension_for_class(kind).value,
                )
        names = [
            each.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            for each in (before[0], after[0])
        ]
        self.assertEqual(*names)
        self.assertIn(
            "no number of days", self.run_pki("renew", self.directory, "--within", "0")[2]
        )

    def test_days(self) -> None:
        """A user's certificate has the lifetime that was asked for, before and after a renewal."""
        self.good("init", self.directory)
        self.good("user", self.directory, "--user", "carl", "--days", "7")
        for _ in range(2):
            (certificate,) = self.chain("user-carl.crt")
            left = certificate.not_valid_after_utc - datetime.now(UTC)
            self.assertEqual(round(left / timedelta(days=1)), 7)
            self.assertEqual(self.good("renew", self.directory), ["user-carl.crt", "user-carl.key"])
        for days in ("0", "-1", "week", "3651"):
            self.bad("user", self.directory, "--user", "eve", "--days", days)

    def test_days_of_authority(self) -> None:
        """No certificate is issued for longer than its authority, and the message says what to do."""
        pki = create_pki(self.directory)
        later = datetime.now(UTC) + timedelta(days=3640)
        with self.assertRaisesRegex(TLSConfigError, "expires in 9 days.*renew .*--authorities"):
            pki.issue_user("carl", [], now=later, days=30)
        self.assertFalse(pki.pair("user-carl").exists)
        pki.issue_user("carl", [], now=later, days=9)

    def test_renew_authorities(self) -> None:
        """New authorities sign beside the old ones, until those are retired."""
        self.good("init", self.directory)
        self.good("user", self.directory, "--user", "ada")
        old = self.chain("client-ca.crt")
        self.assertEqual(
            self.good("renew", self.directory, "--authorities", next_step="--apiserver"),
            [*AUTHORITIES, "user-ada.crt", "user-ada.key"],
        )
        new, kept = self.chain("client-ca.crt")
        self.assertEqual([kept], old)
        self.chain("user-ada.crt")[0].verify_directly_issued_by(new)
        self.assertEqual(self.good("renew", self.directory, next_step="--retire"), [])
        self.assertEqual(
            self.good("renew", self.directory, "--retire", next_step="anew."), AUTHORITIES
        )
        self.assertEqual(self.chain("client-ca.crt"), [new])
        self.assertEqual(self.good("renew", self.directory, "--retire"), [])

    def test_order(self) -> None:
        """
        The API server's certificate is the last to be renewed, because kubeconfigs of before do not
        trust the new one; each step says the next one, and is refused before its turn.
        """
        directory = self.directory
        self.good("init", directory)
        self.good("apiserver", directory, "--name", "api.example")
        self.good("poollet", directory, "--pool", "a", "--name", "a.example")
        self.assertIn("is from the present authority", self.bad("renew", directory, "--apiserver"))
        (old,) = self.chain("ca.crt")
        apiserver, retire = f"renew {directory} --apiserver", f"renew {directory} --retire"
        renewed = self.good("renew", directory, "--authorities", next_step=apiserver)
        self.assertIn("poollet-a.crt", renewed)
        self.assertIn("apiserver-forwarding.crt", renewed)
        self.assertNotIn("apiserver.crt", renewed)
        self.chain("apiserver.crt")[0].verify_directly_issued_by(old)
        self.assertEqual(self.good("renew", directory, next_step=apiserver), [])
        for option, why in (
            ("--all", f"locked out; when all do: twisted-exec pki {apiserver}"),
            (
                "--retire",
                f"apiserver.crt is from an authority that is to be retired; first: twisted-exec pki {apiserver}",
            ),
            ("--authorities", "are being replaced already; first: "),
        ):
            self.assertIn(why, self.bad("renew", directory, option))
        self.assertEqual(
            self.good("renew", directory, "--apiserver", next_step=retire),
            ["apiserver.crt", "apiserver.key"],
        )
        self.chain("apiserver.crt")[0].verify_directly_issued_by(self.chain("ca.crt")[0])
        self.assertIn("first: twisted-exec pki", self.bad("renew", directory, "--authorities"))
        self.good("renew", directory, "--retire", next_step="until you write them anew.")
        self.assertEqual(len(self.chain("ca.crt")), 1)

    def test_order_of_others(self) -> None:
        """A certificate of an authority that is to be retired is found, whosever it is."""
        directory = self.directory
        self.good("init", directory)
        self.good("user", directory, "--user", "ada")
        kept = read_file(os.path.join(directory, "user-ada.crt"))
        self.good("renew", directory, "--authorities", next_step="--apiserver")
        with open(os.path.join(directory, "user-ada.crt"), "wb") as file:
            file.write(kept)
        problem = self.bad("renew", directory, "--retire")
        self.assertIn(
            f"user-ada.crt is from an authority that is to be retired; first: twisted-exec pki renew {directory}\n",
            problem,
        )
        self.good("renew", directory, next_step="--retire")
        self.good("renew", directory, "--retire", next_step="anew.")

    def test_renew_after_retiring(self) -> None:
        """Renewal fails for a certificate whose authority has been retired."""
        self.good("init", self.directory)
        self.good("user", self.directory, "--user", "ada")
        kept = read_file(os.path.join(self.directory, "user-ada.crt"))
        self.good("renew", self.directory, "--authorities", next_step="--apiserver")
        self.good("renew", self.directory, "--retire", next_step="anew.")
        with open(os.path.join(self.directory, "user-ada.crt"), "wb") as file:
            file.write(kept)
        self.assertIn("none of this directory's authorities", self.bad("renew", self.directory))

    def test_foreign_certificate(self) -> None:
        """No authority is replaced beside a certificate that none of them has signed."""
        self.good("init", self.directory)
        foreign = Authority.create("elsewhere").issue_client("eve").certificate_pem
        with open(os.path.join(self.directory, "user-eve.crt"), "wb") as file:
            file.write(foreign)
        before = self.chain("ca.crt")
        problem = self.bad("renew", self.directory, "--authorities")
        self.assertIn('user-eve.crt" is of none of this directory', problem)
        self.assertEqual(self.chain("ca.crt"), before)

    def test_everything(self) -> None:
        """The commands for three hosts print the files that each host needs."""
        directory = self.directory
        self.assertEqual(
            self.good("init", directory), ["ca.crt", "client-ca.crt", "requestheader-ca.crt"]
        )
        self.assertEqual(
            self.good("apiserver", directory, "--name", "api.example", "127.0.0.1"),
            [
                "apiserver.crt",
                "apiserver.key",
                "apiserver-forwarding.crt",
                "apiserver-forwarding.key",
            ],
        )
        config = os.path.join(self.root, "poollet.kubeconfig")
        self.assertEqual(
            self.good(
                *("poollet", directory, "--pool", "a", "--name", "10.0.0.1"),
                *("--server", "https://api.example:6443", "--kubeconfig", config),
            ),
            [
                "poollet-a.crt",
                "poollet-a.key",
                "poollet-a-client.crt",
                "poollet-a-client.key",
                "poollet.kubeconfig",
            ],
        )
        self.assertEqual(
            self.good("runtime", directory, "--runtime", "host-1", "--name", "10.0.0.2"),
            ["runtime-host-1.crt", "runtime-host-1.key"],
        )
        self.assertEqual(
            self.good("user", directory, "--user", "jane", "--group", "dev", "--group", "ops"),
            ["user-jane.crt", "user-jane.key"],
        )
        chain = pem.certificates(read_file(os.path.join(directory, "user-jane.crt")), "it")
        self.assertEqual(PeerCertificate(chain[0]).organizations, ("dev", "ops"))

    def test_no_overwriting(self) -> None:
        """Existing files are replaced only with ``--force``."""
        self.good("init", self.directory)
        before = read_file(os.path.join(self.directory, "ca.key"))
        self.assertIn("give --force", self.bad("init", self.directory))
        self.assertEqual(read_file(os.path.join(self.directory, "ca.key")), before)
        self.good("user", self.directory, "--user", "jane")
        self.assertIn("give --force", self.bad("user", self.directory, "--user", "jane"))
        self.good("user", self.directory, "--user", "jane", "--force")

    def test_nothing_before_everything_is_right(self) -> None:
        """A wrong kubeconfig is found before a certificate is issued."""
        self.good("init", self.directory)
        existing = os.path.join(self.root, "config")
        with open(existing, "w"):
            pass
        for more in (
            ("--server", "https://x:1"),
            ("--kubeconfig", "x"),
            ("--server", "http://x:1", "--kubeconfig", "x"),
            ("--server", "https://", "--kubeconfig", "x"),
            ("--server", "https://x:port", "--kubeconfig", "x"),
            ("--server", "https://x:1", "--kubeconfig", existing),
        ):
            self.bad("user", self.directory, "--user", "jane", *more)
            self.assertFalse(os.path.exists(os.path.join(self.directory, "user-jane.key")))

    def test_bad_input(self) -> None:
        """Any error is one line, and exit code 1."""
        self.good("init", self.directory)
        for arguments in (
            (),
            ("nonsense",),
            ("init",),
            ("init", "/proc/nowhere"),
            ("apiserver", self.directory),
            ("apiserver", self.directory, "--name"),
            ("apiserver", self.directory, "--name", "not a name"),
            ("apiserver", "/nowhere", "--name", "x"),
            ("poollet", self.directory, "--pool", "../x", "--name", "x"),
            ("poollet", self.directory, "--pool", "p" * 30, "--name", "x"),
            ("user", self.directory, "--user", ""),
            ("user", self.directory, "--user", "x" * 65),
            ("user", self.directory, "--user", "jane", "--group", ""),
            ("runtime", self.directory, "--runtime", "/etc/x", "--name", "x"),
        ):
            self.bad(*arguments)

    def test_damaged_authority(self) -> None:
        """A damaged authority is named; its content is not shown."""
        self.good("init", self.directory)
        key = os.path.join(self.directory, "client-ca.key")
        with open(key, "wb") as stream:
            stream.write(b"secret")
        told = self.bad("user", self.directory, "--user", "jane")
        self.assertIn(f'CA key "{key}" holds', told)
        self.assertNotIn("secret", told)


class KilledTests(PKICommandTestCase, KillingTestCase):
    """Tests for ``twisted-exec pki renew`` after it was killed while it wrote."""

    def setUp(self) -> None:
        super().setUp()
        self.complete = os.path.join(self.root, "complete")
        self.good("init", self.complete)
        self.good("apiserver", self.complete, "--name", "api.example")
        self.good("user", self.complete, "--user", "ada")
        self.before = {name: self.signing(self.complete, name) for name in AUTHORITIES}

    def signing(self, directory: str, name: str) -> bytes:
        """Return the certificate with which an authority signs, as PEM."""
        return open_pki(directory).authority(name.removesuffix(".crt")).certificate_pem

    def killed(self, write: int, *options: str) -> bool:
        """
        Kill a renewal in a fresh copy of the directory before a write.

        :return: whether there were so many writes.
        """
        self.directory = os.path.join(self.root, str(write))
        shutil.copytree(self.complete, self.directory)
        return self.is_killed(write, *options)

    def is_killed(self, write: int, *options: str) -> bool:
        return self.killed_before(write, lambda: self.run_pki("renew", self.directory, *options))

    def replaced(self) -> list[str]:
        """Return the authorities that sign with their new keys."""
        return [
            name for name in AUTHORITIES if self.signing(self.directory, name) != self.before[name]
        ]

    def check_trust(self) -> None:
        """Each certificate is from an authority in the file of its kind."""
        for pair in open_pki(self.directory).pairs():
            name = os.path.basename(pair.certificate)
            (certificate,) = self.chain(name)
            self.assertTrue(
                any(
                    pem.has_issued(issuer, certificate)
                    for authority in AUTHORITIES
                    for issuer in self.chain(authority)
                ),
                name,
            )

    def check_replaced(self) -> None:
        """All authorities have been replaced, and each later step succeeds."""
        directory = self.directory
        for name in AUTHORITIES:
            self.assertEqual(pem.pem_of(self.chain(name)[1:]), self.before[name])
        self.assertEqual(self.replaced(), AUTHORITIES)
        self.assertIn("are being replaced already", self.bad("renew", directory, "--authorities"))
        self.good("renew", directory, "--apiserver", next_step="--retire")
        self.good("renew", directory, "--retire", next_step="anew.")
        for pair in open_pki(directory).pairs():
            (certificate,) = self.chain(os.path.basename(pair.certificate))
            self.assertTrue(
                any(pem.has_issued(self.chain(name)[0], certificate) for name in AUTHORITIES)
            )
            self.assertTrue(pem.is_key_of(pem.private_key(read_file(pair.key), "it"), certificate))

    def test_authorities(self) -> None:
        """
        Wherever ``--authorities`` is killed, each authority signs, and the next run finishes the
        replacement and prints all files that hosts need.
        """
        write, seen = 0, set()
        while self.killed(write, "--authorities"):
            seen.add(len(self.replaced()))
            self.check_trust()
            printed = self.good(
                *("renew", self.directory, "--authorities"),
                next_step=f"renew {self.directory} --apiserver",
            )
            stems = ("apiserver-forwarding", "user-ada")
            leaves = [f"{stem}.{kind}" for stem in stems for kind in ("crt", "key")]
            self.assertEqual(printed, [*AUTHORITIES, *leaves], write)
            self.check_replaced()
            write += 1
        self.assertEqual(seen, {0, 1, 2, 3})

    def test_authorities_twice(self) -> None:
        """If the second run is killed, too, the third one finishes the replacement."""
        write = 0
        while self.killed(write, "--authorities"):
            if self.is_killed(write, "--authorities"):
                self.check_trust()
                self.good("renew", self.directory, "--authorities", next_step="--apiserver")
            self.check_replaced()
            write += 1
        self.assertGreater(write, 20)

    def test_order(self) -> None:
        """
        While only some authorities have new keys, no later step succeeds: the replacement would seem
        complete. Certificates that expire are renewed nevertheless.
        """
        write = 0
        while self.killed(write, "--authorities"):
            write += 1
            if len(self.replaced()) in (1, 2):
                first = f"twisted-exec pki renew {self.directory} --authorities"
                for step in ("--apiserver", "--retire"):
                    self.assertIn(
                        f"replacement of the authorities was interrupted; first: {first}",
                        self.bad("renew", self.directory, step),
                    )
                self.good("renew", self.directory, next_step=first)
                self.good("renew", self.directory, "--authorities", next_step="--apiserver")
                self.check_replaced()

    def test_retire(self) -> None:
        """Wherever ``--retire`` is killed, the next run finishes it."""
        self.directory = self.complete
        self.good("renew", self.directory, "--authorities", next_step="--apiserver")
        self.good("renew", self.directory, "--apiserver", next_step="--retire")
        write = 0
        while self.killed(write, "--retire"):
            write += 1
            self.check_trust()
            self.assertIn(
                "are being replaced already", self.bad("renew", self.directory, "--authorities")
            )
            self.good("renew", self.directory, "--retire", next_step="anew.")
            for name in AUTHORITIES:
                (certificate,) = self.chain(name)
                self.assertEqual(pem.pem_of([certificate]), self.signing(self.complete, name))
        self.assertGreater(write, 3)
