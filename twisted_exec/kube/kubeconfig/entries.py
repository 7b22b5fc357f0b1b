"""The files of a kubeconfig, and their entries by name."""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from twisted_exec.api.display import listed
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError, Material, read_file

_T = TypeVar("_T")
_STANDALONE = "admin.kubeconfig"
_SHOWN = 10
_TYPE_NAMES: dict[type, str] = {str: "string", bool: "boolean", list: "list", dict: "mapping"}


def _json(content: bytes) -> Any:
    if content.startswith(b"{"):
        try:
            return json.loads(content)
        except ValueError:
            pass  # a YAML flow mapping also starts with a brace
    return None


class NoKubeConfig(KubeConfigError):
    """None of the kubeconfig files exists."""


def file_names(path: str | None, environ: Mapping[str, str]) -> list[str]:
    """
    Return the absolute paths of the files that
    :func:`~twisted_exec.kube.kubeconfig.loader.load` reads.

    :raises NoKubeConfig: none exists.
    """
    listed = [name for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    if path:
        listed = [path]
    elif not listed:
        home = environ.get("HOME") or os.path.expanduser("~")
        listed = [os.path.join(home, ".kube", "config")]
    paths = [os.path.abspath(name) for name in dict.fromkeys(listed) if os.path.exists(name)]
    if not paths:
        full = os.pathsep.join(map(os.path.abspath, listed))
        reason = f"no kubeconfig: {full} does not exist"
        if not os.path.isabs(listed[0]):
            reason += f"; the path {listed[0]} is relative to the present directory"
        raise NoKubeConfig(
            reason, _standalone_remedy(listed[0]) or "set KUBECONFIG or give --kubeconfig"
        )
    return paths


def _standalone_remedy(path: str) -> str:
    if os.path.basename(path) != _STANDALONE:
        return ""
    return (
        "start exec-standalone, in the directory in which you started it before: it writes the file when it is "
        "ready for the first time"
    )


@dataclass(frozen=True)
class ConfigEntry:
    """
    One cluster, user or context, and the file that holds it.

    :param is_changed: options have changed its value.
    """

    kind: str
    name: str
    file: str
    value: Mapping[str, Any]
    where: str = ""
    is_changed: bool = False

    def fail(self, problem: str) -> KubeConfigError:
        problem, named = f"{self.where}{problem}", f'{self.kind} "{self.name}"'
        if self.is_changed:
            return KubeConfigError(f"with the options given, {problem} ({named} of {self.file})")
        return KubeConfigError(f"{self.file}: {named}: {problem}")

    def get(self, key: str, kind: type[_T], default: _T) -> _T:
        value = self.value.get(key)
        if value is None:
            return default
        if not isinstance(value, kind):
            raise self.fail(f"{key} must be a {_TYPE_NAMES[kind]}")
        return value

    def text(self, key: str) -> str:
        value = self.get(key, str, "")
        # Includes lone surrogates, which can be in no path and no header.
        if not value.isprintable():
            raise self.fail(f"{key} holds a character that cannot be printed")
        return value

    def path(self, key: str) -> str:
        """Return a path, which may be relative to the entry's file."""
        name = self.text(key)
        if not name:
            return ""
        whole = os.path.join(os.path.dirname(self.file), os.path.expanduser(name))
        return os.path.normpath(whole)

    def material(self, key: str) -> Material:
        """Return ``KEY-data`` (base64), or the readable file ``KEY``."""
        encoded = self.get(f"{key}-data", str, "")
        if encoded:
            try:
                return Material(
                    base64.b64decode("".join(encoded.split()), validate=True),
                    origin=f"the kubeconfig {self.file}",
                )
            except (binascii.Error, ValueError):
                raise self.fail(f"{key}-data is not base64") from None
        path = self.path(key)
        if path:
            self.check_readable(key, path)
        return Material(path=path)

    def check_readable(self, key: str, path: str) -> None:
        try:
            read_file(path)
        except KubeConfigError as error:
            raise self.fail(f"{key}: {error}") from None

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(
            replace(self, value={f"{key}[{number}]": item}).text(f"{key}[{number}]")
            for number, item in enumerate(self.get(key, list, []))
        )

    def inner(self, key: str, value: Any) -> ConfigEntry:
        """Return a nested mapping, whose errors name ``key``."""
        if not isinstance(value, dict):
            raise self.fail(f"{key} must be a mapping")
        return replace(self, value=value, where=f"{self.where}{key}: ")


@dataclass(frozen=True)
class ConfigFile:
    name: str
    document: Mapping[str, Any]

    @classmethod
    def read(cls, name: str) -> ConfigFile:
        return cls._of(name, read_file(name), is_own=True)

    @classmethod
    def parse(cls, name: str, content: bytes) -> ConfigFile:
        """
        Parse data from another party, YAML with limits.

        :raises KubeConfigError: it is not a kubeconfig, or exceeds a limit.
        """
        return cls._of(name, content, is_own=False)

    @classmethod
    def _of(cls, name: str, content: bytes, is_own: bool) -> ConfigFile:
        try:
            document: Any = _json(content)
            if document is None:
                # Imported here: exec-standalone and others write JSON, and clients start faster without PyYAML.
                from twisted_exec.api.yaml_reader import parse_yaml
                from twisted_exec.kube.kubeconfig.documents import OTHERS, OWN

                document = parse_yaml(content, OWN if is_own else OTHERS)
        except ValueError as error:
            raise KubeConfigError(f"{name}: {error}") from None
        except RecursionError:
            raise KubeConfigError(
                f"{name}: nested too deep to be read; is it the right file?"
            ) from None
        if document is None:
            document = {}
        if not isinstance(document, dict):
            raise KubeConfigError(f"{name}: not a kubeconfig: a mapping is expected")
        kind = document.get("kind", "Config")
        if kind != "Config":
            kind_text = kind[:64] if isinstance(kind, str) else "no text"
            raise KubeConfigError(f"{name}: not a kubeconfig: its kind is {kind_text}")
        return cls(name, document)

    def entries(self, section: str, noun: str) -> list[ConfigEntry]:
        listed = self.document.get(section) or []
        if not isinstance(listed, list):
            raise KubeConfigError(f"{self.name}: {section} must be a list")
        entries: dict[str, ConfigEntry] = {}
        for number, item in enumerate(listed):
            if not isinstance(item, dict) or not isinstance(item.get("name"), str):
                raise KubeConfigError(f"{self.name}: {section}[{number}] has no name")
            value = item.get(noun) or {}
            if not isinstance(value, dict):
                raise KubeConfigError(f"{self.name}: {section}[{number}].{noun} must be a mapping")
            if item["name"] in entries:
                raise KubeConfigError(f'{self.name}: {section} names "{item["name"]}" twice')
            entries[item["name"]] = ConfigEntry(noun, item["name"], self.name, value)
        return list(entries.values())


class ConfigFiles:
    """The merged files; the first definition of a name counts."""

    def __init__(self, files: Sequence[ConfigFile]) -> None:
        self._files = files
        self.names = os.pathsep.join(file.name for file in files) or "command line"

    @property
    def are_empty(self) -> bool:
        keys = ("clusters", "users", "contexts", "current-context")
        return not any(file.document.get(key) for file in self._files for key in keys)

    def context(self, name: str, needed: bool) -> ConfigEntry:
        """
        Return the context to use.

        :param name: empty for the current one.
        """
        for file in self._files:
            context = file.document.get("current-context")
            if isinstance(context, str):
                name = name or context
        if name:
            return self.find("contexts", "context", name)
        if needed:
            there = self._others("contexts", "context")
            why = "no current-context is set; choose one with --context" + there
            if not there:
                why = "it has no contexts; choose a kubeconfig that has some"
            raise KubeConfigError(f"{self.names}: {why}")
        return ConfigEntry("context", "", self.names, {})

    def find(self, section: str, noun: str, name: str, wanted_by: str = "") -> ConfigEntry:
        for file in self._files:
            for entry in file.entries(section, noun):
                if entry.name == name:
                    return entry
        why = f" (of {wanted_by})" if wanted_by else ""
        raise KubeConfigError(f'{self.names}: no {noun} "{name}"{why}{self._others(section, noun)}')

    def _others(self, section: str, noun: str) -> str:
        names = [entry.name for file in self._files for entry in file.entries(section, noun)]
        short = [name for name in dict.fromkeys(names) if name.isprintable() and len(name) < 100]
        return f"; there are: {listed(short, _SHOWN)}" if short else ""
