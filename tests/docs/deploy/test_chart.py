"""
Tests for ``docs/deploy/helm`` that need no Helm.

``tests/interop/chart.py`` compares the chart's objects with the kustomizations', and ``tests/interop/deployed.py``
installs the chart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

from .files import DEPLOY, KUBERNETES, documents, pods
from .test_kubernetes import PODS

CHART = DEPLOY / "helm" / "twisted-exec"
OPTIONAL = {"sync-pods", "spaces", "dialect"}
"""Options of components, which the chart has under a condition."""


def read(name: str) -> str:
    """Return the text of a file of the chart."""
    return (CHART / name).read_text(encoding="utf-8")


def templates() -> Iterator[tuple[str, str, set[str]]]:
    """Yield the file and the program of each container in the chart's templates, with its options."""
    for path in sorted((CHART / "templates").glob("*.yaml")):
        for text in path.read_text(encoding="utf-8").split("        args:\n")[1:]:
            args = text.partition("        resources:")[0]
            (program,) = re.findall(r"^ *- (exec-\w+)$", args, re.MULTILINE)
            yield path.stem, program, set(re.findall(r"^ *- --([a-z-]+)", args, re.MULTILINE))


def kustomized() -> Iterator[tuple[str, str, set[str]]]:
    """Yield the same for the kustomizations."""
    names = {"consoles": "pools", "broker": "pools", "spaces": "spacemanager"}
    for file in PODS:
        directory = file.partition("/")[0]
        for pod in pods(KUBERNETES / file):
            for container in pod["containers"]:
                program, *words = container["args"]
                options = {word[2:].partition("=")[0] for word in words}
                yield names.get(directory, directory), program, options


class ChartTests(SynchronousTestCase):
    """The chart."""

    maxDiff = None

    def setUp(self) -> None:
        self.values = yaml.safe_load(read("values.yaml"))
        self.schema = json.loads(read("values.schema.json"))

    def resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return what a schema refers to, or itself."""
        name = schema.get("$ref", "").rpartition("/")[2]
        found: dict[str, Any] = self.schema["definitions"][name] if name else schema
        return found

    def test_schema(self) -> None:
        """The schema knows exactly the values that the chart has."""

        def compare(values: dict[str, Any], schema: dict[str, Any], path: str) -> None:
            self.assertIs(schema["additionalProperties"], False, path)
            self.assertEqual(set(schema["properties"]) - {"global"}, set(values), path)
            for name, value in values.items():
                below = self.resolved(schema["properties"][name])
                if isinstance(value, dict) and name not in ("pools", "resources", "nodeSelector"):
                    compare(value, below, f"{path}.{name}")

        compare(self.values, self.schema, "")

    def test_pools(self) -> None:
        """The pools in the comment of the values have every value of the schema."""
        text = read("values.yaml").partition("#   pools:\n")[2].partition("\npools: {}")[0]
        pools = yaml.safe_load(re.sub("^# {3}", "", text, flags=re.MULTILINE))
        consoles, far = pools["consoles"], pools["far"]
        pool = self.schema["definitions"]["pool"]["properties"]
        self.assertEqual(set(consoles) | set(far), set(pool))
        self.assertEqual(set(consoles["runtime"]), set(pool["runtime"]["properties"]))
        self.assertEqual(set(far["broker"]), set(pool["broker"]["properties"]))
        self.assertEqual(set(far["secrets"]), set(pool["secrets"]["properties"]))

    def test_options(self) -> None:
        """Programs have the options of the kustomizations, and a few for components."""
        ours = {(file, program): options for file, program, options in templates()}
        theirs = {(file, program): options for file, program, options in kustomized()}
        self.assertEqual({key: each - OPTIONAL for key, each in ours.items()}, theirs)

    def test_extra_arguments(self) -> None:
        """No value ``extraArgs`` repeats an option that the chart sets."""
        properties = self.schema["properties"]
        pool = self.schema["definitions"]["pool"]["properties"]
        schemas = {
            ("pools", "exec-poollet"): pool,
            ("pools", "exec-runtime"): pool["runtime"]["properties"],
            ("pools", "exec-broker"): pool["broker"]["properties"],
            ("hypervisor", "exec-runtime"): properties["hypervisor"]["properties"]["runtime"][
                "properties"
            ],
        }
        for file, program, options in templates():
            schema = schemas.get((file, program)) or properties[file]["properties"]
            items = schema["extraArgs"]["items"]
            refused, told = re.compile(items["if"]["pattern"]), items["then"]["const"]
            for option in options - {"spaces"}:
                self.assertTrue(refused.search(f"--{option}=x"), f"{file}: {option}")
                self.assertFalse(refused.search(f"--{option}x"))
                self.assertRegex(told, f"^another option: the chart sets .*--{option}(,|$)")

    def test_certificate_authority(self) -> None:
        """The CA is in the values or injected by cert-manager, not both."""
        apiserver = self.schema["properties"]["apiserver"]
        given = re.compile(apiserver["if"]["properties"]["caBundle"]["pattern"])
        self.assertTrue(given.search("-----BEGIN CERTIFICATE-----"))
        self.assertFalse(given.search(" \n"))
        allowed, message = apiserver["then"]["properties"]["caInjectedFrom"]["enum"]
        self.assertEqual(allowed, "")
        # The other value is a message in Helm's refusal, and is refused itself.
        self.assertNotRegex(message, apiserver["properties"]["caInjectedFrom"]["pattern"])

    def test_example(self) -> None:
        """The values of the example are those of the kustomization of that name."""
        values = yaml.safe_load((DEPLOY / "helm" / "example.yaml").read_text(encoding="utf-8"))
        (kustomization,) = documents(KUBERNETES / "example/kustomization.yaml")
        (image,) = kustomization["images"]
        self.assertEqual(values["image"], f"{image['newName']}:{image['newTag']}")
        (classes,) = documents(KUBERNETES / "consoles/runtime.yaml")
        self.assertEqual(values["pools"]["consoles"]["runtime"], classes)
