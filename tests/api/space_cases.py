"""
Cases of valid and invalid Spaces and providers, for our API server and for a real one with our
CustomResourceDefinitions (``tests/interop/spaces_crds.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twisted_exec.api import spaces
from twisted_exec.api.kinds import Kind
from twisted_exec.api.kinds.clusterprofiles import CLUSTERPROFILES
from twisted_exec.api.kinds.spaces import SPACEPROVIDERDESCS, SPACES

Spec = Mapping[str, Any]
HOME = spaces.namespace_of("pkflex")


@dataclass(frozen=True)
class Case:
    """
    :param before: the spec that it was made with; ``None``: it is made now.
    :param after: the spec that is sent.
    :param told: a part of what a server says that refuses it; empty when it does not.
    :param ours: only our own API server can tell.
    """

    kind: Kind
    before: Spec | None
    after: Spec
    told: str = ""
    name: str = "space5"
    namespace: str = HOME
    ours: bool = False

    def body(self, spec: Spec) -> dict[str, Any]:
        """An object with that spec."""
        resource = self.kind.resource
        metadata = {"name": self.name}
        if resource.namespaced:
            metadata["namespace"] = self.namespace
        return {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": metadata,
            "spec": dict(spec),
        }


MANAGED = {"SpaceProviderDescName": "pkflex", "Type": "managed"}
IMPORTED = {"Type": "imported", "externalSecretRef": {"name": "s"}}
PROVIDER = {
    "ProviderType": "kubeflex",
    "SpacePrefixForDiscovery": "ks-",
    "secretRef": {"namespace": "default", "name": "pkflex"},
}
_NEEDED = "spec.SpaceProviderDescName: Required value: must name the SpaceProviderDesc"
_TYPE = "spec.Type: Forbidden: Type is immutable"
_PARAMETERS = "spec.parameters: Forbidden: parameters are immutable"


def _made(spec: Spec, told: str = "", **more: Any) -> Case:
    return Case(SPACES, None, spec, told, **more)


def _changed(before: Spec, after: Spec, told: str = "", **more: Any) -> Case:
    return Case(SPACES, before, after, told, **more)


MAKING = {
    "upstream's sample": _made(MANAGED),
    "managed by default": _made({"SpaceProviderDescName": "pkflex"}),
    "unmanaged": _made({**MANAGED, "Type": "unmanaged"}),
    "imported": _made(IMPORTED, namespace="default"),
    "imported, its Secrets in status": _made({"Type": "imported"}),
    "imported, from both viewpoints": _made(
        {**IMPORTED, "inClusterSecretRef": {"name": "t", "namespace": HOME}}
    ),
    "one viewpoint": _made({**MANAGED, "accessscopetype": "External"}),
    "with parameters": _made({**MANAGED, "parameters": {"type": "k8s"}}),
    "of no known type": _made({**MANAGED, "Type": "bogus"}, "spec.Type: Unsupported value"),
    "from nowhere": _made(
        {**MANAGED, "accessscopetype": "Nowhere"}, "spec.accessscopetype: Unsupported value"
    ),
    "managed by nobody": _made({}, _NEEDED),
    "unmanaged of nobody": _made({"Type": "unmanaged"}, _NEEDED),
    "managed by the empty name": _made({"SpaceProviderDescName": ""}, _NEEDED),
    "imported of a provider": _made(
        {**MANAGED, "Type": "imported"},
        "spec.SpaceProviderDescName: Forbidden: must be empty for an imported Space",
    ),
    "unmanaged with parameters": _made(
        {**MANAGED, "Type": "unmanaged", "parameters": {"type": "k8s"}},
        "spec.parameters: Forbidden: only allowed for a managed Space",
    ),
    "too many parameters": _made(
        {**MANAGED, "parameters": {f"key-{at}": "" for at in range(33)}},
        "spec.parameters: Too many: 33: must have at most 32 items",
    ),
    "a parameter that is too long": _made(
        {**MANAGED, "parameters": {"type": "x" * 1025}}, "Too long"
    ),
    "managed with Secrets of its own": _made(
        {**MANAGED, "externalSecretRef": {"name": "s"}},
        "spec.externalSecretRef: Forbidden: only an imported Space names its Secrets in spec",
    ),
    "a Secret without a name": _made(
        {**IMPORTED, "externalSecretRef": {"namespace": HOME}},
        "spec.externalSecretRef: Required value: must specify a name",
    ),
    "the longest name": _made(MANAGED, name=f"a.{'b' * 61}"),
    "a name that is no label's value": _made(MANAGED, "metadata.name", name="a" * 64),
    "a name with capitals": _made(MANAGED, "metadata.name", name="Space5"),
    "a Secret of elsewhere": _made(
        {**IMPORTED, "externalSecretRef": {"name": "s", "namespace": "kube-system"}},
        f"must be the Space's own namespace, {HOME}",
        ours=True,
    ),
    "another namespace than its provider's": _made(
        MANAGED,
        f"Spaces of this provider must be in the namespace {HOME}",
        namespace="default",
        ours=True,
    ),
    "a provider": Case(SPACEPROVIDERDESCS, None, PROVIDER, name="pkflex"),
    "a provider that needs no Secret": Case(
        SPACEPROVIDERDESCS, None, {"ProviderType": "kind"}, name="kind"
    ),
    "a provider of no known type": Case(
        SPACEPROVIDERDESCS,
        None,
        {"ProviderType": "bogus"},
        'spec.ProviderType: Unsupported value: "bogus"',
    ),
    "a provider of no type": Case(
        SPACEPROVIDERDESCS, None, {"SpacePrefixForDiscovery": "*"}, "spec.ProviderType: Required"
    ),
    "a provider whose Secret is nowhere": Case(
        SPACEPROVIDERDESCS,
        None,
        {"ProviderType": "kcp", "secretRef": {"name": "s"}},
        "spec.secretRef: Required value: must specify a name and a namespace",
    ),
    "a provider with the longest name": Case(
        SPACEPROVIDERDESCS, None, {"ProviderType": "kind"}, name="a" * 49
    ),
    "a provider no namespace can be called after": Case(
        SPACEPROVIDERDESCS, None, {"ProviderType": "kind"}, "metadata.name", name="a" * 50
    ),
    "a provider with a dot": Case(
        SPACEPROVIDERDESCS, None, {"ProviderType": "kind"}, "metadata.name", name="a.b"
    ),
    "a cluster": Case(CLUSTERPROFILES, None, {"clusterManager": {"name": "ours"}}),
    "a cluster of nobody": Case(
        CLUSTERPROFILES, None, {"displayName": "x"}, "spec.clusterManager: Required value"
    ),
}
"""By what is made."""

CHANGING = {
    "nothing": _changed(MANAGED, MANAGED),
    "the scope": _changed(MANAGED, {**MANAGED, "accessscopetype": "External"}),
    "managed to imported": _changed(MANAGED, {"Type": "imported"}, _TYPE),
    "managed to unmanaged": _changed(MANAGED, {**MANAGED, "Type": "unmanaged"}, _TYPE),
    "unmanaged to what is left out": _changed(
        {**MANAGED, "Type": "unmanaged"}, {"SpaceProviderDescName": "pkflex"}, _TYPE
    ),
    "its provider": _changed(MANAGED, {**MANAGED, "SpaceProviderDescName": "other"}, "DescName: "),
    "its provider taken away": _changed(MANAGED, {"Type": "managed"}, "SpaceProviderDescName"),
    "its parameters": _changed(
        {**MANAGED, "parameters": {"type": "k8s"}},
        {**MANAGED, "parameters": {"type": "host"}},
        _PARAMETERS,
    ),
    "its parameters taken away": _changed(
        {**MANAGED, "parameters": {"type": "k8s"}}, MANAGED, _PARAMETERS
    ),
    "parameters where there were none": _changed(
        MANAGED, {**MANAGED, "parameters": {"type": "k8s"}}, _PARAMETERS
    ),
    "an imported one's Secret": _changed(
        IMPORTED, {**IMPORTED, "externalSecretRef": {"name": "t"}}
    ),
    "what a provider finds": Case(
        SPACEPROVIDERDESCS, PROVIDER, {**PROVIDER, "SpacePrefixForDiscovery": "*"}, name="pkflex"
    ),
    "a provider's type": Case(
        SPACEPROVIDERDESCS,
        PROVIDER,
        {**PROVIDER, "ProviderType": "kcp"},
        "spec.ProviderType: Forbidden: space provider type is immutable",
        name="pkflex",
    ),
    "whose a cluster is": Case(
        CLUSTERPROFILES,
        {"clusterManager": {"name": "ours"}},
        {"clusterManager": {"name": "theirs"}},
        "ClusterManager is immutable",
    ),
    "what a cluster is called": Case(
        CLUSTERPROFILES,
        {"clusterManager": {"name": "ours"}},
        {"clusterManager": {"name": "ours"}, "displayName": "x"},
    ),
}
"""By what is changed."""
