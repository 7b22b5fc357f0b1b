"""
What kind is told, and what it says: pure.

A node of kind runs privileged, from whatever image is said, and mounts whatever its configuration says.  So what a
Space may say is bounded: an image among those that whoever set the provider up allows.  All else is theirs, in the
provider's Secret, which a provider of this type can do without.

Source: ``sigs.k8s.io/kind`` v0.32.0, ``pkg/cluster/internal/create/create.go``, ``pkg/apis/config/v1alpha4``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import yaml

from twisted_exec.api.spaces import OWNER
from twisted_exec.api.status import APIError, BadGateway, BadRequest, Invalid, one_line
from twisted_exec.spacemanager.interfaces import Physical, ProviderSpec
from twisted_exec.spacemanager.providers.common.cluster import wrong_secret

IMAGE = "image"
"""Parameter: the image of its nodes."""
CONFIG_KEY, IMAGES_KEY, INTERNAL_KEY = "config", "images", "internal"
"""
Keys of the provider's Secret: a configuration of kind; patterns of images that Spaces may name; and ``true`` where
the cluster of the Spaces is in the network of the nodes (``docker network`` ``kind``).
"""
IMAGES = ("kindest/node:*", "kindest/node@sha256:*")
LONGEST_NAME = 50
"""kind warns of longer ones: names of hosts are made of them."""
API_VERSION = "kind.x-k8s.io/v1alpha4"
_MAX_CONFIG_BYTES = 64 << 10

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}")


@dataclass(frozen=True)
class KindSettings:
    """
    :param config: what every cluster is made by, as data.
    :param internal: the nodes' own addresses are a viewpoint, ``InCluster``.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    images: Sequence[str] = IMAGES
    internal: bool = False


def kind_settings(spec: ProviderSpec) -> KindSettings:
    """
    :raises Invalid: what the Secret holds cannot be used.
    """
    held = spec.secret or {}
    told = {key: _text(spec, key, held[key]) for key in held}
    internal = told.get(INTERNAL_KEY, "").strip() or "false"
    if internal not in ("true", "false"):
        raise _wrong(spec, INTERNAL_KEY, "it is neither true nor false")
    images = tuple(told.get(IMAGES_KEY, "").split()) or IMAGES
    return KindSettings(_config(spec, told.get(CONFIG_KEY, "")), images, internal == "true")


def _text(spec: ProviderSpec, key: str, value: bytes) -> str:
    if len(value) > _MAX_CONFIG_BYTES:
        raise _wrong(spec, key, f"it is larger than {_MAX_CONFIG_BYTES >> 10} KiB")
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise _wrong(spec, key, "it is no text") from None


def _config(spec: ProviderSpec, text: str) -> Mapping[str, Any]:
    try:
        told = yaml.safe_load(text) if text.strip() else {}
        json.dumps(told)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        raise _wrong(spec, CONFIG_KEY, "it is no YAML that can be JSON") from None
    if not isinstance(told, dict):
        raise _wrong(spec, CONFIG_KEY, "a mapping is expected, with kind: Cluster")
    is_ours = told.get("kind", "Cluster") == "Cluster"
    if not is_ours or told.get("apiVersion", API_VERSION) != API_VERSION:
        raise _wrong(spec, CONFIG_KEY, f"its kind must be Cluster, its apiVersion {API_VERSION}")
    nodes = told.get("nodes") or []
    if not isinstance(nodes, list) or not all(_is_node(each) for each in nodes):
        raise _wrong(
            spec, CONFIG_KEY, "nodes must be a list of mappings, labels mappings of strings"
        )
    return {key: value for key, value in told.items() if key != "name"}


def _is_node(node: Any) -> bool:
    labels = (node.get("labels") or {}) if isinstance(node, dict) else None
    return isinstance(labels, dict) and all(isinstance(each, str) for each in labels.values())


def _wrong(spec: ProviderSpec, key: str, problem: str) -> APIError:
    return wrong_secret(spec, f'secret {spec.secret_ref}, key "{key}": {problem}')


def config_of(settings: KindSettings, owner: str) -> bytes:
    """The configuration of a cluster, whose nodes bear the mark of a Space."""
    nodes = settings.config.get("nodes") or [{"role": "control-plane"}]
    marked = [{**node, "labels": {**(node.get("labels") or {}), OWNER: owner}} for node in nodes]
    # JSON is YAML, and needs no library to be written safely.
    whole = {"kind": "Cluster", "apiVersion": API_VERSION, **settings.config, "nodes": marked}
    return json.dumps(whole).encode()


def image_of(settings: KindSettings, name: str, parameters: Mapping[str, str]) -> str:
    """
    The image that a Space wants, or empty for the one that kind has.

    :raises BadRequest: there is no such parameter, or the image is not allowed.
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


def check_name(physical: Physical, *, new: bool = False) -> None:
    """
    :param new: it is to be made.
    :raises Invalid: there can be no such cluster.
    """
    causes = []
    if not is_name(physical.name) or (new and len(physical.name) > LONGEST_NAME):
        told = (
            f"a cluster's name has up to {LONGEST_NAME} lower case letters, digits, '.' and '-', and begins and"
            " ends with a letter or a digit"
        )
        causes.append({"field": "metadata.name", "message": told})
    if physical.parent:
        told = "providers of type kind have no places: leave the Space's path out"
        causes.append({"field": "metadata.annotations", "message": told})
    if causes:
        raise Invalid("clusters", one_line(str(physical))[:80], causes)


def is_name(name: str) -> bool:
    """Whether a cluster that concerns us can be called so; kind itself takes ``..`` and ``-v`` as well."""
    return len(name) <= 200 and _NAME.fullmatch(name) is not None


def listed_names(out: bytes) -> list[str]:
    """
    What ``kind get clusters`` printed: a name on each line; that there are none it says elsewhere.

    :raises BadGateway: it printed something else.
    """
    lines = out.decode("utf-8", "replace").splitlines()
    if not all(re.fullmatch(r"[a-z0-9.-]{1,253}", line) for line in lines):
        raise BadGateway(
            "kind get clusters printed what are no names of clusters; see which program is called kind"
        )
    return sorted({line for line in lines if is_name(line)})
