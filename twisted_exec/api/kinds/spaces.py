"""
Spaces and their providers: the registry of control planes.

Fields and their defaults are upstream's, and so is their spelling, which is three ways at once.  Ours are: the
``status`` subresource, conditions, ``observedGeneration``, the types ``local`` and ``clusterprofile``,
``parameters`` and the secrets of imported Spaces in ``spec``; and that what may not change cannot be taken away and
then set anew either.

What only an object's own namespace can tell is checked by our API server; a CustomResourceDefinition cannot say
it, and the Space Manager tells of it in conditions.

Source: ``kubestellar/kubestellar``, ``space-framework/pkg/apis/space/v1alpha1`` as of December 2023.
"""

from __future__ import annotations

from collections.abc import Iterator

from twisted_exec.api import fields, names, spaces
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.common import cel_rules, validation
from twisted_exec.api.kinds.common.cel_rules import Fixed, Rule, Spec
from twisted_exec.api.kinds.common.jsonpath import TROUBLE, column, condition
from twisted_exec.api.kinds.common.schemas import METAV1_CONDITIONS
from twisted_exec.api.kinds.kind import Kind, Object
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
"""A namespace is called after it."""
LONGEST_NAME = 63
"""Of a Space: it is the value of a label of its Secrets."""
SPACE_NAME: Schema = {"maxLength": LONGEST_NAME}
PROVIDER_NAME: Schema = {
    "maxLength": LONGEST_PROVIDER_NAME,
    "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
}
"""What :func:`space_name` and :func:`provider_name` ask for besides a DNS subdomain, as a schema."""
_MOST_PARAMETERS, _LONGEST_PARAMETER = 32, 1024

_PROVIDER, _TYPE, _PARAMETERS = "SpaceProviderDescName", "Type", "parameters"
_OWN_SECRETS = tuple(spaces.REFERENCES.values())


def _imported(spec: Spec) -> bool:
    return bool(spec.get(_TYPE) == spaces.IMPORTED)


def _imported_only(key: str) -> Rule:
    return Rule(
        key,
        "only an imported Space says where its Secrets are; others have theirs in status",
        f"self.{_TYPE} == '{spaces.IMPORTED}' || !has(self.{key})",
        lambda spec: _imported(spec) or key not in spec,
    )


def _named(key: str) -> Rule:
    return Rule(
        key,
        "must specify a name",
        f"!has(self.{key}) || (has(self.{key}.name) && self.{key}.name != '')",
        lambda spec: key not in spec or bool(spec[key].get("name")),
        missing=True,
    )


def _secret(description: str) -> Schema:
    """As ``SecretReference`` of Kubernetes."""
    name = string("Name of the Secret.", maxLength=253)
    namespace = string("Namespace of the Secret.", maxLength=63)
    return struct({"name": name, "namespace": namespace}, description=description, atomic=True)


SPACE_RULES = (
    Rule(
        _PROVIDER,
        "a managed or unmanaged Space needs the name of its SpaceProviderDesc",
        f"self.{_TYPE} == '{spaces.IMPORTED}' || (has(self.{_PROVIDER}) && self.{_PROVIDER} != '')",
        lambda spec: _imported(spec) or bool(spec.get(_PROVIDER)),
        missing=True,
    ),
    Rule(
        _PROVIDER,
        "an imported Space has no SpaceProviderDesc",
        f"self.{_TYPE} != '{spaces.IMPORTED}' || !has(self.{_PROVIDER}) || self.{_PROVIDER} == ''",
        lambda spec: not (_imported(spec) and spec.get(_PROVIDER)),
    ),
    Rule(
        _PARAMETERS,
        "only a managed Space is made with parameters",
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
    Fixed(_PARAMETERS, "parameters are immutable: a Space is made with them", "{}"),
)
PROVIDER_RULES = (
    Rule(
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
            "The SpaceProviderDesc that it is of; it cannot be changed. None for an imported one.",
            maxLength=253,
        ),
        _TYPE: string(
            "Whether it is made by us (managed), found (unmanaged) or given to us (imported); it "
            "cannot be changed.",
            enum=list(spaces.TYPES),
            default=spaces.MANAGED,
        ),
        "accessscopetype": string(
            "From where it is to be reached: within the cluster that hosts it, from outside, or both.",
            enum=list(spaces.SCOPES),
            default=spaces.BOTH,
        ),
        _PARAMETERS: {
            **mapping(
                string(maxLength=_LONGEST_PARAMETER),
                "What a managed one is made with; which there are says its provider. They cannot be "
                "changed.",
            ),
            "maxProperties": _MOST_PARAMETERS,
        },
        "inClusterSecretRef": _secret(
            "Where the kubeconfig of an imported one is, as seen from within; in its own namespace."
        ),
        "externalSecretRef": _secret(
            "Where the kubeconfig of an imported one is, as seen from outside; in its own namespace."
        ),
    },
    required=[_TYPE],
    description="What the Space shall be.",
)
_ENDPOINT = struct(
    {
        "viewpoint": string("From where it is seen.", enum=list(spaces.VIEWPOINTS)),
        "server": string("The URL of its API server."),
        "certificateAuthorityData": string(
            "What its certificate is checked with, as PEM in base64.", format="byte"
        ),
        "tlsServerName": string("The name in its certificate, where that is not the URL's."),
    },
    required=["viewpoint"],
)
_SPACE_STATUS = struct(
    {
        "Phase": string(
            "What it is, in short.",
            enum=[spaces.INITIALIZING, spaces.NOT_READY, spaces.READY],
        ),
        "inClusterSecretRef": _secret("The Secret with its kubeconfig, as seen from within."),
        "externalSecretRef": _secret("The Secret with its kubeconfig, as seen from outside."),
        spaces.ENDPOINTS: array(
            _ENDPOINT,
            "What of its kubeconfigs is no secret, for users who come as themselves.",
            keys=["viewpoint"],
        ),
        "physicalSpace": struct(
            {
                "name": string("Its name, as its provider calls it."),
                "parent": string("Where it lies, in the provider's words; empty for the default."),
                "found": boolean("It was there at least once."),
            },
            required=["name"],
            description="What it stands for: written before it is asked for, and not changed by "
            "annotations any more.",
        ),
        "physicalUID": string("Tells what it stands for from another one of that name."),
        "rotated": string(
            "The value of the annotation space.twisted-exec.dev/rotate that was answered last."
        ),
        "credentialsExpireTime": moment(
            "When the first of its credentials ends, if that is known."
        ),
        "observedGeneration": integer("The metadata.generation that this was made from."),
        "conditions": METAV1_CONDITIONS,
    },
    description="What the Space is.",
)
_PROVIDER_SPEC = struct(
    {
        "ProviderType": string(
            "What sort of provider it is; it cannot be changed.", enum=list(spaces.PROVIDER_TYPES)
        ),
        "SpacePrefixForDiscovery": string(
            "Which physical spaces become unmanaged Spaces: a prefix of their names, or a pattern "
            "with *, ? and [...]. Empty and * are all.",
            maxLength=253,
        ),
        "secretRef": _secret("The Secret with the provider's credentials."),
    },
    required=["ProviderType"],
    description="What provider it is.",
)
_PROVIDER_STATUS = struct(
    {
        "Phase": string(
            "Ready once its physical spaces were listed.",
            enum=[spaces.INITIALIZING, spaces.READY],
            default=spaces.INITIALIZING,
        ),
        "spaces": integer("How many Spaces it has."),
        "place": string(
            "Where its physical spaces are, when they are on a manager's host: the id of a state directory, and where "
            "that lay."
        ),
        "observedGeneration": integer("The metadata.generation that this was made from."),
        "conditions": METAV1_CONDITIONS,
    },
    description="What became of it.",
)


def space_name(name: str) -> list[str]:
    """A DNS subdomain that fits into a label, and so into the names of its Secrets."""
    return _bounded(name, LONGEST_NAME) or names.dns_subdomain(name)


def provider_name(name: str) -> list[str]:
    """A DNS label that its namespace can be called after."""
    return _bounded(name, LONGEST_PROVIDER_NAME) or names.dns_label(name)


def _bounded(name: str, limit: int) -> list[str]:
    return [f"must be no more than {limit} characters"] if len(name) > limit else []


def _validate_space(space: Object) -> list[Cause]:
    found = cel_rules.broken(SPACE_RULES, space)
    found += _reference_causes(space["spec"], _OWN_SECRETS)
    return found or list(_place_causes(space))


def _place_causes(space: Object) -> Iterator[Cause]:
    """What its namespace must be, and that of its Secrets."""
    spec, namespace = space["spec"], space["metadata"]["namespace"]
    provider = spec.get(_PROVIDER)
    if provider and namespace != spaces.namespace_of(provider):
        told = f"its Spaces are in the namespace {spaces.namespace_of(provider)}"
        yield fields.invalid(f"spec.{_PROVIDER}", provider, told)
    for key in _OWN_SECRETS:
        # Who may write Spaces here need not be allowed to use the Secrets of elsewhere.
        elsewhere = spec.get(key, {}).get("namespace") or namespace
        if elsewhere != namespace:
            told = f"must be the Space's own namespace, {namespace}"
            yield fields.invalid(f"spec.{key}.namespace", elsewhere, told)


def _reference_causes(spec: Spec, keys: tuple[str, ...]) -> Iterator[Cause]:
    for key in keys:
        if spec.get(key, {}).get("name"):
            yield from validation.reference(spec, key, f"spec.{key}")


def _validate_provider(provider: Object) -> list[Cause]:
    found = cel_rules.broken(PROVIDER_RULES, provider)
    return [*found, *_reference_causes(provider["spec"], ("secretRef",))]


SPACES = Kind(
    resource=spaces.SPACES,
    singular="space",
    short_names=("spa",),
    description="Space is a control plane: something that answers as an API server does.",
    schema={
        "spec": cel_rules.with_rules(_SPACE_SPEC, (*SPACE_RULES, *SPACE_FIXED)),
        "status": _SPACE_STATUS,
    },
    required=("spec",),
    columns=(
        column("Type", ".spec.Type", "Made by us, found, or given to us"),
        column("Provider", f".spec.{_PROVIDER}", "The SpaceProviderDesc that it is of"),
        column("Phase", ".status.Phase", "What it is, in short"),
        column(
            "Credentials",
            condition(spaces.CREDENTIALS_VALID),
            "Whether its API server accepts its credentials",
        ),
        column(
            "Reachable",
            condition(spaces.PROVIDER_REACHABLE),
            "Whether its provider answers",
            wide=True,
        ),
        column("Synced", condition(spaces.SYNCED), "Whether all was done for it", wide=True),
        column("Scope", ".spec.accessscopetype", "From where it is to be reached", wide=True),
        column(
            "Server",
            f'.status.{spaces.ENDPOINTS}[?(@.viewpoint=="{spaces.EXTERNAL}")].server',
            "Its API server, as seen from outside",
            wide=True,
        ),
        column("Message", TROUBLE, "What is the matter", wide=True),
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
    description="SpaceProviderDesc is what has Spaces made, and lists them.",
    schema={
        "spec": cel_rules.with_rules(_PROVIDER_SPEC, (*PROVIDER_RULES, *PROVIDER_FIXED)),
        "status": _PROVIDER_STATUS,
    },
    required=("spec",),
    columns=(
        column("Type", ".spec.ProviderType", "What sort of provider it is"),
        column("Phase", ".status.Phase", "Ready once its physical spaces were listed"),
        column("Reachable", condition(spaces.PROVIDER_REACHABLE), "Whether it answers"),
        column("Spaces", ".status.spaces", "How many Spaces it has"),
        column(
            "Credentials",
            condition(spaces.CREDENTIALS_VALID),
            "Whether it accepts its credentials",
            wide=True,
        ),
        column(
            "Discovers",
            ".spec.SpacePrefixForDiscovery",
            "Which physical spaces become Spaces",
            wide=True,
        ),
        column("Secret", ".spec.secretRef.name", "Where its credentials are", wide=True),
        column("Message", TROUBLE, "What is the matter", wide=True),
    ),
    has_status=True,
    counts_generation=True,
    unconditional_update=False,
    name_rule=provider_name,
    validate=_validate_provider,
    validate_update=lambda new, old: cel_rules.changed(PROVIDER_FIXED, new, old),
)
