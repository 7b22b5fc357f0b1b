"""
Namespaces and names of Pods: from the root to a leaf and back.

Pure.  Two namespaces of the root never map to the same one in the leaf, or users who may read the
Pods of one could read those of the other.
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
    A mapping of names; by default names stay the same.

    :param namespaces: the leaf's namespace by the root's; values are unique.
    :param namespace_prefix: prepended to all other namespaces.
    :param name_prefix: prepended to the names of Pods.
    """

    namespaces: Mapping[str, str] = field(default_factory=dict)
    namespace_prefix: str = ""
    name_prefix: str = ""

    @cached_property
    def _back(self) -> dict[str, str]:
        return {leaf: root for root, leaf in self.namespaces.items()}

    def namespace(self, root: str) -> str:
        """
        Return the leaf's namespace for a namespace of the root.

        :raises NotFound: the result is assigned to another namespace of the root.
        """
        namespace = self.namespaces.get(root)
        if namespace is not None:
            return namespace
        translated = self.namespace_prefix + root
        if translated in self._back:
            raise NotFound(
                "namespaces",
                root,
                message=f'namespace "{root}" has no place in the leaf cluster: "{translated}" there is '
                f'that of "{self._back[translated]}"; give it one of its own',
            )
        return translated

    def leaf(self, root: Object) -> tuple[str, str]:
        """
        Return namespace and name in the leaf of a Pod of the root.

        :raises NotFound: as :meth:`namespace`.
        """
        metadata = root["metadata"]
        namespace = self.namespace(metadata.get("namespace", ""))
        return namespace, self.name_prefix + metadata["name"]

    def root(self, namespace: str, name: str) -> tuple[str, str] | None:
        """Return namespace and name in the root of a Pod of the leaf; ``None`` if it cannot have any."""
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
