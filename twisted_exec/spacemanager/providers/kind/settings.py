"""
Settings of a kind provider, from its Secret, and the configuration of a cluster.

Source: ``sigs.k8s.io/kind`` v0.32.0, ``pkg/apis/config/v1alpha4``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from twisted_exec.api.spaces import OWNER
from twisted_exec.api.status import APIError, BadRequest, one_line
from twisted_exec.api.yaml_reader import FILE, parse_yaml
from twisted_exec.spacemanager.interfaces import ProviderSpec
from twisted_exec.spacemanager.providers.cluster import wrong_secret

IMAGE = "image"
"""Parameter: the image of the nodes."""
CONFIG_KEY, IMAGES_KEY, INTERNAL_KEY = "config", "images", "internal"
"""
Keys of the provider's Secret: a configuration of kind; patterns of images that Spaces may choose;
and ``true`` if the hub is in the network of the nodes (``docker network`` ``kind``).
"""
IMAGES = ("kindest/node:*", "kindest/node@sha256:*")

API_VERSION = "kind.x-k8s.io/v1alpha4"
_MAX_CONFIG_BYTES = 64 << 10
_RULES = replace(FILE, values=5_000)  # it is parsed in the reactor

_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}")


@dataclass(frozen=True)
class KindSettings:
    """
    Settings of a provider.

    A node of kind runs privileged, from an arbitrary image, with arbitrary mounts: Spaces may only
    choose among the images that the provider's owner allows.

    :param config: configuration for every cluster, without the name.
    :param internal: offer the control plane's name in the nodes' network as viewpoint ``InCluster``.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    images: Sequence[str] = IMAGES
    internal: bool = False


def kind_settings(spec: ProviderSpec) -> KindSettings:
    """
    Parse a provider's Secret.

    :raises Invalid: the Secret's content is not usable.
    """
    content = spec.secret or {}
    texts = {key: _text(spec, key, content[key]) for key in content}
    internal = texts.get(INTERNAL_KEY, "").strip() or "false"
    if internal not in ("true", "false"):
        raise _wrong(spec, INTERNAL_KEY, "it is neither true nor false")
    images = tuple(texts.get(IMAGES_KEY, "").split()) or IMAGES
    return KindSettings(_config(spec, texts.get(CONFIG_KEY, "")), images, internal == "true")


def _text(spec: ProviderSpec, key: str, value: bytes) -> str:
    if len(value) > _MAX_CONFIG_BYTES:
        raise _wrong(spec, key, f"it is larger than {_MAX_CONFIG_BYTES >> 10} KiB")
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise _wrong(spec, key, "it is no text") from None


def _config(spec: ProviderSpec, text: str) -> Mapping[str, Any]:
    try:
        config = parse_yaml(text, _RULES) if text.strip() else {}
        json.dumps(config, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        raise _wrong(spec, CONFIG_KEY, "it is no YAML that can be JSON") from None
    if not isinstance(config, dict):
        raise _wrong(spec, CONFIG_KEY, "a mapping is expected, with kind: Cluster")
    is_ours = config.get("kind", "Cluster") == "Cluster"
    if not is_ours or config.get("apiVersion", API_VERSION) != API_VERSION:
        raise _wrong(spec, CONFIG_KEY, f"its kind must be Cluster, its apiVersion {API_VERSION}")
    nodes = config.get("nodes") or []
    if not isinstance(nodes, list) or not all(_is_node(each) for each in nodes):
        raise _wrong(
            spec, CONFIG_KEY, "nodes must be a list of mappings, labels mappings of strings"
        )
    return {key: value for key, value in config.items() if key != "name"}


def _is_node(node: Any) -> bool:
    labels = (node.get("labels") or {}) if isinstance(node, dict) else None
    return isinstance(labels, dict) and all(isinstance(each, str) for each in labels.values())


def _wrong(spec: ProviderSpec, key: str, problem: str) -> APIError:
    return wrong_secret(spec, f'secret {spec.secret_ref}, key "{key}": {problem}')


def config_of(settings: KindSettings, owner: str) -> bytes:
    """Return the configuration of a cluster."""
    nodes = settings.config.get("nodes") or [{"role": "control-plane"}]
    marked = [{**node, "labels": {**(node.get("labels") or {}), OWNER: owner}} for node in nodes]
    # JSON is YAML, and json.dumps() is a safe writer.
    whole = {"kind": "Cluster", "apiVersion": API_VERSION, **settings.config, "nodes": marked}
    return json.dumps(whole).encode()


def image_of(settings: KindSettings, name: str, parameters: Mapping[str, str]) -> str:
    """
    Return the image that a Space chooses, or empty for kind's default.

    :raises BadRequest: the parameter is unknown, or the image is not allowed.
    """
    unknown = sorted(set(parameters) - {IMAGE})
    if unknown:
        raise BadRequest(
            f'cluster "{name}" cannot be made: spec.parameters: "{one_line(unknown[0])[:80]}" is not known to'
            f" providers of type kind; there is {IMAGE}"
        )
    image = parameters.get(IMAGE, "")
    if image and not (
        _IMAGE.fullmatch(image) and any(fnmatchcase(image, each) for each in settings.images)
    ):
        raise BadRequest(
            f'cluster "{name}" cannot be made: spec.parameters: {IMAGE} "{one_line(image)[:80]}" is not allowed;'
            f' allowed are {", ".join(settings.images)}, and more by the key "{IMAGES_KEY}" of the provider\'s Secret'
        )
    return image
