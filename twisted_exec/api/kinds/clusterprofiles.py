"""
ClusterProfiles: clusters of an inventory, without credentials.

Sources: ``kubernetes-sigs/cluster-inventory-api`` v0.1.2, ``apis/v1alpha1``; client-go's
``tools/clientcmd/api/v1`` (``Cluster``).
"""

from __future__ import annotations

from twisted_exec.api.kinds import cel_rules
from twisted_exec.api.kinds.cel_rules import Fixed
from twisted_exec.api.kinds.jsonpath import TROUBLE, column, condition
from twisted_exec.api.kinds.kind import Kind
from twisted_exec.api.kinds.schemas import METAV1_CONDITIONS
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import (
    Schema,
    anything,
    array,
    boolean,
    moment,
    string,
    struct,
)

MANAGER_LABEL = "x-k8s.io/cluster-manager"
"""Label with the value of ``spec.clusterManager.name``."""
HEALTHY = "ControlPlaneHealthy"
"""The condition that the API defines."""

_FIXED = (Fixed("clusterManager", "ClusterManager is immutable"),)

_CLUSTER = struct(
    {
        "server": string("server is the URL of the API server."),
        "tls-server-name": string(
            "tls-server-name is the name in the API server's certificate if it differs from the URL's host."
        ),
        "insecure-skip-tls-verify": boolean(
            "insecure-skip-tls-verify disables verification of the API server's certificate."
        ),
        "certificate-authority": string("certificate-authority is the path of a CA bundle."),
        "certificate-authority-data": string(
            "certificate-authority-data is the CA bundle of the API server, PEM in base64.",
            format="byte",
        ),
        "proxy-url": string("proxy-url is the URL of a proxy to the API server."),
        "disable-compression": boolean(
            "disable-compression turns off the compression of responses."
        ),
        "extensions": array(
            struct(
                {
                    "name": string("name is the name of the extension."),
                    "extension": anything("extension is the content of the extension."),
                },
                required=["name", "extension"],
            ),
            "extensions hold additional data for programs.",
        ),
    },
    description="cluster is the cluster's endpoint in the format of a kubeconfig.",
)


def _access(description: str) -> Schema:
    return array(
        struct(
            {
                "name": string("name is a name that the consumer maps to a program."),
                "cluster": _CLUSTER,
            },
            required=["name"],
        ),
        description,
        keys=["name"],
    )


_SPEC = struct(
    {
        "displayName": string("displayName is a human-readable name of the cluster."),
        "clusterManager": struct(
            {"name": string("name is the name of the cluster manager.")},
            required=["name"],
            description="clusterManager is the manager of this object. It is immutable.",
        ),
    },
    required=["clusterManager"],
    description="spec is the desired state of the profile.",
)
_STATUS = struct(
    {
        "conditions": METAV1_CONDITIONS,
        "version": struct(
            {"kubernetes": string("kubernetes is the version of Kubernetes.")},
            description="version holds the versions of the cluster's software.",
        ),
        "properties": array(
            struct(
                {
                    "name": string("name is the name of the property.", minLength=1, maxLength=253),
                    "value": string(
                        "value is the value of the property.", minLength=1, maxLength=1024
                    ),
                    "lastObservedTime": moment(
                        "lastObservedTime is the last time the property was observed."
                    ),
                },
                required=["name", "value"],
            ),
            "properties are observed properties of the cluster.",
            keys=["name"],
        ),
        "accessProviders": _access("accessProviders are the ways to access the cluster."),
        "credentialProviders": _access(
            "credentialProviders is the deprecated name of accessProviders."
        ),
    },
    description="status is the observed state of the cluster.",
)

CLUSTERPROFILES = Kind(
    resource=Resource("multicluster.x-k8s.io", "v1alpha1", "clusterprofiles", "ClusterProfile"),
    singular="clusterprofile",
    description="ClusterProfile represents a cluster of an inventory.",
    schema={"spec": cel_rules.with_rules(_SPEC, _FIXED), "status": _STATUS},
    required=("spec",),
    columns=(
        column("Manager", ".spec.clusterManager.name", "The manager of this object"),
        column("Healthy", condition(HEALTHY), "Whether the control plane is healthy"),
        column("Version", ".status.version.kubernetes", "The version of Kubernetes"),
        column("Display-Name", ".spec.displayName", "The human-readable name", wide=True),
        column("Message", TROUBLE, "Message of the first condition that is not True", wide=True),
    ),
    has_status=True,
    counts_generation=True,
    unconditional_update=False,
    validate_update=lambda new, old: cel_rules.changed(_FIXED, new, old),
)
