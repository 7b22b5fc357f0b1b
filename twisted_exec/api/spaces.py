"""
Names of the Space Framework: fields, labels, annotations and conditions of its objects.

A *Space* is an object; it represents a *physical space*, which is anything that answers like an API
server. A *provider* (``SpaceProviderDesc``) lists physical spaces, and usually creates them.

Source: ``kubestellar/kubestellar``, ``space-framework/`` as of December 2023.
"""

from __future__ import annotations

from twisted_exec.api.resource import Resource

GROUP, VERSION = "space.kubestellar.io", "v1alpha1"
SPACES = Resource(GROUP, VERSION, "spaces", "Space")
PROVIDERS = Resource(GROUP, VERSION, "spaceproviderdescs", "SpaceProviderDesc", namespaced=False)

NAMESPACE_PREFIX = "spaceprovider-"
DEFAULT_PROVIDER = "default"

# spec.Type of a Space.
MANAGED, UNMANAGED, IMPORTED = "managed", "unmanaged", "imported"
TYPES = (MANAGED, UNMANAGED, IMPORTED)

# spec.accessscopetype of a Space: the viewpoints from which it is reachable.
IN_CLUSTER, EXTERNAL, BOTH = "InCluster", "External", "Both"
SCOPES = (IN_CLUSTER, EXTERNAL, BOTH)
VIEWPOINTS = (IN_CLUSTER, EXTERNAL)

# spec.ProviderType of a SpaceProviderDesc; the last two are ours.
KIND, KUBEFLEX, KCP, LOCAL, CLUSTERPROFILE = "kind", "kubeflex", "kcp", "local", "clusterprofile"
PROVIDER_TYPES = (LOCAL, KIND, KUBEFLEX, KCP, CLUSTERPROFILE)

# status.Phase.
INITIALIZING, NOT_READY, READY = "Initializing", "NotReady", "Ready"

# Conditions of a Space; the first two also exist on a SpaceProviderDesc.  A condition is True only
# after a probe that could have failed, and Unknown if no probe was possible.
PROVIDER_REACHABLE = "ProviderReachable"
CREDENTIALS_VALID = "CredentialsValid"
PHYSICAL_SPACE_READY = "PhysicalSpaceReady"
SYNCED = "Synced"

FINALIZER = "space.kubestellar.io/physical-space"
OLD_FINALIZER = "SpaceFinalizer"
"""Upstream's finalizer, without a domain: it is removed wherever it occurs."""

PATH = "kubestellar.io/space-path"
"""
Annotation of a Space, from upstream: the parent of its physical space (the workspace path in kcp).
"""

# From here on, ours.
PHYSICAL_NAME = "space.twisted-exec.dev/physical-name"
"""Annotation of a Space: the name of its physical space, if it differs from the Space's."""
ROTATE = "space.twisted-exec.dev/rotate"
"""Annotation of a Space: each new value requests new credentials."""
FORGET = "space.twisted-exec.dev/forget"
"""
Annotation of an imported Space: ``true`` deletes it for good although its API server lives on.
"""
OWNER = "space.twisted-exec.dev/owner"
"""Annotation of a provider's objects, where possible: the UID of the Space that they belong to."""
LEAF_LABEL = "space.twisted-exec.dev/leaf"
"""
Label of a Space: its name as a leaf of a node server, and as a Node; default: the Space's name.
"""
PODS_LABEL = "space.twisted-exec.dev/pods"
"""Label of a Space: how a node server reports its Pods, with the values of ``pods`` of a leaf."""
SPACE_LABEL = "space.twisted-exec.dev/space"
PROVIDER_LABEL = "space.twisted-exec.dev/provider"
"""Labels of the Secrets that the manager writes; the second is missing for imported Spaces."""
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "exec-spacemanager"

KUBECONFIG_KEY = "kubeconfig"
SECRET_PREFIXES = {IN_CLUSTER: "incluster-", EXTERNAL: "external-"}
REFERENCES = {IN_CLUSTER: "inClusterSecretRef", EXTERNAL: "externalSecretRef"}
"""
Fields that reference a Secret (``{name, namespace}``), by viewpoint: in ``status``, as upstream has
them, and in ``spec`` of an imported Space.
"""
ENDPOINTS = "endpoints"
"""
Field of ``status``, ours: the public part of a kubeconfig, for users with credentials of their own.

A list of ``{viewpoint, server, certificateAuthorityData, tlsServerName}``.
"""


def namespace_of(provider: str) -> str:
    """Return the namespace of a provider's Spaces."""
    return f"{NAMESPACE_PREFIX}{provider}"


def secret_name(space: str, viewpoint: str) -> str:
    """Return the name of the Secret that the manager writes for a Space and a viewpoint."""
    return f"{SECRET_PREFIXES[viewpoint]}{space}"
