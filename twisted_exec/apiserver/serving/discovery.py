"""
Discovery documents: groups, versions, resources and verbs.

kubectl needs both forms, aggregated documents and those per group and version. Sources:
``k8s.io/api/apidiscovery`` and ``k8s.io/apimachinery/pkg/apis/meta/v1``.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

from twisted_exec import COMMIT, __version__
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.apiserver.serving.registry import KindRegistry, subresources_of, verbs_of

KUBERNETES_MINOR = 33
"""Minor version of the Kubernetes release that this API follows."""

AGGREGATED = "apidiscovery.k8s.io"


def version_info() -> Object:
    """``GET /version``."""
    # A second "+" would make it no semantic version, which kubectl requires.
    own = __version__.replace("+", ".")
    tree = "dirty" if COMMIT.endswith("dirty") else "clean" if COMMIT else "archive"
    return {
        "major": "1",
        "minor": str(KUBERNETES_MINOR),
        "gitVersion": f"v1.{KUBERNETES_MINOR}.0+twisted-exec.{own}",
        "gitCommit": COMMIT,
        "gitTreeState": tree,
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": platform.python_implementation(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }


def core_versions() -> Object:
    """``GET /api``."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def group_list(registry: KindRegistry) -> Object:
    """``GET /apis``."""
    groups = [group(registry, name) for name in registry.groups if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(registry: KindRegistry, name: str) -> Object:
    """``GET /apis/GROUP``; an item of ``GET /apis`` is the same without ``kind``."""
    versions = [
        {"groupVersion": f"{name}/{item}", "version": item} for item in registry.groups[name]
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def resource_list(registry: KindRegistry, group_name: str, version_name: str) -> Object:
    """``GET /apis/GROUP/VERSION`` and ``GET /api/v1``."""
    resources: list[Object] = []
    for kind in registry.of(group_name, version_name):
        resources.append(_legacy(kind, ""))
        resources += [_legacy(kind, subresource) for subresource in subresources_of(kind)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group_name}/{version_name}" if group_name else version_name,
        "resources": resources,
    }


def _legacy(kind: Kind, subresource: str) -> Object:
    item: dict[str, Any] = {
        "name": f"{kind.resource.plural}/{subresource}" if subresource else kind.resource.plural,
        "singularName": "" if subresource else kind.singular,
        "namespaced": kind.resource.namespaced,
        "kind": _kind_of(kind, subresource),
        "verbs": verbs_of(kind, subresource),
    }
    if subresource in kind.requests:
        requested = kind.requests[subresource].resource
        item |= {"group": requested.group, "version": requested.version}
    if not subresource and kind.short_names:
        item["shortNames"] = list(kind.short_names)
    if not subresource and kind.categories:
        item["categories"] = list(kind.categories)
    return item


def _kind_of(kind: Kind, subresource: str) -> str:
    if subresource in kind.connects:
        return kind.connects[subresource].options
    return _asked_or(kind, subresource).resource.kind


def _asked_or(kind: Kind, subresource: str) -> Kind:
    return kind.requests.get(subresource, kind)


def aggregated(registry: KindRegistry, *, core: bool, api_version: str) -> Object:
    """
    ``GET /api`` or ``GET /apis`` as an ``APIGroupDiscoveryList``.

    :param core: ``GET /api`` instead of ``GET /apis``.
    :param api_version: ``v2`` or ``v2beta1``.
    """
    groups = [name for name in registry.groups if (not name) is core]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"{AGGREGATED}/{api_version}",
        "metadata": {},
        "items": [_aggregated_group(registry, name) for name in groups],
    }


def _aggregated_group(registry: KindRegistry, name: str) -> Object:
    versions = [
        {
            "version": item,
            "freshness": "Current",
            "resources": [_aggregated_resource(kind) for kind in registry.of(name, item)],
        }
        for item in registry.groups[name]
    ]
    return {"metadata": {"name": name} if name else {}, "versions": versions}


def _aggregated_resource(kind: Kind) -> Object:
    item: dict[str, Any] = {
        "resource": kind.resource.plural,
        "responseKind": _response_kind(kind, ""),
        "scope": "Namespaced" if kind.resource.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": verbs_of(kind),
    }
    if kind.short_names:
        item["shortNames"] = list(kind.short_names)
    if kind.categories:
        item["categories"] = list(kind.categories)
    if subresources := subresources_of(kind):
        item["subresources"] = [
            {
                "subresource": name,
                "responseKind": _response_kind(kind, name),
                "verbs": verbs_of(kind, name),
            }
            for name in subresources
        ]
    return item


def _response_kind(kind: Kind, subresource: str) -> Mapping[str, str]:
    resource = _asked_or(kind, subresource).resource
    return {
        "group": resource.group,
        "version": resource.version,
        "kind": _kind_of(kind, subresource),
    }
