"""
Tests for ``twisted_exec.ssh.login_file``.
"""

from __future__ import annotations

import os
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests import needs

if (skip := needs.conch()) is None:
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from tests.ssh.authority import NOW, Authority, blob_of, line_of
    from twisted_exec.program.config_file import ConfigError
    from twisted_exec.ssh import login_file
    from twisted_exec.ssh.login_file import CLOSED, EXPIRED, OTHER_GROUPS, REVOKED, LoginFile
    from twisted_exec.ssh.people import LoginRefused, Person, UnknownKey

_ALGORITHM = b"ssh-ed25519"
_CERTIFIED = b"ssh-ed25519-cert-v01@openssh.com"


class FileCase(SynchronousTestCase):
    """A file with an authority, and with a key of Ada."""

    skip = skip

    def setUp(self) -> None:
        self.directory = self.mktemp()
        os.makedirs(self.directory)
        self.clock = Clock()
        self.authority, self.ada, self.bob = Authority(), *map(new_key, range(2))
        self.write("ca.pub", self.authority.line + "\n")
        self.content = (
            f"authorities:\n- {{keys: ca.pub, groups: [people]}}\n"
            f"users:\n- user: ada\n  groups: [operators, people]\n  keys:\n"
            f"  - {line_of(self.ada)} ada@laptop\n"
        )
        self.write("logins.yaml", self.content)
        self.people = LoginFile(os.path.join(self.directory, "logins.yaml"), self.clock)
        self.patch(login_file, "deferToThread", at_once)

    def write(self, name: str, text: str | bytes) -> None:
        """Replace a file."""
        path = os.path.join(self.directory, name)
        with open(f"{path}.new", "wb") as file:
            os.chmod(f"{path}.new", 0o644)
            file.write(text.encode() if isinstance(text, str) else text)
        os.replace(f"{path}.new", path)

    def identify(
        self, blob: bytes, algorithm: bytes = _ALGORITHM, address: str = "192.0.2.7"
    ) -> Person:
        return self.people.identify(algorithm, blob, address, NOW)

    def certified(self, *principals: bytes, **more: Any) -> Person:
        blob = self.authority.certify(self.bob, *(principals or (b"bob",)), **more)
        return self.identify(blob, _CERTIFIED)

    def refused(self, error: type[LoginRefused], blob: bytes, algorithm: bytes = _ALGORITHM) -> str:
        return str(self.assertRaises(error, self.identify, blob, algorithm))


def new_key(_: object) -> Any:
    """Return a private key."""
    return Ed25519PrivateKey.generate()


def at_once(function: Any) -> Deferred[Any]:
    """Call a function, as a thread would."""
    return maybeDeferred(function)


class IdentifyTests(FileCase):
    """Who a key or a certificate is of."""

    def setUp(self) -> None:
        super().setUp()
        self.people.load()

    def test_key(self) -> None:
        """A key is of its user, with the groups of that entry."""
        person = self.identify(blob_of(self.ada))
        self.assertEqual((person.user, person.groups), ("ada", ("operators", "people")))
        self.assertEqual((person.certificate, person.expires), ("", None))
        self.assertTrue(person.fingerprint.startswith("SHA256:"))
        self.assertIsNone(self.people.reason_to_end(person, NOW + 1e9))

    def test_certificate(self) -> None:
        """A certificate is of its principal, with the groups of its authority, until it expires."""
        person = self.certified()
        self.assertEqual((person.user, person.groups), ("bob", ("people",)))
        self.assertEqual(person.certificate, "ada@laptop (serial 7)")
        self.assertEqual(person.expires, NOW + 60)
        self.assertIsNone(self.people.reason_to_end(person, NOW + 59))
        self.assertEqual(self.people.reason_to_end(person, NOW + 60), EXPIRED)

    def test_strangers(self) -> None:
        """Unknown keys and authorities, and wrong algorithms, are those of strangers."""
        ada = blob_of(self.ada)
        for blob, algorithm in (
            (blob_of(self.bob), _ALGORITHM),
            (ada, b"rsa-sha2-512"),
            (ada, _CERTIFIED),
            (ada, b"ssh-rsa"),
            (ada + b"x", _ALGORITHM),
            (b"", _ALGORITHM),
            (b"\xff\xff\xff\xff", _ALGORITHM),
            (Authority().certify(self.ada, b"ada"), _CERTIFIED),
            (self.authority.certify(self.ada, b"ada")[:-1], _CERTIFIED),
            (self.authority.certify(self.ada, b"ada"), _ALGORITHM),
        ):
            self.refused(UnknownKey, blob, algorithm)

    def test_rsa(self) -> None:
        """RSA is with SHA-2 alone, whatever the certificate's own name is."""
        private = rsa.generate_private_key(65537, 2048)
        blob = self.authority.certify(private, b"ada")
        for algorithm in (b"rsa-sha2-256", b"rsa-sha2-512"):
            name = algorithm + b"-cert-v01@openssh.com"
            self.assertEqual(self.identify(blob, name).user, "ada")
        self.refused(UnknownKey, blob, b"ssh-rsa-cert-v01@openssh.com")

    def test_refused(self) -> None:
        """A certificate that does not hold is refused with a sentence."""
        for blob in (
            self.authority.certify(self.bob),
            self.authority.certify(self.bob, b"bob", valid=(NOW - 2, NOW - 1)),
            self.authority.certify(self.bob, b"system:admin"),
            self.authority.certify(self.bob, b"bob", options={b"source-address": b"::1"}),
        ):
            error = self.assertRaises(LoginRefused, self.identify, blob, _CERTIFIED)
            self.assertNotIsInstance(error, UnknownKey)


class ChangeTests(FileCase):
    """Files that change while sessions are open."""

    def setUp(self) -> None:
        super().setUp()
        self.people.load()
        self.people.startService()
        self.addCleanup(self.people.stopService)
        self.by_key = self.identify(blob_of(self.ada))
        self.by_certificate = self.certified()

    def reasons(self) -> list[str | None]:
        """Return why the sessions of both end."""
        self.clock.advance(0.5)
        return [self.people.reason_to_end(each, NOW) for each in (self.by_key, self.by_certificate)]

    def test_same(self) -> None:
        """Files that are written anew with the same content end nothing."""
        self.write("logins.yaml", self.content + "# x\n")
        self.assertEqual(self.reasons(), [None, None])

    def test_withdrawn(self) -> None:
        """A key and an authority that are removed end their sessions, and let nobody in."""
        self.write("logins.yaml", self.content.replace(line_of(self.ada), line_of(self.bob)))
        [by_key, by_certificate] = self.reasons()
        self.assertEqual(by_key, "your ssh key is not known here any more")
        self.assertIsNone(by_certificate)
        self.refused(UnknownKey, blob_of(self.ada))
        self.write("logins.yaml", self.content)
        self.write("ca.pub", Authority().line)
        [by_key, by_certificate] = self.reasons()
        self.assertIsNone(by_key)
        assert by_certificate is not None
        self.assertIn("the authority of your ssh certificate is not known", by_certificate)

    def test_modes(self) -> None:
        """A file that others can write is not used, as others could add users: nobody logs in until it is mended."""
        path = os.path.join(self.directory, "ca.pub")
        for mode in (0o664, 0o646):
            os.chmod(path, mode)
            self.assertEqual(self.reasons(), [None, None])
            self.assertEqual(self.refused(LoginRefused, blob_of(self.ada)), CLOSED)
            self.assertIn(f"type: chmod go-w {path}", self.people.problem())
            os.chmod(path, 0o644)
            self.assertEqual(self.reasons(), [None, None])
            self.assertEqual(
                (self.identify(blob_of(self.ada)).user, self.people.problem()), ("ada", "")
            )

    def test_groups(self) -> None:
        """Other groups, and another user of a key, end the sessions."""
        self.write("logins.yaml", self.content.replace("[people]", "[people, operators]"))
        self.assertEqual(self.reasons(), [None, OTHER_GROUPS])
        self.write("logins.yaml", self.content.replace("user: ada", "user: eve"))
        self.assertEqual(self.reasons(), [OTHER_GROUPS, None])

    def test_revoked(self) -> None:
        """What is revoked ends, and does not come in again."""
        self.write("revoked", "")
        self.write("logins.yaml", self.content + "revoked: revoked\n")
        self.assertEqual(self.reasons(), [None, None])
        self.write("revoked", f"{line_of(self.bob)}\n")
        self.assertEqual(self.reasons(), [None, REVOKED])
        self.write("revoked", f"{line_of(self.ada)}\n{self.authority.line}\n")
        self.assertEqual(self.reasons(), [REVOKED, REVOKED])
        self.assertEqual(self.refused(LoginRefused, blob_of(self.ada)), REVOKED)

    def test_expiry(self) -> None:
        """A key's time may be set later."""
        line = line_of(self.ada)
        entry = f"{{key: {line}, expires: '2027-01-15T08:00:01Z'}}"
        self.write("logins.yaml", self.content.replace(f"{line} ada@laptop", entry))
        self.assertEqual(self.reasons(), [None, None])
        self.assertEqual(self.identify(blob_of(self.ada)).expires, NOW + 1)
        entry = entry.replace("08:00:01Z", "09:00:00+01:00")
        self.write("logins.yaml", self.content.replace(f"{line} ada@laptop", entry))
        self.assertEqual(self.reasons(), [EXPIRED, None])

    def test_broken(self) -> None:
        """While a file cannot be used, nobody logs in, and sessions stay, until a good one says otherwise."""
        for name, content in (
            ("logins.yaml", "users: ["),
            ("logins.yaml", ""),
            ("ca.pub", ""),
            ("ca.pub", "no key"),
        ):
            self.write(name, content)
            self.assertEqual(self.reasons(), [None, None])
            self.assertEqual(self.refused(LoginRefused, blob_of(self.ada)), CLOSED)
            self.refused(UnknownKey, blob_of(self.bob))
            self.assertEqual(self.people.reason_to_end(self.by_certificate, NOW + 60), EXPIRED)
            self.write("logins.yaml", self.content)
            self.write("ca.pub", self.authority.line)
            self.assertEqual(self.reasons(), [None, None])
            self.identify(blob_of(self.ada))
        os.unlink(os.path.join(self.directory, "ca.pub"))
        self.assertEqual(self.reasons(), [None, None])
        self.assertEqual(self.refused(LoginRefused, blob_of(self.ada)), CLOSED)

    def test_bug(self) -> None:
        """An error that nobody has thought of closes the logins, until the files can be read."""
        read = login_file.read_logins
        login_file.read_logins = lambda path: 1 / 0  # type: ignore[assignment,return-value]
        self.write("logins.yaml", self.content + "\n")
        try:
            self.assertEqual(self.reasons(), [None, None])
        finally:
            login_file.read_logins = read
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(self.refused(LoginRefused, blob_of(self.ada)), CLOSED)
        self.assertEqual(self.reasons(), [None, None])
        self.identify(blob_of(self.ada))

    def test_changing(self) -> None:
        """A file that changes while it is read is not taken, but read again."""
        regular = login_file.regular

        def written_meanwhile(path: str, flags: int) -> int:
            with open(path, "a") as file:
                file.write("# x\n")
            return regular(path, flags)

        login_file.regular = written_meanwhile
        try:
            self.write("logins.yaml", self.content + "\n")
            self.assertEqual(self.reasons(), [None, None])
        finally:
            login_file.regular = regular
        self.assertEqual(self.refused(LoginRefused, blob_of(self.ada)), CLOSED)
        self.assertEqual(self.reasons(), [None, None])
        self.identify(blob_of(self.ada))

    def test_read_once(self) -> None:
        """Files are read when they change alone, be they good or not."""
        reads: list[str] = []
        read = login_file.read_logins
        self.patch(login_file, "read_logins", lambda path: reads.append(path) or read(path))
        for content in (self.content + "\n", "users: ["):
            self.write("logins.yaml", content)
            self.clock.pump([0.5] * 5)
        self.assertEqual(len(reads), 2)


class ContentTests(FileCase):
    """What the file may hold."""

    def problem(self, content: str) -> str:
        self.write("logins.yaml", content)
        return str(self.assertRaises(ConfigError, self.people.load))

    def test_refused(self) -> None:
        """What is wrong is refused, with a message that names it."""
        key, other = line_of(self.ada), line_of(self.bob)
        user = "users: [{{user: {}, keys: ['{}']}}]\n"
        self.write("krl", "serial: 5\n")
        self.write("binary", b"\xff\xfe")
        for content, problem in (
            ("{}", "has neither authorities nor users"),
            ("[]", "must be a mapping"),
            ("people: []", "unknown key 'people'"),
            ("users: [{user: ada}]", "keys is missing"),
            (user.format("ada", "no key"), "users[0]: keys[0]: a line must be TYPE BASE64"),
            (user.format("system:admin", key), "begins with system:"),
            (user.format("'*'", key), "has a slash, a backslash or a star"),
            (user.format("''", key), "is empty"),
            (user.format("ada, groups: [system:masters]", key), "begins with system:"),
            (user.format("ada, groups: [1]", key), "the group 1 must be a string"),
            (user.format("ada, groups: [" + "g," * 65 + "]", key), "more than 64 groups"),
            (user.format("ada", f"{key}', '{key}"), "is there already"),
            (f"users: [{{user: ada, keys: [{{key: {key}, expires: soon}}]}}]", "is no time"),
            (
                f"users: [{{user: ada, keys: [{{key: {key}, expires: '2027-01-01'}}]}}]",
                "is no time",
            ),
            (f"users: [{{user: ada, keys: [{{key: {key}}}]}}]", "expires is missing"),
            ("users: [{user: ada, keys: [1]}]", "keys[0] must be a line"),
            ("authorities: [{keys: absent.pub}]", "absent.pub: No such file"),
            ("authorities: [{keys: binary}]", "binary is no text"),
            ("authorities: [{keys: ca.pub}, {keys: ca.pub}]", "is there already"),
            (user.format("ada", other) + "revoked: krl\n", "krl: line 1"),
            (user.format("ada", other) + "revoked: absent\n", "cannot read"),
            (user.format("ada", other) + "revoked: .\n", "cannot read"),
        ):
            self.assertIn(problem, self.problem(content))

    def test_names(self) -> None:
        """Names of files are relative to the directory of the file."""
        self.write("logins.yaml", "authorities: [{keys: ./ca.pub}]")
        self.people.load()
        self.assertEqual(self.certified().groups, ())
        path = os.path.abspath(os.path.join(self.directory, "ca.pub"))
        self.write("logins.yaml", f"authorities: [{{keys: {path}, groups: [a, a, b]}}]")
        self.people.load()
        self.assertEqual(self.certified().groups, ("a", "b"))
