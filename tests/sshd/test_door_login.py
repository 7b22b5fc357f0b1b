"""
Tests for :mod:`twisted_exec.sshd.door_login`.
"""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.kube.kubeconfig.client_config import ImpersonatedUser, KubeConfigError
from twisted_exec.kube.kubeconfig.headers import impersonation_headers
from twisted_exec.ssh.people import Credential, LoginRefused, Person
from twisted_exec.sshd.door_login import DoorLogin

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: lab
contexts: [{name: lab, context: {cluster: lab, user: door}}]
clusters: [{name: lab, cluster: {server: "https://lab.example.org"}}]
users: [{name: door, user: {%s}}]
"""
CREDENTIAL = Credential(b"ssh-ed25519", b"", "192.0.2.7")


class DoorLoginTests(SynchronousTestCase):
    """As whom the door sends requests."""

    def login(self, user: str = "token: secret") -> DoorLogin:
        path = Path(self.mktemp())
        path.write_text(KUBECONFIG % user)
        return DoorLogin(str(path), None)

    def test_user(self) -> None:
        """Requests name the user, the groups of the source, and the login by ssh."""
        person = Person(
            "ada",
            ("crew", "night shift"),
            "SHA256:abc/+",
            "ada@laptop (serial 7)",
            credential=CREDENTIAL,
        )
        config = self.login().acting_as(person, "lab")
        self.assertEqual((config.namespace, config.token), ("lab", "secret"))
        self.assertEqual(
            config.impersonate,
            ImpersonatedUser(
                "ada",
                groups=("crew", "night shift"),
                extra=(
                    ("ssh-key", ("SHA256:abc/+",)),
                    ("ssh-certificate", ("ada@laptop (serial 7)",)),
                    ("ssh-address", ("192.0.2.7",)),
                ),
            ),
        )

    def test_plain_key(self) -> None:
        """A key without certificate has none in the request."""
        config = self.login().acting_as(Person("ada", (), "SHA256:abc"), "lab")
        self.assertEqual(config.impersonate.extra, (("ssh-key", ("SHA256:abc",)),))

    def test_headers(self) -> None:
        """The id of a certificate cannot add a header, whatever its authority has signed."""
        evil = " x\r\nImpersonate-User: admin\0ä%" + "y" * 5000
        config = self.login().acting_as(Person("ada", (), "SHA256:abc", evil), "lab")
        headers = dict(impersonation_headers(config.impersonate))
        value = headers[b"Impersonate-Extra-ssh-certificate"]
        self.assertTrue(
            value.startswith(b"x%0D%0AImpersonate-User: admin%00%C3%A4%25yyy"), value[:80]
        )
        self.assertLess(len(value), 1000)
        self.assertEqual(headers[b"Impersonate-User"], b"ada")

    def test_refused(self) -> None:
        """Nobody becomes a user or group of Kubernetes itself, or one whose name no header carries."""
        login = self.login()
        for user, groups in (
            ("system:admin", ()),
            ("system:serviceaccount:default:x", ()),
            ("system:", ()),
            ("ada", ("system:masters",)),
            ("ada", ("crew", "system:authenticated")),
            ("", ()),
            ("ada", ("",)),
            (" ada", ()),
            ("ada ", ()),
            ("ada\r\nx", ()),
            ("ada\0", ()),
            ("ada", ("crew\n",)),
        ):
            with self.assertRaises(LoginRefused):
                login.acting_as(Person(user, groups, "SHA256:abc"), "lab")

    def test_own_login(self) -> None:
        """The door needs a login of its own, and impersonates nobody else."""
        for user, why in (
            ("", "neither a client certificate nor a token"),
            ("username: door, password: x", "neither a client certificate nor a token"),
            (
                "exec: {apiVersion: client.authentication.k8s.io/v1, command: x, interactiveMode: Never}",
                "neither a client certificate nor a token",
            ),
            ("token: x, as: admin", "has a user to impersonate"),
        ):
            with self.assertRaisesRegex(KubeConfigError, why):
                self.login(user)

    def test_token_file(self) -> None:
        """A token file is read when it is used, so an open session resumes with the next token."""
        path = Path(self.mktemp()).absolute()
        path.write_text("first")
        config = self.login(f"tokenFile: {path}").acting_as(Person("ada", (), "SHA256:abc"), "lab")
        self.assertEqual((config.token_file, config.token), (str(path), ""))
