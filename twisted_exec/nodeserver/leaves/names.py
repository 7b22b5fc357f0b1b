"""
What a Pod of the root is called in a leaf: namespace and name, there and back.

Pure.  Two namespaces of the root never lead to one of the leaf: who may read the Pods of one must
not find those of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from twisted_exec.api.status import NotFound
from twisted_exec.kube.interfaces import Object


@dataclass(frozen=True)
class Names:
    """
    How names are translated; without anything said, they stay as they are.

    :param namespaces: the leaf's by the root's, each once.
    :param namespace_prefix: begins the leaf's namespaces of all others.
    :param name_prefix: begins the names of Pods in the leaf.
    """

    namespaces: Mapping[str, str] = field(default_factory=dict)
    namespace_prefix: str = ""
    name_prefix: str = ""

    @cached_property
    def _back(self) -> dict[str, str]:
        return {leaf: root for root, leaf in self.namespaces.items()}

    def namespace(self, root: str) -> str:
        """
        The leaf's namespace for one of the root.

        :raises NotFound: it would be another's: that one is told so by name.
        """
        namespace = self.namespaces.get(root)
        if namespace is not None:
            return namespace
        found = self.namespace_prefix + root
        if found in self._back:
            raise NotFound(
                "namespaces",
                root,
                message=f'namespace "{root}" has no place in the leaf cluster: "{found}" there is '
                f'that of "{self._back[found]}"; give it one of its own',
            )
        return found

    def leaf(self, root: Object) -> tuple[str, str]:
        """
        Namespace and name in the leaf of a Pod of the root.

        :raises NotFound: as :meth:`namespace`.
        """
        metadata = root["metadata"]
        namespace = self.namespace(metadata.get("namespace", ""))
        return namespace, self.name_prefix + metadata["name"]

    def root(self, namespace: str, name: str) -> tuple[str, str] | None:
        """Namespace and name in the root of a Pod of the leaf, ``None`` when there can be none."""
        back = self._back.get(namespace)
        if back is None:
            if not namespace.startswith(self.namespace_prefix):
                return None
            back = namespace.removeprefix(self.namespace_prefix)
            if back in self.namespaces:
                return None
        if not name.startswith(self.name_prefix):
            return None
        return back, name.removeprefix(self.name_prefix)
