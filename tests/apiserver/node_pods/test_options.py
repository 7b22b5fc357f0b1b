"""Tests for :mod:`twisted_exec.apiserver.node_pods.options`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.apiserver.node_pods.options import kubelet_access
from twisted_exec.apiserver.options import Options, settings

NEEDED = [
    "--tls-cert-file=c",
    "--tls-private-key-file=k",
    "--client-ca-file=ca",
    "--storage=memory",
    "--machinepoollet-client-certificate=pc",
    "--machinepoollet-client-key=pk",
    "--machinepoollet-certificate-authority=pca",
]
KUBELETS = [
    "--kubelet-client-certificate=/kc",
    "--kubelet-client-key=/kk",
    "--kubelet-certificate-authority=/kca",
]


def options(*more: str) -> Options:
    """A command line that has what is needed, and more."""
    parsed = Options()
    parsed.parseOptions([*NEEDED, *more])
    return parsed


class KubeletOptionsTests(SynchronousTestCase):
    """Connections to kubelets."""

    def refusal(self, *more: str) -> str:
        with self.assertRaises(SystemExit) as caught:
            options(*more)
        return str(caught.exception)

    def test_none(self) -> None:
        """Without these options, kubelets are not used."""
        told = settings(options())
        self.assertIsNone(told.kubelets)
        self.assertTrue(told.pods_view)

    def test_given(self) -> None:
        """They are kube-apiserver's, with its default of addresses."""
        access = kubelet_access(options(*KUBELETS))
        assert access is not None
        self.assertEqual((access.certificate, access.key, access.ca), ("/kc", "/kk", "/kca"))
        self.assertEqual(access.address_types[:2], ("Hostname", "InternalDNS"))

    def test_types(self) -> None:
        """In the order in which they are given."""
        chosen = "--kubelet-preferred-address-types=InternalIP,Hostname"
        access = kubelet_access(options(*KUBELETS, chosen))
        assert access is not None
        self.assertEqual(access.address_types, ("InternalIP", "Hostname"))
        self.assertIn("'Nowhere'", self.refusal(*KUBELETS, f"{chosen},Nowhere"))

    def test_one_is_missing(self) -> None:
        """All three belong together; without a CA kubelets could not be verified."""
        for missing in KUBELETS:
            told = self.refusal(*(each for each in KUBELETS if each != missing))
            self.assertIn(f"{missing.partition('=')[0]} is missing", told)

    def test_of_no_use(self) -> None:
        """The other options for kubelets need the required ones."""
        self.assertIn("needs --kubelet-client-certificate", self.refusal("--kubelet-timeout=3"))

    def test_view(self) -> None:
        """Pods are either those of Nodes or a view of machines, not both."""
        self.assertIn("--pods-view cannot go with", self.refusal("--pods-view", *KUBELETS))

    def test_behind_another(self) -> None:
        """Behind a host, Pods are the host's."""
        told = [each for each in NEEDED if "client-ca" not in each]
        parsed = Options()
        with self.assertRaises(SystemExit) as caught:
            parsed.parseOptions([*told, "--aggregated", *KUBELETS])
        self.assertIn("Pods are the host's", str(caught.exception))
