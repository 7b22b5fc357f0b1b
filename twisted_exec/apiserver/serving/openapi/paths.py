"""The paths of one kind in OpenAPI documents: its operations, with their bodies, queries and responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from twisted_exec.api import patch
from twisted_exec.api.kinds import Connect, Kind, Object
from twisted_exec.api.schema import Schema, boolean, integer, string
from twisted_exec.apiserver.serving.openapi.schemas import identity, meta, reference

_JSON = "application/json"
_OBJECT_TYPES = (_JSON, "application/yaml")
_LIST_TYPES = (*_OBJECT_TYPES, "application/json;stream=watch")
# Generated clients send the first one that they know.
_PATCH_TYPES = (patch.MERGE, *(each for each in patch.TYPES if each != patch.MERGE))
_READ, _WRITTEN = ("get",), ("get", "put", "patch")
_IDENTIFIERS = {
    "list": "list",
    "get": "read",
    "put": "replace",
    "post": "create",
    "patch": "patch",
    "delete": "delete",
    "deletecollection": "delete",
    "connect": "connect",
}
"""Verbs of ``operationId``, by action."""

_SELECTION: Mapping[str, Schema] = {
    "continue": string("The token of the previous part, to get the next part of a list."),
    "fieldSelector": string("Only objects whose fields match, such as metadata.name=vm-1."),
    "labelSelector": string("Only objects whose labels match, such as app=web."),
    "limit": integer("The most objects in a response; the others are in further parts."),
    "resourceVersion": string("The version to read, or to watch from."),
    "resourceVersionMatch": string("How resourceVersion applies: Exact or NotOlderThan."),
    "sendInitialEvents": boolean("A watch begins with the objects of now."),
    "timeoutSeconds": integer("The longest time of a watch."),
}
_WATCH: Mapping[str, Schema] = {
    "allowWatchBookmarks": boolean("A watch gets the current version from time to time."),
    **_SELECTION,
    "watch": boolean("Watch for changes of the objects instead of listing them."),
}
_DRY_RUN: Mapping[str, Schema] = {"dryRun": string("All: check the request, and change nothing.")}
_WRITE: Mapping[str, Schema] = {
    **_DRY_RUN,
    "fieldManager": string("The name of the program that makes this change."),
    # kubectl checks for fieldValidation in patches, and then leaves validation to the server.
    "fieldValidation": string("Ignore, Warn or Strict: what happens to unknown fields."),
}
_PATCH: Mapping[str, Schema] = {
    **_WRITE,
    "force": boolean("Apply takes over fields that other managers own."),
}
_DELETE: Mapping[str, Schema] = {
    **_DRY_RUN,
    "gracePeriodSeconds": integer("The time that the object has to end in."),
    "orphanDependents": boolean("Deprecated: use propagationPolicy."),
    "propagationPolicy": string("Orphan, Background or Foreground: what happens to dependents."),
}
_QUERIES: Mapping[str, Mapping[str, Schema]] = {
    "list": _WATCH,
    "post": _WRITE,
    "put": _WRITE,
    "patch": _PATCH,
    "delete": _DELETE,
    "deletecollection": {**_SELECTION, **_DELETE},
}
_CODES = {
    "post": ("200", "201", "202"),
    "put": ("200", "201"),
    "patch": ("200", "201"),
    "delete": ("200", "202"),
}
_PHRASES = {"200": "OK", "201": "Created", "202": "Accepted"}
_NAMESPACE: Object = {
    "name": "namespace",
    "in": "path",
    "description": "object name and auth scope, such as for teams and projects",
    "required": True,
    "schema": {"type": "string", "uniqueItems": True},
}


def paths_of(kind: Kind) -> Object:
    """Return the paths of a kind and of its subresources."""
    resource = kind.resource
    # Path templates: the braces must not be percent-encoded.
    collection = resource.path("{namespace}" if resource.namespaced else "")
    collection = collection.replace("%7B", "{").replace("%7D", "}")
    scope = [_NAMESPACE] if resource.namespaced else []
    result: Object = {collection: _item(scope, _collection(kind))}
    if not kind.listed:
        return result
    item = f"{collection}/{{name}}"
    named = [_name_parameter(kind), *scope]
    can_delete = () if kind.read_only else ("delete",)
    actions = _READ if kind.read_only or kind.server_made else _WRITTEN
    whole = {each: _operation(kind, each) for each in (*actions, *can_delete)}
    result[item] = _item(named, whole)
    for status in kind.status_subresources:
        parts = {each: _operation(kind, each, status) for each in actions}
        result[f"{item}/{status}"] = _item(named, parts)
    for name in kind.requests:
        result[f"{item}/{name}"] = _item(named, {"post": _operation(kind, "post", name)})
    for text in kind.texts:
        result[f"{item}/{text}"] = _item(named, {"get": _text(kind, text)})
    for name, connect in kind.connects.items():
        operations = {each.lower(): _connect(kind, name, each) for each in connect.methods}
        result[f"{item}/{name}"] = _item([*named, *_connect_query(connect)], operations)
    if resource.namespaced:
        everywhere = {"get": _operation(kind, "list", everywhere=True)}
        result[resource.path("")] = _item([], everywhere)
    return result


def _item(parameters: Iterable[Object], operations: Mapping[str, Object]) -> Object:
    query = _query({"pretty": string("If 'true', then the output is indented.")})
    return {**operations, "parameters": [*parameters, *query]}


def _collection(kind: Kind) -> Object:
    operations: Object = {}
    if kind.listed:
        operations["get"] = _operation(kind, "list")
    if not kind.read_only and not kind.server_made:
        operations["post"] = _operation(kind, "post")
    if kind.listed and not kind.read_only:
        operations["delete"] = _operation(kind, "deletecollection")
    return operations


def _operation(
    kind: Kind, action: str, subresource: str = "", *, everywhere: bool = False
) -> Object:
    taken = kind.requests.get(subresource, kind)
    operation: Object = {
        **_head(kind, action, subresource, everywhere=everywhere),
        "parameters": _query(_QUERIES.get(action, {})),
        "responses": _responses(taken, action),
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": identity(taken),
    }
    if action in ("post", "put"):
        operation["requestBody"] = _body((_JSON,), reference(taken))
    elif action == "patch":
        operation["requestBody"] = _body(_PATCH_TYPES, meta("Patch"))
    elif action in ("delete", "deletecollection"):
        content = _content((_JSON,), meta("DeleteOptions"))
        operation["requestBody"] = {"content": content}
    return operation


def _body(types: Iterable[str], schema: Object) -> Object:
    return {"content": _content(types, schema), "required": True}


def _content(types: Iterable[str], schema: Object) -> Object:
    return {each: {"schema": schema} for each in types}


def _responses(kind: Kind, action: str) -> Object:
    types: tuple[str, ...] = _OBJECT_TYPES
    schema = reference(kind)
    if action == "list":
        types, schema = _LIST_TYPES, reference(kind, kind.list_kind)
    elif action in ("delete", "deletecollection"):
        # kube-apiserver's documents say Status only, and its clients fail to read an object that
        # a finalizer keeps, which comes back itself.
        name = kind.list_kind if action == "deletecollection" else ""
        types, schema = (_JSON,), {"anyOf": [meta("Status"), reference(kind, name)]}
    content = _content(types, schema)
    codes = _CODES.get(action, ("200",))
    return _with_refusal(
        {code: {"description": _PHRASES[code], "content": content} for code in codes}
    )


def _with_refusal(responses: Object) -> Object:
    return responses | {"401": {"description": "Unauthorized"}}


def _text(kind: Kind, text: str) -> Object:
    content = _content(kind.text_types.get(text, ("text/plain",)), {"type": "string"})
    return {
        **_head(kind, "get", text),
        "parameters": _query(kind.texts[text]),
        "responses": _with_refusal({"200": {"description": "OK", "content": content}}),
        "x-kubernetes-action": "get",
        "x-kubernetes-group-version-kind": identity(kind),
    }


def _connect(kind: Kind, name: str, method: str) -> Object:
    content = _content(("*/*",), {"type": "string"})
    return {
        **_head(kind, "connect", name, method),
        "responses": _with_refusal({"200": {"description": "OK", "content": content}}),
        "x-kubernetes-action": "connect",
        "x-kubernetes-group-version-kind": identity(kind, kind.connects[name].options),
    }


def _connect_query(connect: Connect) -> list[Object]:
    # As in kube-apiserver's documents, a list is the type of its items.
    properties: Mapping[str, Schema] = connect.schema.get("properties", {})
    return _query({key: {**each, **each.get("items", {})} for key, each in properties.items()})


def _name_parameter(kind: Kind) -> Object:
    description = f"name of the {kind.resource.kind}"
    return {**_NAMESPACE, "name": "name", "description": description}


def _query(parameters: Mapping[str, Schema]) -> list[Object]:
    return [_query_parameter(name, schema) for name, schema in parameters.items()]


def _query_parameter(name: str, schema: Schema) -> Object:
    parameter: Object = {"name": name, "in": "query"}
    if schema.get("description"):
        parameter["description"] = schema["description"]
    return {**parameter, "schema": {"type": schema["type"], "uniqueItems": True}}


def _head(
    kind: Kind, action: str, subresource: str = "", method: str = "", *, everywhere: bool = False
) -> Object:
    group = kind.resource.group.removesuffix(".k8s.io") or "core"
    version = kind.resource.version
    scope = "Namespaced" if kind.resource.namespaced and not everywhere else ""
    words = [group, version, method.title()]
    words += ["Collection"] if action == "deletecollection" else []
    words += [scope, kind.resource.kind, subresource]
    words += ["ForAllNamespaces"] if everywhere else []
    return {
        "tags": [f"{_identifier(group)}_{version}"],
        "description": _description(kind, action, subresource, method),
        "operationId": _IDENTIFIERS[action] + "".join(map(_capitalized, words)),
    }


def _identifier(name: str) -> str:
    """Join the words of a name: ``computeIroncoreDev`` for ``compute.ironcore.dev``."""
    first, *rest = name.replace("-", ".").split(".")
    return first + "".join(map(_capitalized, rest))


def _capitalized(name: str) -> str:
    identifier = _identifier(name)
    return identifier[:1].upper() + identifier[1:]


def _description(kind: Kind, action: str, subresource: str, method: str) -> str:
    noun = kind.resource.kind
    if action == "list":
        return f"list or watch objects of kind {noun}"
    if action == "connect":
        return f"connect {method} requests to {subresource} of {noun}"
    if action == "deletecollection":
        return f"delete collection of {noun}"
    if action == "post":
        return f"create {subresource} of a {noun}" if subresource else f"create a {noun}"
    verb = {"get": "read", "put": "replace", "patch": "partially update"}.get(action)
    if verb is None:
        return f"delete a {noun}"
    return (
        f"{verb} {subresource} of the specified {noun}"
        if subresource
        else f"{verb} the specified {noun}"
    )
