"""Tests for :mod:`twisted_exec.apiserver.serving.openapi.paths`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from kubernetes import client
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api import kinds, patch
from twisted_exec.api.dialects import DIALECTS
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.apiserver.serving.openapi.documents import document
from twisted_exec.apiserver.serving.openapi.version2 import to_version2
from twisted_exec.apiserver.serving.registry import KindRegistry, subresources_of, verbs_of

_ACTIONS = {
    "get": {"get"},
    "list": {"list", "watch"},
    "post": {"create"},
    "put": {"update"},
    "patch": {"patch"},
    "delete": {"delete"},
    "deletecollection": {"deletecollection"},
}
_GROUP = "compute.ironcore.dev"
_MACHINES = f"/apis/{_GROUP}/v1alpha1/namespaces/{{namespace}}/machines"
_MACHINE = f"{_MACHINES}/{{name}}"
_META = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1."
_MACHINE_SCHEMA = "#/components/schemas/dev.ironcore.compute.v1alpha1.Machine"


def _served() -> tuple[Kind, ...]:
    others = [each for each in kinds.served(DIALECTS) if each.resource.plural != "pods"]
    return (*others, kinds.NODE_PODS)


def _documents(served: tuple[Kind, ...]) -> Iterator[Object]:
    registry = KindRegistry(served)
    for group, versions in registry.groups.items():
        for version in versions:
            yield document(registry, group, version)


def _operations(served: tuple[Kind, ...]) -> Iterator[tuple[str, str, Object]]:
    for each in _documents(served):
        for path, item in each["paths"].items():
            for method, operation in item.items():
                if method != "parameters":
                    yield path, method, operation


class NameTests(SynchronousTestCase):
    """Names of operations, from which generators make the names of functions."""

    def test_unique(self) -> None:
        """No two operations of a server have one name: kube-apiserver merges the documents."""
        names = [each["operationId"] for _, _, each in _operations(_served())]
        self.assertEqual([name for name, count in Counter(names).items() if count > 1], [])
        for name in names:
            self.assertRegex(name, r"^[a-z]+[A-Z][A-Za-z0-9]+$")

    def test_names_of_kubernetes(self) -> None:
        """What Kubernetes has, has the same name: its own Python client is generated from it."""
        missing = set()
        for path, _, operation in _operations(_served()):
            (tag,) = operation["tags"]
            prefix = tag[0].upper() + tag[1:].replace("_v", "V")
            api = getattr(client, f"{prefix}Api", None)
            if api is None:
                self.assertTrue("." in path.split("/")[2] or "v1beta1" in path, path)
                continue
            name = operation["operationId"].replace(prefix, "", 1)
            method = re.sub("(?<!^)(?=[A-Z])", "_", name).lower()
            if not hasattr(api, method):
                missing.add(operation["operationId"])
        # Kubernetes deletes no collection of these.
        self.assertEqual(missing, {"deleteCoreV1CollectionNamespace"})

    def test_names_of_machines(self) -> None:
        """The parts of a group's name are words."""
        names = {each["operationId"] for _, _, each in _operations(kinds.ALL)}
        for verb, noun in (
            ("list", "NamespacedMachine"),
            ("list", "MachineForAllNamespaces"),
            ("delete", "CollectionNamespacedMachine"),
            ("read", "NamespacedMachineStatus"),
            ("read", "NamespacedMachineLog"),
            ("replace", "MachineClass"),
            ("connect", "GetNamespacedMachineConsole"),
            ("connect", "PostNamespacedMachineExec"),
        ):
            self.assertIn(f"{verb}ComputeIroncoreDevV1alpha1{noun}", names)


class OperationTests(SynchronousTestCase):
    """What operations take and return."""

    def setUp(self) -> None:
        self.document = document(KindRegistry(kinds.ALL), _GROUP, "v1alpha1")
        self.paths = self.document["paths"]

    def parameters(self, path: str, method: str) -> dict[str, str]:
        """The types of the parameters in the query."""
        return {
            each["name"]: each["schema"]["type"] for each in self.paths[path][method]["parameters"]
        }

    def test_every_verb(self) -> None:
        """The documents have every verb of every kind, and no other."""
        for kind in kinds.ALL:
            registry = KindRegistry([kind])
            paths = document(registry, kind.resource.group, kind.resource.version)["paths"]
            root = kind.resource.path("{namespace}" if kind.resource.namespaced else "")
            root = root.replace("%7B", "{").replace("%7D", "}")
            for subresource in ("", *subresources_of(kind)):
                if subresource in kind.connects:
                    continue
                own = (
                    [f"{root}/{{name}}/{subresource}"]
                    if subresource
                    else [root, f"{root}/{{name}}"]
                )
                found: set[str] = set()
                for path in own:
                    for method, operation in paths.get(path, {}).items():
                        if method != "parameters":
                            found |= _ACTIONS[operation["x-kubernetes-action"]]
                self.assertEqual(found, set(verbs_of(kind, subresource)), (own, subresource))

    def test_create(self) -> None:
        """A create returns the object with 201 as well."""
        create = self.paths[_MACHINES]["post"]
        for code in ("200", "201", "202"):
            content = create["responses"][code]["content"]["application/json"]
            self.assertEqual(content["schema"], {"$ref": _MACHINE_SCHEMA})
        self.assertNotIn("content", create["responses"]["401"])
        self.assertTrue(create["requestBody"]["required"])

    def test_list(self) -> None:
        """A list, of one namespace or all, has selectors, pages and watches."""
        for path in (_MACHINES, f"/apis/{_GROUP}/v1alpha1/machines"):
            told = self.parameters(path, "get")
            self.assertEqual(told["labelSelector"], "string")
            self.assertEqual((told["limit"], told["timeoutSeconds"]), ("integer", "integer"))
            self.assertEqual((told["watch"], told["allowWatchBookmarks"]), ("boolean", "boolean"))
            self.assertIn(
                "application/json;stream=watch",
                self.paths[path]["get"]["responses"]["200"]["content"],
            )

    def test_delete(self) -> None:
        """A delete returns a Status, or the object that a finalizer keeps."""
        for path, kind in ((_MACHINE, ""), (_MACHINES, "List")):
            delete = self.paths[path]["delete"]
            schema = delete["responses"]["200"]["content"]["application/json"]["schema"]
            expected = [{"$ref": f"{_META}Status"}, {"$ref": _MACHINE_SCHEMA + kind}]
            self.assertEqual(schema, {"anyOf": expected})
            body = delete["requestBody"]
            self.assertEqual(
                body["content"]["application/json"]["schema"], {"$ref": f"{_META}DeleteOptions"}
            )
            self.assertNotIn("required", body)
            self.assertIn("propagationPolicy", self.parameters(path, "delete"))
        self.assertIn("labelSelector", self.parameters(_MACHINES, "delete"))

    def test_patch(self) -> None:
        """Clients that choose no type of patch send a merge patch."""
        content = self.paths[_MACHINE]["patch"]["requestBody"]["content"]
        self.assertEqual(next(iter(content)), patch.MERGE)
        self.assertEqual(set(content), set(patch.TYPES))
        self.assertEqual(
            {str(each["schema"]) for each in content.values()}, {str({"$ref": f"{_META}Patch"})}
        )

    def test_connect(self) -> None:
        """Streams have the options of their kind in the query."""
        item = self.paths[f"{_MACHINE}/exec"]
        self.assertEqual(set(item), {"get", "post", "parameters"})
        self.assertEqual(item["get"]["x-kubernetes-action"], "connect")
        identity = item["get"]["x-kubernetes-group-version-kind"]
        self.assertEqual(identity["kind"], "MachineExecOptions")
        self.assertEqual(set(self.paths[f"{_MACHINE}/console"]), {"get", "parameters"})
        names = [each["name"] for each in item["parameters"]]
        self.assertEqual(names[:2], ["name", "namespace"])
        self.assertEqual(len(names), len(set(names)))

    def test_references(self) -> None:
        """Every reference is to a schema of the same document."""
        for each in _documents(_served()):
            told = set(re.findall(r"'#/components/schemas/([^']+)'", str(each)))
            self.assertEqual(told - set(each["components"]["schemas"]), set())

    def test_version_2(self) -> None:
        """Version 2 cannot say more than Status, as kube-apiserver's document."""
        converted = to_version2([self.document])["paths"][_MACHINE]
        schema = converted["delete"]["responses"]["200"]["schema"]
        self.assertEqual(
            schema, {"$ref": f"{_META}Status".replace("components/schemas", "definitions")}
        )
        self.assertEqual(
            converted["delete"]["operationId"], self.paths[_MACHINE]["delete"]["operationId"]
        )
        self.assertEqual(converted["delete"]["responses"]["401"], {"description": "Unauthorized"})
        parameters: list[Any] = converted["patch"]["parameters"]
        force = next(each for each in parameters if each["name"] == "force")
        self.assertEqual((force["type"], force["uniqueItems"]), ("boolean", True))
