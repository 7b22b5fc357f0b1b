"""
Tests for ``docs/reference/configuration.rst`` and the example files of all pages.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests.kube.kubeconfig.test_loader import WHOLE as _WHOLE
from tests.tiers import PROGRAMS
from twisted.plugins import twisted_exec_drivers as plugins
from twisted_exec.api import kinds
from twisted_exec.kube.kubeconfig import loader
from twisted_exec.kube.kubeconfig.client_config import ExecPlugin
from twisted_exec.kube.kubeconfig.plugin import parse_credential
from twisted_exec.program.config_file import Reader
from twisted_exec.runtimes import config
from twisted_exec.runtimes.drivers import DriverMaker
from twisted_exec.tls.pki.directory import create_pki

from . import pages

WHOLE: Any = _WHOLE
HOWTO = pages.DOCS / "howto"
MANIFESTS = (
    "tutorial/mine",
    "howto/broker",
    "howto/machines",
    "howto/metrics-reader",
    "howto/support",
    "howto/virtual-machine",
    "howto/vm-1-operator",
)


class RuntimeYamlTests(SynchronousTestCase):
    """The page lists exactly the keys that the file may have."""

    def setUp(self) -> None:
        self.page = pages.page("reference/configuration")
        self.read: dict[str, set[str]] = {}

        original = Reader.done

        def done(reader: Reader) -> None:
            self.read[reader.where] = set(reader.keys)
            original(reader)

        self.patch(Reader, "done", done)

    def keys(self, title: str) -> set[str]:
        return pages.first_column(pages.table(self.page, title))

    def test_keys(self) -> None:
        """The tables list the keys of every class and those of each driver."""
        path = str(HOWTO / "runtime.yaml")
        config.load(path)
        every = self.keys("Keys of every class")
        with open(path) as file:
            classes = yaml.safe_load(file)["classes"]
        for at, entry in enumerate(classes):
            driver, where = entry["driver"], f"{path}: classes[{at}] ({entry['name']})"
            keys = self.read[where]
            self.assertEqual(self.keys(f"Keys of driver {driver}"), keys - every, driver)
            self.assertLess(every, keys)

    def test_drivers(self) -> None:
        """The table of drivers has each built-in driver, and so have the example files."""
        built_in = {
            maker.name for maker in vars(plugins).values() if isinstance(maker, DriverMaker)
        }
        self.assertEqual(self.keys("Drivers"), built_in)
        examples = ("runtime.yaml", "console-servers/runtime.yaml", "libvirt.yaml")
        files = [yaml.safe_load((HOWTO / name).read_text()) for name in examples]
        self.assertEqual({each["driver"] for file in files for each in file["classes"]}, built_in)

    def test_lines(self) -> None:
        """The tables list the keys of drivers for existing lines, and those of their lines."""
        path = str(HOWTO / "console-servers" / "runtime.yaml")
        classes = config.load(path)
        every, serial = self.keys("Keys of every class"), self.keys("Keys of a serial line")
        with open(path) as file:
            drivers = {entry["name"]: entry["driver"] for entry in yaml.safe_load(file)["classes"]}
        self.assertEqual(len(set(drivers.values())), len(classes))
        for name, driver in drivers.items():
            of_class, of_lines = set(), set()
            for where, keys in self.read.items():
                if f"({name})" in where:
                    (of_lines if "lines[" in where else of_class).update(keys)
            self.assertEqual(self.keys(f"Keys of driver {driver}"), of_class - every, driver)
            listed = self.keys(f"Keys of a line of driver {driver}")
            self.assertEqual(listed, of_lines - serial, driver)
            self.assertTrue(not of_lines & serial or serial <= of_lines, driver)

    def test_virtual_machines(self) -> None:
        """The example for virtual machines has its two classes."""
        classes = config.load(str(HOWTO / "virtual-machines.yaml"))
        self.assertEqual([each.name for each in classes], ["small", "netboot"])

    def test_libvirt(self) -> None:
        """The tables list the keys of libvirt classes and domains."""
        path = str(HOWTO / "libvirt.yaml")
        config.load(path)
        where = f"{path}: classes[0] (domains)"
        every = self.keys("Keys of every class")
        self.assertEqual(self.keys("Keys of driver libvirt"), self.read[where] - every)
        domain = self.read[f"{where}: domains[web-1]"]
        self.assertEqual(self.keys("Keys of a domain of driver libvirt"), domain)


class FilesTests(SynchronousTestCase):
    """The pages describe files correctly."""

    starts = PROGRAMS

    def test_pki(self) -> None:
        """The page lists exactly the files of a PKI directory."""
        pki = create_pki(self.mktemp())
        pki.issue_apiserver(["localhost"])
        pki.issue_poollet("POOL", ["localhost"])
        pki.issue_runtime("NAME", ["localhost"])
        pki.issue_recorder("NAME")
        pki.issue_user("USER", [])
        section = pages.section(pages.page("reference/configuration"), "The PKI directory")
        files = {os.path.splitext(name)[0] for name in os.listdir(pki.directory)}
        self.assertEqual(pages.first_column(section), files)

    def test_kubeconfig(self) -> None:
        """The page lists every key, and its example is valid."""
        page = pages.page("reference/kubeconfig")
        cluster, user = WHOLE["clusters"][0]["cluster"], WHOLE["users"][0]["user"]
        for key in (*cluster, *user):
            self.assertIn(f"``{key.removesuffix('-data')}", page)
        for key in user["exec"]:
            self.assertIn(f" {key}:", page)
        example = yaml.safe_load((HOWTO / "poollet.kubeconfig").read_text())
        self.assertEqual(example["current-context"], example["contexts"][0]["name"])
        block = page.partition(".. code-block:: yaml\n")[2].partition("\n.. ")[0]
        whole = {**WHOLE, **yaml.safe_load(block)}
        whole["contexts"] = [{"name": "x", "context": {"cluster": "c", "user": "ada"}}]
        path = self.mktemp()
        with open(path, "w") as stream:
            yaml.safe_dump(whole, stream)
        plugin = loader.load(path).plugin
        assert plugin is not None
        self.assertEqual(plugin.interactive_mode, "IfAvailable")

    def test_plugin(self) -> None:
        """The example of a credential plugin returns the token in its file."""
        home = self.mktemp()
        os.makedirs(os.path.join(home, ".cache"))
        with open(os.path.join(home, ".cache", "lab-token"), "w") as stream:
            stream.write("secret\n")
        plugin = ExecPlugin(str(HOWTO / "lab-login.sh"), loader.EXEC_V1)
        process = subprocess.run(
            [plugin.command], env={**os.environ, "HOME": home}, stdout=subprocess.PIPE, check=True
        )
        self.assertEqual(parse_credential(plugin, process.stdout).token, "secret")

    def test_manifests(self) -> None:
        """Example objects are of kinds that the API server has."""
        served = {(kind.resource.api_version, kind.resource.kind) for kind in kinds.ALL}
        for name in MANIFESTS:
            text = (pages.DOCS / f"{name}.yaml").read_text()
            for obj in yaml.safe_load_all(text):
                self.assertIn((obj["apiVersion"], obj["kind"]), served, name)
