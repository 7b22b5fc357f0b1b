"""
Property tests with arbitrary content in ControlPlanes and ClusterProfiles, which other users may
write.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.spacemanager.interfaces import BROKEN, BUILDING, GOING, USABLE
from twisted_exec.spacemanager.providers.clusterprofile import credentials, profiles
from twisted_exec.spacemanager.providers.kubeflex import controlplanes

WORDS = st.sampled_from(
    [
        *(
            "",
            "x",
            "True",
            "False",
            "Ready",
            "Available",
            "Synced",
            "é",
            "1",
            "red-system",
            "kube-system",
        ),
        *(
            "default",
            "secretreader",
            "kubeconfig-secretreader",
            "client.authentication.k8s.io/exec",
        ),
        *("ControlPlaneHealthy", "../x", "a\n\x1b[0mb"),
    ]
)
KEYS = st.sampled_from(
    [
        *("conditions", "type", "status", "reason", "message", "secretRef", "namespace", "name"),
        *("key", "inClusterKey", "accessProviders", "credentialProviders", "cluster", "extensions"),
        *("extension", "clusterName", "context", "clusterManager", "server"),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=30,
)
STATES = {BUILDING, USABLE, BROKEN, GOING}


class AnyObjectTests(SynchronousTestCase):
    """Any content is read without an error, and never leads to a forbidden Secret."""

    @settings(max_examples=100, deadline=None)
    @given(VALUES, VALUES)
    def test_controlplane(self, spec: Any, status: Any) -> None:
        """A ControlPlane's Secret is always in the control plane's own namespace."""
        metadata = {"name": "red", "uid": "1"}
        reading = controlplanes.read({"metadata": metadata, "spec": spec, "status": status})
        info = controlplanes.info_of(reading, None, None)
        self.assertIn(info.state, STATES - {USABLE})  # not usable without a Secret
        self.assertTrue(info.message.isprintable())
        self.assertRegex(info.reason, "^([A-Za-z][A-Za-z0-9]*)?$")
        self.assertTrue(all(key for _, key in reading.keys))
        reference = status.get("secretRef") if isinstance(status, dict) else None
        if reading.secret:
            assert isinstance(reference, dict)
            self.assertEqual(reference["namespace"], "red-system")

    @settings(max_examples=100, deadline=None)
    @given(VALUES, VALUES)
    def test_profile(self, spec: Any, status: Any) -> None:
        """A ClusterProfile's Secrets are always in allowed namespaces."""
        metadata = {"name": "red", "namespace": "default", "uid": "1"}
        profile = {"metadata": metadata, "spec": spec, "status": status}
        profiles.is_ours(profile)
        reading = profiles.read(profile, profiles.Places(secrets=["x"]))
        self.assertLessEqual({way.secret[0] for way in reading.ways}, {"default", "x"})
        info = credentials.info_of(reading, credentials.by_push(reading, []))
        self.assertIn(info.state, STATES - {USABLE})
        self.assertTrue(info.message.isprintable())
        self.assertRegex(info.reason, "^([A-Za-z][A-Za-z0-9]*)?$")
