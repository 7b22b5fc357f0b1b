"""
The file that names leaf clusters (``--leaves FILE``).

::

    leaves:
    - name: one
      kubeconfig: {file: one.kubeconfig, context: admin}
    - name: two
      kubeconfig: {secret: {namespace: leaves, name: two, key: kubeconfig}}
      nodes:
      - name: two-gpu
        selector: {gpu: "yes"}     # nodes of the leaf that the Node stands for
        labels: {zone: b}
        taints: [{key: leaf, value: two, effect: NoSchedule}]
      namespaces: {shop: shop-eu}  # root: leaf
      namespace_prefix: root-      # for all other namespaces
      pods: owned                  # or same-name, or machines
      kosmos: false

The kubeconfigs that the file names are not validated with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api import names
from twisted_exec.control.loop import PokedLoop
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.interfaces import LeafNode
from twisted_exec.nodeserver.leaves.spec import (
    CLUSTER,
    NODE,
    PARTY,
    SECRET_KEY,
    ISource,
    Kubeconfig,
    KubeconfigFile,
    KubeconfigSecret,
    LeafSpec,
)
from twisted_exec.nodeserver.ownership import OWNED, POLICIES, Names
from twisted_exec.program.config_file import ConfigError, Reader, read_yaml

LOOK_SECONDS = 2.0
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_Rule = Callable[[str], list[str]]


def load(path: str) -> Sequence[LeafSpec]:
    """
    Read a file.

    :raises ConfigError: it is unreadable, not YAML, or invalid.
    """
    return parse(read_yaml(path), path)


def parse(document: object, path: str) -> Sequence[LeafSpec]:
    """
    Parse a document.

    :param path: of the file, absolute: paths in it are relative to its directory.
    :raises ConfigError: as :func:`load`.
    """
    reader = Reader(document, path)
    entries = reader.take("leaves", list, [])
    reader.done()
    specs = [_leaf(each, f"{path}: leaves[{at}]", path) for at, each in enumerate(entries)]
    _check_once(path, "leaf", [spec.name for spec in specs])
    _check_once(path, "node", [node.name for spec in specs for node in spec.nodes])
    return specs


def _check_once(path: str, what: str, values: list[str]) -> None:
    earlier: set[str] = set()
    for name in values:
        if name in earlier:
            raise ConfigError(f"{path}: {what} {name!r} is there more than once; rename one")
        earlier.add(name)


def _leaf(entry: object, where: str, path: str) -> LeafSpec:
    reader = Reader(entry, where)
    name = _checked(reader, "name", names.dns_subdomain)
    reader.where, reader.name = f"{where} ({name})", name
    spec = LeafSpec(
        name,
        # Not the index: a leaf that moves within the file stays the same leaf.
        f"{path}: leaf {name}",
        _kubeconfig(reader, path),
        _nodes(reader, name),
        _names(reader),
        reader.choice("pods", POLICIES, OWNED),
        reader.take("kosmos", bool, False),
    )
    reader.done()
    return spec


def _checked(reader: Reader, key: str, rule: _Rule, default: str | None = None) -> str:
    value = str(reader.take(key, str, default))
    wrong = rule(value) if value != default else []
    if wrong:
        raise reader.error(f"{key}: {value!r}: {wrong[0]}")
    return value


def _kubeconfig(reader: Reader, path: str) -> Kubeconfig:
    inner = Reader(reader.take("kubeconfig", dict), f"{reader.where}: kubeconfig")
    context, filename = inner.take("context", str, ""), inner.take("file", str, "")
    entry = inner.take("secret", dict, {})
    if bool(filename) == bool(entry):
        raise inner.error("give either file: PATH or secret: {namespace: ..., name: ...}")
    inner.done()
    if filename:
        whole = os.path.join(os.path.dirname(path), os.path.expanduser(filename))
        return KubeconfigFile(os.path.normpath(whole), context)
    secret = Reader(entry, f"{inner.where}: secret")
    secret_key = KubeconfigSecret(
        _checked(secret, "namespace", names.dns_label),
        _checked(secret, "name", names.dns_subdomain),
        secret.take("key", str, SECRET_KEY),
        context,
    )
    secret.done()
    return secret_key


def _nodes(reader: Reader, leaf: str) -> tuple[LeafNode, ...]:
    entries = reader.take("nodes", list, [{"name": leaf}])
    if not entries:
        raise reader.error("nodes is empty; leave it out for one node with the leaf's name")
    return tuple(
        _node(each, f"{reader.where}: nodes[{at}]", leaf) for at, each in enumerate(entries)
    )


def _node(entry: object, where: str, leaf: str) -> LeafNode:
    reader = Reader(entry, where)
    name = _checked(reader, "name", names.dns_subdomain)
    leaf_nodes = tuple(reader.take("leaf_nodes", list, []))
    for each in leaf_nodes:
        wrong = names.dns_subdomain(each) if isinstance(each, str) else ["must be a string"]
        if wrong:
            raise reader.error(f"leaf_nodes: {each!r}: {wrong[0]}")
    selector = _labels(reader, "selector")
    if leaf_nodes and selector:
        raise reader.error("give leaf_nodes or selector, not both")
    mode = CLUSTER
    if leaf_nodes or selector:
        mode = NODE if leaf_nodes == (name,) else PARTY
    node = LeafNode(
        name,
        leaf,
        mode,
        leaf_nodes,
        selector,
        _labels(reader, "labels"),
        _annotations(reader),
        tuple(
            _taint(each, f"{where}: taints[{at}]")
            for at, each in enumerate(reader.take("taints", list, []))
        ),
    )
    reader.done()
    return node


def _labels(reader: Reader, key: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    for name, value in reader.take(key, dict, {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise reader.error(f'{key}: {name!r}: {value!r} must be a string; write "{value}"')
        wrong = names.qualified_name(name) or names.label_value(value)
        if wrong:
            raise reader.error(f"{key}: {name}={value!r}: {wrong[0]}")
        labels[name] = value
    return labels


def _annotations(reader: Reader) -> dict[str, str]:
    annotations: dict[str, str] = reader.take("annotations", dict, {})
    for name, value in annotations.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise reader.error(
                f'annotations: {name!r}: {value!r} must be a string; write "{value}"'
            )
        if wrong := names.qualified_name(name):
            raise reader.error(f"annotations: {name!r}: {wrong[0]}")
    return annotations


def _taint(entry: object, where: str) -> Object:
    reader = Reader(entry, where)
    taint = {
        "key": _checked(reader, "key", names.qualified_name),
        "value": _checked(reader, "value", names.label_value, ""),
        "effect": reader.choice("effect", _EFFECTS, _EFFECTS[0]),
    }
    reader.done()
    return taint


def _names(reader: Reader) -> Names:
    namespaces = reader.take("namespaces", dict, {})
    for root, leaf in namespaces.items():
        for each in (root, leaf):
            wrong = names.dns_label(each) if isinstance(each, str) else ["must be a string"]
            if wrong:
                raise reader.error(f"namespaces: {each!r}: {wrong[0]}")
    twice = sorted(
        each for each in set(namespaces.values()) if list(namespaces.values()).count(each) > 1
    )
    if twice:
        raise reader.error(
            f"namespaces: two lead to {twice[0]!r}; each must have one of its own in the leaf"
        )
    return Names(
        dict(namespaces),
        _checked(reader, "namespace_prefix", _prefix, ""),
        _checked(reader, "name_prefix", _prefix, ""),
    )


def _prefix(value: str) -> list[str]:
    if len(value) > 40:
        return ["must be no more than 40 characters"]
    return names.dns_label(f"{value}x")


@implementer(ISource)
class LeafFile:
    """
    The leaves of a file, read again when it changes.

    :param path: absolute.
    :raises ConfigError: the file is invalid at the start.
    """

    _log = Logger()

    def __init__(self, path: str, clock: IReactorTime) -> None:
        self._path = path
        self._stamp = self._look()
        self._specs = load(path)
        self._complained = ""
        self._loop = PokedLoop(self._read_again, clock, LOOK_SECONDS)
        self._notify: Callable[[], None] = lambda: None

    synced = True

    @property
    def problem(self) -> str:
        return self._complained

    def specs(self) -> Sequence[LeafSpec]:
        return self._specs

    def start(self, changed: Callable[[], None]) -> None:
        self._notify = changed
        self._loop.start(LOOK_SECONDS)

    def stop(self) -> Deferred[None]:
        return self._loop.stop()

    async def _read_again(self) -> None:
        stamp = self._look()
        if stamp == self._stamp:
            return
        # Taken before reading: a concurrent write causes another read.
        self._stamp = stamp
        try:
            specs = load(self._path)
        except ConfigError as error:
            if str(error) != self._complained:
                self._complained = str(error)
                self._log.warn("keeping the leaf clusters from before: {why}", why=str(error))
            return
        self._complained = ""
        self._log.info(
            "read {path} again: {count} leaf clusters", path=self._path, count=len(specs)
        )
        self._specs = specs
        self._notify()

    def _look(self) -> tuple[int, int, int]:
        try:
            status = os.stat(self._path)
        except OSError:
            return (0, 0, 0)
        return (status.st_ino, status.st_mtime_ns, status.st_size)
