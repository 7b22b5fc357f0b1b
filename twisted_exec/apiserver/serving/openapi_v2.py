"""
OpenAPI version 2, for a kube-apiserver in front, which merges it into its own, and for kubectl.

Converted from the version 3 documents: components become definitions, request bodies become
parameters, and quantities become strings, as version 2 has no ``oneOf``.  kube-apiserver requests
JSON (``k8s.io/kube-aggregator/pkg/controllers/openapi/aggregator``), kubectl before 1.29 and
``kubectl explain --output=plaintext-openapiv2`` request protobuf (:mod:`.openapi_binary`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from twisted_exec.api.kinds import Object

JSON = "application/json"
_METHODS = ("get", "put", "post", "delete", "patch")
_V3, _V2 = "#/components/schemas/", "#/definitions/"


def joined(documents: Iterable[Object]) -> Object:
    """Convert several version 3 documents to one of version 2."""
    paths: Object = {}
    definitions: Object = {}
    for document in documents:
        paths |= {path: _item(item) for path, item in document["paths"].items()}
        definitions |= _schema(document["components"]["schemas"])
    return {
        "swagger": "2.0",
        "info": {"title": "twisted-exec", "version": "v1"},
        "paths": paths,
        "definitions": definitions,
    }


def _schema(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_schema(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    converted = {key: _schema(value) for key, value in schema.items()}
    if isinstance(converted.get("$ref"), str):
        converted["$ref"] = converted["$ref"].replace(_V3, _V2)
    if isinstance(converted.get("oneOf"), list):
        del converted["oneOf"]
        converted["type"] = "string"
    if len(converted.get("allOf", ())) == 1:
        # Version 3 needs it for a description beside a reference; version 2 has both side by side.
        converted |= converted.pop("allOf")[0]
    return converted


def _item(item: Mapping[str, Any]) -> Object:
    converted: Object = {name: _operation(item[name]) for name in _METHODS if name in item}
    if "parameters" in item:
        converted["parameters"] = [_parameter(each) for each in item["parameters"]]
    return converted


def _parameter(parameter: Mapping[str, Any]) -> Object:
    fields = {key: value for key, value in parameter.items() if key != "schema"}
    return {**fields, "type": parameter["schema"].get("type", "string")}


def _operation(operation: Mapping[str, Any]) -> Object:
    extensions = {key: value for key, value in operation.items() if key.startswith("x-")}
    parameters = [_parameter(each) for each in operation.get("parameters", [])]
    if "requestBody" in operation:
        content = operation["requestBody"]["content"]
        extensions["consumes"] = list(content)
        body = _schema(_first(content)["schema"])
        parameters.append({"name": "body", "in": "body", "required": True, "schema": body})
    answer = operation["responses"]["200"]
    content = answer["content"]
    response = {"description": answer["description"], "schema": _schema(_first(content)["schema"])}
    return {
        **extensions,
        "produces": list(content),
        "parameters": parameters,
        "responses": {"200": response},
    }


def _first(content: Mapping[str, Any]) -> Any:
    return next(iter(content.values()))
