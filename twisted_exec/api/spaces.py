"""
The Space Framework's names: what its objects, their marks and their conditions are called.

Field names are as upstream spelled them, which is three ways at once: ``spec.Type`` and
``status.Phase``, ``secretRef`` and ``inClusterSecretRef``, ``accessscopetype``.

A *Space* is an object; what it stands for, something that answers as an API server does, is a
*physical space*.  A *provider* (``SpaceProviderDesc``) has physical spaces made, and lists them.

Source: ``kubestellar/kubestellar``, ``space-framework/`` as of December 2023 (``pkg/apis``,
``pkg/space-manager``).  What upstream had not is marked as ours.
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

# spec.accessscopetype of a Space: the viewpoints from which it is to be reached.
IN_CLUSTER, EXTERNAL, BOTH = "InCluster", "External", "Both"
SCOPES = (IN_CLUSTER, EXTERNAL, BOTH)
VIEWPOINTS = (IN_CLUSTER, EXTERNAL)

# spec.ProviderType of a SpaceProviderDesc; the last two are ours.
KIND, KUBEFLEX, KCP, LOCAL, CLUSTERPROFILE = "kind", "kubeflex", "kcp", "local", "clusterprofile"
PROVIDER_TYPES = (LOCAL, KIND, KUBEFLEX, KCP, CLUSTERPROFILE)

# status.Phase.
INITIALIZING, NOT_READY, READY = "Initializing", "NotReady", "Ready"

# Conditions of a Space; the first two are a SpaceProviderDesc's as well.  Each is True only after a
# probe that would have failed without it, and Unknown where nobody could look.
PROVIDER_REACHABLE = "ProviderReachable"
CREDENTIALS_VALID = "CredentialsValid"
PHYSICAL_SPACE_READY = "PhysicalSpaceReady"
SYNCED = "Synced"

FINALIZER = "space.kubestellar.io/physical-space"
OLD_FINALIZER = "SpaceFinalizer"
"""Upstream's, without a domain: it is taken away wherever it is seen."""

PATH = "kubestellar.io/space-path"
"""Annotation of a Space, upstream's: the parent of its physical space (a workspace's path in kcp)."""

# Ours from here.
PHYSICAL_NAME = "space.twisted-exec.dev/physical-name"
"""Annotation of a Space: its physical space's name, where that is not its own."""
ROTATE = "space.twisted-exec.dev/rotate"
"""Annotation of a Space: any new value asks for new credentials."""
FORGET = "space.twisted-exec.dev/forget"
"""Annotation of an imported Space: ``true`` lets it go for good, although what it stands for lives."""
OWNER = "space.twisted-exec.dev/owner"
"""Annotation of what a provider has made, where its kind takes one: the UID of the Space it was made for."""
LEAF_LABEL = "space.twisted-exec.dev/leaf"
"""Label of a Space: what a node server calls it as a leaf, and its Node; else its own name."""
PODS_LABEL = "space.twisted-exec.dev/pods"
"""Label of a Space: how a node server's Pods are told there, as of ``pods`` of a leaf."""
SPACE_LABEL = "space.twisted-exec.dev/space"
PROVIDER_LABEL = "space.twisted-exec.dev/provider"
"""Labels of the Secrets that the manager writes; the second is missing on an imported Space's."""
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "exec-spacemanager"

KUBECONFIG_KEY = "kubeconfig"
SECRET_PREFIXES = {IN_CLUSTER: "incluster-", EXTERNAL: "external-"}
REFERENCES = {IN_CLUSTER: "inClusterSecretRef", EXTERNAL: "externalSecretRef"}
"""
Members that name a Secret (``{name, namespace}``), by viewpoint: of ``status`` as upstream has them, and
of ``spec`` for an imported Space, where the user says them.
"""
ENDPOINTS = "endpoints"
"""
Member of ``status``, ours: what of a kubeconfig is no secret, for users who come as themselves.  A list of
``{viewpoint, server, certificateAuthorityData, tlsServerName}``; certificates are base64, as in a kubeconfig.
"""


def namespace_of(provider: str) -> str:
    """Where the Spaces of a provider are."""
    return f"{NAMESPACE_PREFIX}{provider}"


def secret_name(space: str, viewpoint: str) -> str:
    """The Secret that the manager writes for a Space and a viewpoint, in the Space's namespace."""
    return f"{SECRET_PREFIXES[viewpoint]}{space}"
