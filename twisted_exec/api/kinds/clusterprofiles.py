"""
ClusterProfiles: clusters as inventories tell of them, without their secrets.

Who reads one maps the *name* of an access provider to a program that has the credentials.  Columns are ours.

Source: ``kubernetes-sigs/cluster-inventory-api`` v0.1.2, ``apis/v1alpha1``; and of client-go,
``tools/clientcmd/api/v1`` (``Cluster``).
"""

from __future__ import annotations

from twisted_exec.api.kinds.common import cel_rules
from twisted_exec.api.kinds.common.cel_rules import Fixed
from twisted_exec.api.kinds.common.jsonpath import TROUBLE, column, condition
from twisted_exec.api.kinds.common.schemas import METAV1_CONDITIONS
from twisted_exec.api.kinds.kind import Kind
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
"""Its value is ``spec.clusterManager.name``."""
HEALTHY = "ControlPlaneHealthy"
"""The condition that the API defines."""

_FIXED = (Fixed("clusterManager", "ClusterManager is immutable"),)

_CLUSTER = struct(
    {
        "server": string("The URL of its API server."),
        "tls-server-name": string("The name in its certificate, where that is not the URL's."),
        "insecure-skip-tls-verify": boolean("Its certificate is not checked."),
        "certificate-authority": string("A file with what its certificate is checked with."),
        "certificate-authority-data": string(
            "What its certificate is checked with, as PEM in base64.", format="byte"
        ),
        "proxy-url": string("The proxy on the way there."),
        "disable-compression": boolean("Answers shall not be compressed."),
        "extensions": array(
            struct(
                {
                    "name": string("Whose it is."),
                    "extension": anything("What it says."),
                },
                required=["name", "extension"],
            ),
            "What programs note about it.",
        ),
    },
    description="Where it is, as a kubeconfig has it.",
)


def _access(description: str) -> Schema:
    return array(
        struct(
            {"name": string("What the reader maps to a program."), "cluster": _CLUSTER},
            required=["name"],
        ),
        description,
        keys=["name"],
    )


_SPEC = struct(
    {
        "displayName": string("What it is called for people."),
        "clusterManager": struct(
            {"name": string("Name of the cluster manager.")},
            required=["name"],
            description="Who keeps this object; it cannot be changed.",
        ),
    },
    required=["clusterManager"],
    description="Which cluster it is.",
)
_STATUS = struct(
    {
        "conditions": METAV1_CONDITIONS,
        "version": struct(
            {"kubernetes": string("That of Kubernetes.")}, description="Versions of the cluster."
        ),
        "properties": array(
            struct(
                {
                    "name": string("What it is.", minLength=1, maxLength=253),
                    "value": string("Its value.", minLength=1, maxLength=1024),
                    "lastObservedTime": moment("When it was seen last."),
                },
                required=["name", "value"],
            ),
            "What is known of the cluster.",
            keys=["name"],
        ),
        "accessProviders": _access("Ways to reach it."),
        "credentialProviders": _access("The older name of accessProviders."),
    },
    description="What the cluster is.",
)

CLUSTERPROFILES = Kind(
    resource=Resource("multicluster.x-k8s.io", "v1alpha1", "clusterprofiles", "ClusterProfile"),
    singular="clusterprofile",
    description="ClusterProfile is one cluster of several.",
    schema={"spec": cel_rules.with_rules(_SPEC, _FIXED), "status": _STATUS},
    required=("spec",),
    columns=(
        column("Manager", ".spec.clusterManager.name", "Who keeps this object"),
        column("Healthy", condition(HEALTHY), "Whether its control plane is"),
        column("Version", ".status.version.kubernetes", "Of Kubernetes"),
        column("Display-Name", ".spec.displayName", "What people call it", wide=True),
        column("Message", TROUBLE, "What is the matter", wide=True),
    ),
    has_status=True,
    counts_generation=True,
    unconditional_update=False,
    validate_update=lambda new, old: cel_rules.changed(_FIXED, new, old),
)
