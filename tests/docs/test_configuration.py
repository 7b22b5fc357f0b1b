"""
Tests for ``docs/reference/configuration.rst`` and the files that the pages show.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests.kube.test_kubeconfig import WHOLE as _WHOLE
from twisted_exec.api import kinds
from twisted_exec.kube import kubeconfig
from twisted_exec.kube.config import ExecPlugin
from twisted_exec.kube.plugin import parse_credential
from twisted_exec.observe.reader import Reader
from twisted_exec.runtimes import config
from twisted_exec.tls.pki import create_pki

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
    """The page has the keys that the file may have."""

    def setUp(self) -> None:
        self.page = pages.page("reference/configuration")
        self.asked: dict[str, set[str]] = {}

        def done(reader: Reader) -> None:
            self.asked[reader.where] = set(reader._known)

        self.patch(Reader, "done", done)

    def keys(self, title: str) -> set[str]:
        return pages.first_column(pages.table(self.page, title))

    def test_keys(self) -> None:
        """Those of every class, and those of each driver."""
        path = str(HOWTO / "runtime.yaml")
        config.load(path)
        every = self.keys("Keys of every class")
        with open(path) as file:
            classes = yaml.safe_load(file)["classes"]
        for at, one in enumerate(classes):
            driver, where = one["driver"], f"{path}: classes[{at}] ({one['name']})"
            asked = self.asked[where]
            self.assertEqual(self.keys(f"Keys of driver {driver}"), asked - every, driver)
            self.assertLess(every, asked)

    def test_lines(self) -> None:
        """Those of drivers whose lines exist already, and those of their lines."""
        path = str(HOWTO / "console-servers" / "runtime.yaml")
        classes = config.load(path)
        every, serial = self.keys("Keys of every class"), self.keys("Keys of a serial line")
        with open(path) as file:
            drivers = {one["name"]: one["driver"] for one in yaml.safe_load(file)["classes"]}
        self.assertEqual(len(set(drivers.values())), len(classes))
        for name, driver in drivers.items():
            of_class, of_lines = set(), set()
            for where, keys in self.asked.items():
                if f"({name})" in where:
                    (of_lines if "lines[" in where else of_class).update(keys)
            self.assertEqual(self.keys(f"Keys of driver {driver}"), of_class - every, driver)
            told = self.keys(f"Keys of a line of driver {driver}")
            self.assertEqual(told, of_lines - serial, driver)
            self.assertTrue(not of_lines & serial or serial <= of_lines, driver)

    def test_virtual_machines(self) -> None:
        """The classes of the page about them are what they should be."""
        classes = config.load(str(HOWTO / "virtual-machines.yaml"))
        self.assertEqual([one.name for one in classes], ["small", "netboot"])

    def test_libvirt(self) -> None:
        """Those of domains."""
        path = str(HOWTO / "libvirt.yaml")
        config.load(path)
        where = f"{path}: classes[0] (domains)"
        every = self.keys("Keys of every class")
        self.assertEqual(self.keys("Keys of driver libvirt"), self.asked[where] - every)
        domain = self.asked[f"{where}: domains[web-1]"]
        self.assertEqual(self.keys("Keys of a domain of driver libvirt"), domain)


class FilesTests(SynchronousTestCase):
    """What the pages say of files."""

    def test_pki(self) -> None:
        """The files of a PKI directory are those on the page."""
        pki = create_pki(self.mktemp())
        pki.issue_apiserver(["localhost"])
        pki.issue_poollet("POOL", ["localhost"])
        pki.issue_runtime("NAME", ["localhost"])
        pki.issue_user("USER", [])
        section = pages.section(pages.page("reference/configuration"), "The PKI directory")
        made = {os.path.splitext(name)[0] for name in os.listdir(pki.directory)}
        self.assertEqual(pages.first_column(section), made)

    def test_kubeconfig(self) -> None:
        """Every key that is read is told, and what is shown can be read."""
        told = pages.page("reference/kubeconfig")
        cluster, user = WHOLE["clusters"][0]["cluster"], WHOLE["users"][0]["user"]
        for key in (*cluster, *user):
            self.assertIn(f"``{key.removesuffix('-data')}", told)
        for key in user["exec"]:
            self.assertIn(f" {key}:", told)
        shown = yaml.safe_load((HOWTO / "poollet.kubeconfig").read_text())
        self.assertEqual(shown["current-context"], shown["contexts"][0]["name"])
        block = told.partition(".. code-block:: yaml\n")[2].partition("\n.. ")[0]
        whole = {**WHOLE, **yaml.safe_load(block)}
        whole["contexts"] = [{"name": "x", "context": {"cluster": "c", "user": "ada"}}]
        path = self.mktemp()
        with open(path, "w") as stream:
            yaml.safe_dump(whole, stream)
        plugin = kubeconfig.load(path).plugin
        assert plugin is not None
        self.assertEqual(plugin.interactive_mode, "IfAvailable")

    def test_plugin(self) -> None:
        """The credential plugin that is shown says what is in its file."""
        home = self.mktemp()
        os.makedirs(os.path.join(home, ".cache"))
        with open(os.path.join(home, ".cache", "lab-token"), "w") as stream:
            stream.write("secret\n")
        plugin = ExecPlugin(str(HOWTO / "lab-login.sh"), kubeconfig.EXEC_V1)
        told = subprocess.run(
            [plugin.command], env={**os.environ, "HOME": home}, stdout=subprocess.PIPE, check=True
        )
        self.assertEqual(parse_credential(plugin, told.stdout).token, "secret")

    def test_manifests(self) -> None:
        """The objects that are shown are of kinds that the API server has."""
        known = {(one.resource.api_version, one.resource.kind) for one in kinds.ALL}
        for name in MANIFESTS:
            text = (pages.DOCS / f"{name}.yaml").read_text()
            for shown in yaml.safe_load_all(text):
                self.assertIn((shown["apiVersion"], shown["kind"]), known, name)
