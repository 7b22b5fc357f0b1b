"""
OpenAPI version 2, for a kube-apiserver in front, which merges it into its own, and for kubectl.

The document is converted from those of version 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from twisted_exec.api.kinds import Object

_METHODS = ("get", "put", "post", "delete", "patch")
_V3, _V2 = "#/components/schemas/", "#/definitions/"


def to_version2(documents: Iterable[Object]) -> Object:
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
    if "anyOf" in schema:
        return _schema(schema["anyOf"][0])
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
    return {
        **{key: value for key, value in parameter.items() if key != "schema"},
        **parameter["schema"],
    }


def _operation(operation: Mapping[str, Any]) -> Object:
    converted: Object = {
        key: value
        for key, value in operation.items()
        if key not in ("parameters", "requestBody", "responses")
    }
    parameters = [_parameter(each) for each in operation.get("parameters", [])]
    if "requestBody" in operation:
        body = operation["requestBody"]
        converted["consumes"] = list(body["content"])
        schema = _schema(_first(body["content"])["schema"])
        required = {"required": True} if body.get("required") else {}
        parameters.append({"name": "body", "in": "body", **required, "schema": schema})
    responses = operation["responses"]
    return {
        **converted,
        "produces": list(responses["200"]["content"]),
        "parameters": parameters,
        "responses": {code: _response(each) for code, each in responses.items()},
    }


def _response(response: Mapping[str, Any]) -> Object:
    converted: Object = {"description": response["description"]}
    if "content" in response:
        converted["schema"] = _schema(_first(response["content"])["schema"])
    return converted


def _first(content: Mapping[str, Any]) -> Any:
    return next(iter(content.values()))
