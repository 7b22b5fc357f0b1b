"""
Tests for :mod:`twisted_exec.apiserver.options`.
"""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.dialects import IRONCORE, NAMES, ONMETAL, SPHERIC
from twisted_exec.api.kinds import ADDRESS_TYPES
from twisted_exec.apiserver.auditing.policy import DEFAULT_POLICY, load
from twisted_exec.apiserver.identity.credentials import Identities
from twisted_exec.apiserver.options import Options, settings
from twisted_exec.apiserver.settings import Settings
from twisted_exec.program.session_limits import SessionLimits

NEEDED = {
    "tls-cert-file": "a",
    "tls-private-key-file": "b",
    "client-ca-file": "c",
    "machinepoollet-client-certificate": "d",
    "machinepoollet-client-key": "e",
    "machinepoollet-certificate-authority": "f",
    "storage": "sqlite:g",
}


def arguments(**more: str) -> list[str]:
    """A command line with all that is needed; an empty value leaves it out."""
    told = {**NEEDED, **{key.replace("_", "-"): value for key, value in more.items()}}
    return [word for key, value in told.items() if value for word in (f"--{key}", value)]


class OptionsTests(SynchronousTestCase):
    """Tests for :class:`Options`."""

    def refused(self, words: list[str]) -> str:
        with self.assertRaises(SystemExit) as caught:
            Options().parseOptions(words)
        return str(caught.exception.code)

    def test_needed(self) -> None:
        """Each option that is needed is named when it is missing."""
        for name in NEEDED:
            told = self.refused(arguments(**{name: ""}))
            self.assertTrue(told.startswith(f"exec-apiserver: --{name} is missing: "), told)

    def test_signing(self) -> None:
        """Two authorities, and for how long they sign; none by itself."""
        told = self.settings(arguments())
        self.assertEqual((told.signing, told.client_signing), (None, None))
        self.assertEqual(told.signing_seconds, 8760 * 3600)
        client = "cluster-signing-kube-apiserver-client"
        files = {
            "cluster-signing-cert-file": "a.crt",
            "cluster-signing-key-file": "a.key",
            f"{client}-cert-file": "b.crt",
            f"{client}-key-file": "b.key",
            "cluster-signing-duration": "1h30m10s",
        }
        told = self.settings(arguments(**files))
        self.assertEqual(told.signing_seconds, 5410)
        for pair, name in ((told.signing, "a"), (told.client_signing, "b")):
            assert pair is not None
            here = Path.cwd()
            self.assertEqual(pair.certificate, str(here / f"{name}.crt"))
            self.assertEqual(pair.key, str(here / f"{name}.key"))

    def settings(self, words: list[str]) -> Settings:
        options = Options()
        options.parseOptions(words)
        return settings(options)

    def test_scheduler(self) -> None:
        """The two flags exclude each other."""
        told = self.refused([*arguments(), "--scheduler", "--no-scheduler"])
        self.assertIn("--scheduler and --no-scheduler: give one of them", told)

    def test_bad_values(self) -> None:
        """Invalid values are refused with valid examples."""
        for name, value, told in [
            ("storage", "etcd:x", "--storage: ca= is missing"),
            ("storage", "redis:x", "--storage: give sqlite:PATH"),
            ("storage", "sqlite:", "give sqlite:PATH"),
            ("preferred-address-types", "Hostname,Carrier", "'Carrier' is none of Hostname"),
            ("machinepoollet-timeout", "soon", "--machinepoollet-timeout: 'soon' is no number"),
            ("drain-seconds", "-1", "--drain-seconds: '-1' is no number of seconds"),
            ("cluster-signing-duration", "9m", "--cluster-signing-duration: give a duration"),
            ("cluster-signing-duration", "1 year", "--cluster-signing-duration: give a duration"),
            ("cluster-signing-key-file", "k", "--cluster-signing-cert-file is missing"),
            ("cluster-signing-cert-file", "c", "--cluster-signing-key-file is missing"),
        ]:
            self.assertIn(told, self.refused(arguments(**{name: value})))

    def test_defaults(self) -> None:
        """Defaults."""
        options = Options()
        options.parseOptions(arguments())
        told = settings(options)
        self.assertEqual((told.listen, told.identities), ("tcp:6443", Identities()))
        self.assertEqual(tuple(told.address_types), ADDRESS_TYPES)
        self.assertEqual((told.poollet_seconds, told.drain_seconds), (5.0, 1.5))
        self.assertTrue(told.pools_named)

    def test_everything(self) -> None:
        """All options reach the service."""
        options = Options()
        words = arguments(
            tls_cert_file="/c",
            tls_private_key_file="/k",
            client_ca_file="/ca",
            machinepoollet_client_certificate="/pc",
            machinepoollet_client_key="/pk",
            machinepoollet_certificate_authority="/pca",
            listen="tcp:0",
            token_auth_file="/tokens",
            preferred_address_types="ExternalIP, Hostname",
            machinepoollet_timeout="0.5",
            drain_seconds="7",
            max_sessions="9",
            max_sessions_per_user="3",
        )
        options.parseOptions([*words, "--any-pool-name", "--no-pods-view"])
        self.assertEqual(
            settings(options),
            Settings(
                listen="tcp:0",
                certificate="/c",
                key="/k",
                client_ca="/ca",
                poollet_certificate="/pc",
                poollet_key="/pk",
                poollet_ca="/pca",
                identities=Identities("/tokens"),
                address_types=("ExternalIP", "Hostname"),
                poollet_seconds=0.5,
                pools_named=False,
                drain_seconds=7.0,
                pods_view=False,
                sessions=SessionLimits(9, 3),
                audit_policy=DEFAULT_POLICY,
            ),
        )

    def test_audit_policy(self) -> None:
        """The file of a policy is read with the options; a wrong file is an error of one line."""
        path = self.mktemp()
        for text, word in (("", "must be a mapping"), ("kind: Policy", "apiVersion")):
            Path(path).write_text(text)
            told = self.refused([*arguments(), f"--audit-policy-file={path}"])
            self.assertIn(word, told)
            self.assertIn(path, told)
        Path(path).write_text("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: None}]\n")
        options = Options()
        options.parseOptions([*arguments(), f"--audit-policy-file={path}"])
        self.assertEqual(settings(options).audit_policy, load(path))

    def test_pods_view(self) -> None:
        """The view is on by default; both flags together are refused."""
        for words, wanted in (((), True), (("--pods-view",), True), (("--no-pods-view",), False)):
            options = Options()
            options.parseOptions([*arguments(), *words])
            self.assertEqual(settings(options).pods_view, wanted)
        told = self.refused([*arguments(), "--pods-view", "--no-pods-view"])
        self.assertIn("--pods-view and --no-pods-view: give one of them", told)

    def test_dialects(self) -> None:
        """Several dialects keep their order; the default is ironcore."""
        for words, wanted in (
            ((), (IRONCORE,)),
            (("--dialect=onmetal",), (ONMETAL,)),
            (("--dialect", "spheric", "--dialect", "ironcore"), (SPHERIC, IRONCORE)),
        ):
            options = Options()
            options.parseOptions([*arguments(), *words])
            self.assertEqual(settings(options).dialects, wanted)
        told = self.refused([*arguments(), "--dialect=irncore"])
        self.assertIn("--dialect: there is no dialect 'irncore': choose one of ironcore,", told)
        told = self.refused([*arguments(), "--dialect=onmetal", "--dialect=onmetal"])
        self.assertIn("--dialect: dialect 'onmetal' is given twice", told)
        self.assertIn(NAMES.split(",")[1], Options().getUsage())
