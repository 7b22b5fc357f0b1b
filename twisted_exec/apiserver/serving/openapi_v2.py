"""
OpenAPI version 2, as a kube-apiserver that this server is behind joins it into its own.

It is made of the documents of version 3: what is there a component is here a definition, a request's
body is a parameter, and a quantity, of which version 2 cannot say that it may be two things, is text.
Source: ``k8s.io/kube-aggregator/pkg/controllers/openapi/aggregator``, which asks for JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from twisted_exec.api.kinds import Object

JSON = "application/json"
_METHODS = ("get", "put", "post", "delete", "patch")
_V3, _V2 = "#/components/schemas/", "#/definitions/"


def joined(documents: Iterable[Object]) -> Object:
    """One document of version 2 that says what some of version 3 say."""
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
    told = {key: _schema(value) for key, value in schema.items()}
    if isinstance(told.get("$ref"), str):
        told["$ref"] = told["$ref"].replace(_V3, _V2)
    if isinstance(told.get("oneOf"), list):
        del told["oneOf"]
        told["type"] = "string"
    return told


def _item(item: Mapping[str, Any]) -> Object:
    told: Object = {name: _operation(item[name]) for name in _METHODS if name in item}
    if "parameters" in item:
        told["parameters"] = [_parameter(each) for each in item["parameters"]]
    return told


def _parameter(parameter: Mapping[str, Any]) -> Object:
    told = {key: value for key, value in parameter.items() if key != "schema"}
    return {**told, "type": parameter["schema"].get("type", "string")}


def _operation(operation: Mapping[str, Any]) -> Object:
    kept = {key: value for key, value in operation.items() if key.startswith("x-")}
    parameters = [_parameter(each) for each in operation.get("parameters", [])]
    if "requestBody" in operation:
        content = operation["requestBody"]["content"]
        kept["consumes"] = list(content)
        body = _schema(_first(content)["schema"])
        parameters.append({"name": "body", "in": "body", "required": True, "schema": body})
    answer = operation["responses"]["200"]
    content = answer["content"]
    told = {"description": answer["description"], "schema": _schema(_first(content)["schema"])}
    return {
        **kept,
        "produces": list(content),
        "parameters": parameters,
        "responses": {"200": told},
    }


def _first(content: Mapping[str, Any]) -> Any:
    return next(iter(content.values()))
