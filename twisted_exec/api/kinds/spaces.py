"""
Spaces and their providers: the registry of control planes.

Fields, defaults and spelling (in three styles) are upstream's, with additions of ours. Rules that a
CustomResourceDefinition cannot express are also checked by the Space Manager.

Source: ``kubestellar/kubestellar``, ``space-framework/pkg/apis/space/v1alpha1`` as of December
2023.
"""

from __future__ import annotations

from collections.abc import Iterator

from twisted_exec.api import fields, names, spaces
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds import cel_rules, validation
from twisted_exec.api.kinds.cel_rules import CELRule, Fixed, Spec
from twisted_exec.api.kinds.jsonpath import TROUBLE, column, condition
from twisted_exec.api.kinds.kind import Kind, Object
from twisted_exec.api.kinds.schemas import METAV1_CONDITIONS
from twisted_exec.api.schema import (
    Schema,
    array,
    boolean,
    integer,
    mapping,
    moment,
    string,
    struct,
)

LONGEST_PROVIDER_NAME = 63 - len(spaces.NAMESPACE_PREFIX)
"""The most characters of a provider's name, which becomes part of a namespace's name."""
LONGEST_NAME = 63
"""The most characters of a Space's name, which becomes a label value of its Secrets."""
SPACE_NAME: Schema = {"maxLength": LONGEST_NAME}
PROVIDER_NAME: Schema = {
    "maxLength": LONGEST_PROVIDER_NAME,
    "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
}
"""The rules of :func:`space_name` and :func:`provider_name` beyond a DNS subdomain, as schemas."""
_MOST_PARAMETERS, _LONGEST_PARAMETER = 32, 1024

_PROVIDER, _TYPE, _PARAMETERS = "SpaceProviderDescName", "Type", "parameters"
_OWN_SECRETS = tuple(spaces.REFERENCES.values())


def _imported(spec: Spec) -> bool:
    return bool(spec.get(_TYPE) == spaces.IMPORTED)


def _imported_only(key: str) -> CELRule:
    return CELRule(
        key,
        "only an imported Space names its Secrets in spec; the manager sets those of others in status",
        f"self.{_TYPE} == '{spaces.IMPORTED}' || !has(self.{key})",
        lambda spec: _imported(spec) or key not in spec,
    )


def _named(key: str) -> CELRule:
    return CELRule(
        key,
        "must specify a name",
        f"!has(self.{key}) || (has(self.{key}.name) && self.{key}.name != '')",
        lambda spec: key not in spec or bool(spec[key].get("name")),
        missing=True,
    )


def _secret(description: str) -> Schema:
    name = string("name is the name of the Secret.", maxLength=253)
    namespace = string("namespace is the namespace of the Secret.", maxLength=63)
    return struct({"name": name, "namespace": namespace}, description=description, atomic=True)


SPACE_RULES = (
    CELRule(
        _PROVIDER,
        "must name the SpaceProviderDesc of a managed or unmanaged Space",
        f"self.{_TYPE} == '{spaces.IMPORTED}' || (has(self.{_PROVIDER}) && self.{_PROVIDER} != '')",
        lambda spec: _imported(spec) or bool(spec.get(_PROVIDER)),
        missing=True,
    ),
    CELRule(
        _PROVIDER,
        "must be empty for an imported Space",
        f"self.{_TYPE} != '{spaces.IMPORTED}' || !has(self.{_PROVIDER}) || self.{_PROVIDER} == ''",
        lambda spec: not (_imported(spec) and spec.get(_PROVIDER)),
    ),
    CELRule(
        _PARAMETERS,
        "only allowed for a managed Space",
        f"self.{_TYPE} == '{spaces.MANAGED}' || !has(self.{_PARAMETERS})"
        f" || self.{_PARAMETERS}.size() == 0",
        lambda spec: spec.get(_TYPE) == spaces.MANAGED or not spec.get(_PARAMETERS),
    ),
    *(_imported_only(key) for key in _OWN_SECRETS),
    *(_named(key) for key in _OWN_SECRETS),
)
SPACE_FIXED = (
    Fixed(_TYPE, "Type is immutable"),
    Fixed(_PROVIDER, "SpaceProviderDescName is immutable", "''"),
    Fixed(_PARAMETERS, "parameters are immutable: they only apply when a Space is created", "{}"),
)
PROVIDER_RULES = (
    CELRule(
        "secretRef",
        "must specify a name and a namespace",
        "!has(self.secretRef) || (has(self.secretRef.name) && self.secretRef.name != ''"
        " && has(self.secretRef.namespace) && self.secretRef.namespace != '')",
        lambda spec: (
            "secretRef" not in spec
            or all(spec["secretRef"].get(key) for key in ("name", "namespace"))
        ),
        missing=True,
    ),
)
PROVIDER_FIXED = (Fixed("ProviderType", "space provider type is immutable"),)

_SPACE_SPEC = struct(
    {
        _PROVIDER: string(
            f"{_PROVIDER} is the name of the Space's SpaceProviderDesc. Empty for an imported Space. It is immutable.",
            maxLength=253,
        ),
        _TYPE: string(
            "Type is managed if the manager creates and deletes the control plane, unmanaged if it was "
            "discovered at its provider, or imported if a user supplies its kubeconfig. It is immutable.",
            enum=list(spaces.TYPES),
            default=spaces.MANAGED,
        ),
        "accessscopetype": string(
            "accessscopetype is the location of clients: InCluster (the hosting cluster), External, or Both.",
            enum=list(spaces.SCOPES),
            default=spaces.BOTH,
        ),
        _PARAMETERS: mapping(
            string(maxLength=_LONGEST_PARAMETER),
            "parameters are options for the creation of a managed Space. Each provider type defines its "
            "own. They are immutable.",
            maxProperties=_MOST_PARAMETERS,
        ),
        "inClusterSecretRef": _secret(
            "inClusterSecretRef is the Secret with the kubeconfig of an imported Space for clients in the hosting "
            "cluster. It must be in the Space's namespace."
        ),
        "externalSecretRef": _secret(
            "externalSecretRef is the Secret with the kubeconfig of an imported Space for external clients. It must "
            "be in the Space's namespace."
        ),
    },
    required=[_TYPE],
    description="spec is the desired state of the Space.",
)
_ENDPOINT = struct(
    {
        "viewpoint": string(
            "viewpoint is the location of the clients that the endpoint is for: InCluster or External.",
            enum=list(spaces.VIEWPOINTS),
        ),
        "server": string("server is the URL of the API server."),
        "certificateAuthorityData": string(
            "certificateAuthorityData is the CA bundle of the API server, PEM in base64.",
            format="byte",
        ),
        "tlsServerName": string(
            "tlsServerName is the name in the API server's certificate if it differs from the URL's host."
        ),
    },
    required=["viewpoint"],
)
_SPACE_STATUS = struct(
    {
        "Phase": string(
            "Phase is a summary of the conditions.",
            enum=[spaces.INITIALIZING, spaces.NOT_READY, spaces.READY],
        ),
        "inClusterSecretRef": _secret(
            "inClusterSecretRef is the Secret with the kubeconfig for clients in the hosting cluster."
        ),
        "externalSecretRef": _secret(
            "externalSecretRef is the Secret with the kubeconfig for external clients."
        ),
        spaces.ENDPOINTS: array(
            _ENDPOINT,
            f"{spaces.ENDPOINTS} are the public parts of the kubeconfigs, for users with credentials of their own.",
            keys=["viewpoint"],
        ),
        "physicalSpace": struct(
            {
                "name": string("name is the name of the physical space at its provider."),
                "parent": string(
                    "parent is the location of the physical space at its provider; empty for the default."
                ),
                "found": boolean("found is true once the physical space has been observed."),
            },
            required=["name"],
            description="physicalSpace identifies the physical space at its provider. It is set before the "
            "physical space is created; after that, annotations have no effect on it.",
        ),
        "physicalUID": string(
            "physicalUID distinguishes the physical space from others that had the same name."
        ),
        "rotated": string(
            "rotated is the last processed value of the annotation space.twisted-exec.dev/rotate."
        ),
        "credentialsExpireTime": moment(
            "credentialsExpireTime is the earliest expiry of the credentials, if known."
        ),
        "observedGeneration": integer(
            "observedGeneration is the metadata.generation that the status is based on."
        ),
        "conditions": METAV1_CONDITIONS,
    },
    description="status is the observed state of the Space.",
)
_PROVIDER_SPEC = struct(
    {
        "ProviderType": string(
            "ProviderType is the type of the provider. It is immutable.",
            enum=list(spaces.PROVIDER_TYPES),
        ),
        "SpacePrefixForDiscovery": string(
            "SpacePrefixForDiscovery selects the physical spaces to discover as unmanaged Spaces: a prefix of their "
            "names, or a pattern with *, ? and [...]. Empty and * select all.",
            maxLength=253,
        ),
        "secretRef": _secret("secretRef is the Secret with the credentials for the provider."),
    },
    required=["ProviderType"],
    description="spec is the desired state of the provider.",
)
_PROVIDER_STATUS = struct(
    {
        "Phase": string(
            "Phase is Ready once the physical spaces have been listed.",
            enum=[spaces.INITIALIZING, spaces.READY],
            default=spaces.INITIALIZING,
        ),
        "spaces": integer("spaces is the number of the provider's Spaces."),
        "place": string(
            "place identifies the state directory of physical spaces that are on a manager's host: its ID, host and "
            "path."
        ),
        "observedGeneration": integer(
            "observedGeneration is the metadata.generation that the status is based on."
        ),
        "conditions": METAV1_CONDITIONS,
    },
    description="status is the observed state of the provider.",
)


def space_name(name: str) -> list[str]:
    """Check a Space's name: a DNS subdomain that fits into a label value."""
    return _bounded(name, LONGEST_NAME) or names.dns_subdomain(name)


def provider_name(name: str) -> list[str]:
    """Check a provider's name: a DNS label that fits into the name of its namespace."""
    return _bounded(name, LONGEST_PROVIDER_NAME) or names.dns_label(name)


def _bounded(name: str, limit: int) -> list[str]:
    return [f"must be no more than {limit} characters"] if len(name) > limit else []


def _validate_space(space: Object) -> list[Cause]:
    violations = cel_rules.broken(SPACE_RULES, space)
    violations += _reference_causes(space["spec"], _OWN_SECRETS)
    return violations or list(_place_causes(space))


def _place_causes(space: Object) -> Iterator[Cause]:
    spec, namespace = space["spec"], space["metadata"]["namespace"]
    provider = spec.get(_PROVIDER)
    if provider and namespace != spaces.namespace_of(provider):
        problem = (
            f"Spaces of this provider must be in the namespace {spaces.namespace_of(provider)}"
        )
        yield fields.invalid(f"spec.{_PROVIDER}", provider, problem)
    for key in _OWN_SECRETS:
        # Users who may write Spaces here may lack access to Secrets in other namespaces.
        elsewhere = spec.get(key, {}).get("namespace") or namespace
        if elsewhere != namespace:
            problem = f"must be the Space's own namespace, {namespace}"
            yield fields.invalid(f"spec.{key}.namespace", elsewhere, problem)


def _reference_causes(spec: Spec, keys: tuple[str, ...]) -> Iterator[Cause]:
    for key in keys:
        if spec.get(key, {}).get("name"):
            yield from validation.reference(spec, key, f"spec.{key}")


def _validate_provider(provider: Object) -> list[Cause]:
    violations = cel_rules.broken(PROVIDER_RULES, provider)
    return [*violations, *_reference_causes(provider["spec"], ("secretRef",))]


SPACES = Kind(
    resource=spaces.SPACES,
    singular="space",
    short_names=("spa",),
    description="Space represents a control plane, which is anything that answers like an API server.",
    schema={
        "spec": cel_rules.with_rules(_SPACE_SPEC, (*SPACE_RULES, *SPACE_FIXED)),
        "status": _SPACE_STATUS,
    },
    required=("spec",),
    columns=(
        column("Type", ".spec.Type", "managed, unmanaged or imported"),
        column("Provider", f".spec.{_PROVIDER}", "The SpaceProviderDesc of the Space"),
        column("Phase", ".status.Phase", "Summary of the conditions"),
        column(
            "Credentials",
            condition(spaces.CREDENTIALS_VALID),
            "Whether the API server accepts the credentials",
        ),
        column(
            "Reachable",
            condition(spaces.PROVIDER_REACHABLE),
            "Whether the provider is reachable",
            wide=True,
        ),
        column(
            "Synced",
            condition(spaces.SYNCED),
            "Whether the manager has applied the spec",
            wide=True,
        ),
        column("Scope", ".spec.accessscopetype", "The location of clients", wide=True),
        column(
            "Server",
            f'.status.{spaces.ENDPOINTS}[?(@.viewpoint=="{spaces.EXTERNAL}")].server',
            "The API server's URL for external clients",
            wide=True,
        ),
        column("Message", TROUBLE, "Message of the first condition that is not True", wide=True),
    ),
    has_status=True,
    counts_generation=True,
    unconditional_update=False,
    name_rule=space_name,
    validate=_validate_space,
    validate_update=lambda new, old: cel_rules.changed(SPACE_FIXED, new, old),
)

SPACEPROVIDERDESCS = Kind(
    resource=spaces.PROVIDERS,
    singular="spaceproviderdesc",
    short_names=("spd",),
    description="SpaceProviderDesc describes a provider, which creates and lists control planes.",
    schema={
        "spec": cel_rules.with_rules(_PROVIDER_SPEC, (*PROVIDER_RULES, *PROVIDER_FIXED)),
        "status": _PROVIDER_STATUS,
    },
    required=("spec",),
    columns=(
        column("Type", ".spec.ProviderType", "The type of the provider"),
        column("Phase", ".status.Phase", "Ready once the physical spaces have been listed"),
        column(
            "Reachable", condition(spaces.PROVIDER_REACHABLE), "Whether the provider is reachable"
        ),
        column("Spaces", ".status.spaces", "The number of Spaces"),
        column(
            "Credentials",
            condition(spaces.CREDENTIALS_VALID),
            "Whether the provider accepts the credentials",
            wide=True,
        ),
        column(
            "Discovers",
            ".spec.SpacePrefixForDiscovery",
            "The physical spaces to discover",
            wide=True,
        ),
        column("Secret", ".spec.secretRef.name", "The Secret with the credentials", wide=True),
        column("Message", TROUBLE, "Message of the first condition that is not True", wide=True),
    ),
    has_status=True,
    counts_generation=True,
    unconditional_update=False,
    name_rule=provider_name,
    validate=_validate_provider,
    validate_update=lambda new, old: cel_rules.changed(PROVIDER_FIXED, new, old),
)
