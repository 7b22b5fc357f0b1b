"""Tests for :mod:`twisted_exec.spacemanager.providers.kind.settings`."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.spaces import OWNER
from twisted_exec.api.status import BadRequest, Invalid
from twisted_exec.spacemanager.interfaces import ProviderSpec
from twisted_exec.spacemanager.providers.kind.settings import (
    KindSettings,
    config_of,
    image_of,
    kind_settings,
)


def told(**secret: bytes) -> KindSettings:
    """Return the settings from a Secret with these keys."""
    return kind_settings(ProviderSpec("lab", "kind", secret, "default/kind"))


class SettingsTests(SynchronousTestCase):
    """Tests for :func:`kind_settings` and :func:`config_of`."""

    def test_none(self) -> None:
        """No Secret is needed; the node gets the owner label of the Space."""
        found = kind_settings(ProviderSpec("lab", "kind"))
        self.assertEqual(found, KindSettings())
        self.assertEqual(
            json.loads(config_of(found, "space-1")),
            {
                "kind": "Cluster",
                "apiVersion": "kind.x-k8s.io/v1alpha4",
                "nodes": [{"role": "control-plane", "labels": {OWNER: "space-1"}}],
            },
        )

    def test_config(self) -> None:
        """A given configuration is kept without its name; each node gets the owner label."""
        text = b"""
            kind: Cluster
            apiVersion: kind.x-k8s.io/v1alpha4
            name: always-the-same
            networking: {apiServerAddress: 192.0.2.1}
            nodes: [{role: control-plane, labels: {a: b}}, {role: worker}]
        """
        config = json.loads(config_of(told(config=text), "space-1"))
        self.assertNotIn("name", config)
        self.assertEqual(config["networking"], {"apiServerAddress": "192.0.2.1"})
        labels = [node["labels"] for node in config["nodes"]]
        self.assertEqual(labels, [{"a": "b", OWNER: "space-1"}, {OWNER: "space-1"}])

    def test_bad(self) -> None:
        """Invalid values are refused with the Secret and the key."""
        for key, value in (
            ("config", b"{"),
            ("config", b"[]"),
            ("config", b"kind: Node"),
            ("config", b"apiVersion: kind.x-k8s.io/v1alpha3"),
            ("config", b"nodes: x"),
            ("config", b"nodes: [x]"),
            ("config", b"nodes: [{labels: x}]"),
            ("config", b"nodes: [{labels: {a: 1}}]"),
            ("config", b"when: .nan"),
            ("config", b"a: &a [" + b"1," * 999 + b"]\nb: [*a, *a, *a, *a, *a]"),
            ("config", b"x" * 70000),
            ("config", b"\xff"),
            ("internal", b"perhaps"),
        ):
            with self.assertRaises(Invalid) as caught:
                told(**{key: value})
            self.assertIn(f'secret default/kind, key "{key}"', caught.exception.message)

    def test_internal(self) -> None:
        """The in-cluster viewpoint is enabled by ``internal: true`` only."""
        self.assertFalse(told().internal)
        self.assertFalse(told(internal=b"false").internal)
        self.assertTrue(told(internal=b"true\n").internal)


class ImageTests(SynchronousTestCase):
    """Tests for :func:`image_of`, which limits images because nodes run privileged."""

    def test_allowed(self) -> None:
        """kindest/node images are allowed; without an image kind uses its default."""
        for image in ("", "kindest/node:v1.33.1", "kindest/node:v1.33.1@sha256:" + "a" * 64):
            parameters = {"image": image} if image else {}
            self.assertEqual(image_of(told(), "red", parameters), image)

    def test_others(self) -> None:
        """The key ``images`` of the provider's Secret replaces the allowed images."""
        found = told(images=b"registry.example/node:* other:1")
        for image in ("registry.example/node:7", "other:1"):
            self.assertEqual(image_of(found, "red", {"image": image}), image)
        for image in ("kindest/node:v1.33.1", "other:2"):
            with self.assertRaises(BadRequest):
                image_of(found, "red", {"image": image})

    def test_refused(self) -> None:
        """Other images and parameters are refused with a message about the image."""
        for parameters in (
            {"image": "evil/root:1"},
            {"image": "--retain"},
            {"image": "kindest/node:a b"},
            {"config": "x"},
        ):
            with self.assertRaises(BadRequest) as caught:
                image_of(told(), "red", parameters)
            self.assertIn("image", caught.exception.message)
