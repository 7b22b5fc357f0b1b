"""
Informers for the Secrets of Spaces.

Secrets with the Space Manager's label come from watches of namespaces. Other Secrets get watches by
name, which need no access to further Secrets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.api.spaces import KUBECONFIG_KEY, SPACE_LABEL
from twisted_exec.control.runs import StoppingParts
from twisted_exec.kube.informers import Reflector, key_of
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.spaces.space_view import SecretRef

SETTLE_SECONDS = 0.2
"""How long a Secret may arrive after its Space before it gets a watch by name."""

MAX_SECRETS_BY_NAME = 1000
"""Limit for watches by name; further Secrets need the label."""

_METADATA = ("namespace", "name", "uid", "resourceVersion", "labels")


class SpaceSecrets:
    """
    Secrets that Spaces use.

    :param namespaces: namespaces to watch for labelled Secrets; ``[""]`` for all.
    :param changed: called with a used Secret that may have changed.
    :param labelled: false to watch each Secret by its name only, because the Secrets have no label, or
        because the client may not list them.
    """

    def __init__(
        self,
        hub: IKubeClient,
        clock: IReactorTime,
        namespaces: Sequence[str],
        changed: Callable[[SecretRef], None],
        *,
        labelled: bool = True,
    ) -> None:
        self._hub, self._clock, self._changed = hub, clock, changed
        self._used: Counter[SecretRef] = Counter()
        self._by_name: dict[SecretRef, Reflector] = {}
        self._settling: IDelayedCall | None = None
        self._unsettled: set[SecretRef] = set()
        self._stopping = StoppingParts()
        self._labelled = {each: self._by_label(each) for each in namespaces if labelled}

    @property
    def synced(self) -> bool:
        """True once all labelled Secrets have been read."""
        return all(each.synced for each in self._labelled.values())

    @property
    def troubles(self) -> str:
        """Why labelled Secrets may be outdated, or empty."""
        copies = self._labelled.values()
        return next((each.problem for each in copies if each.problem), "")

    def start(self, synced: Callable[[], None]) -> None:
        """Watch until :meth:`stop`; ``synced`` is called when :attr:`synced` may have changed."""

        def read(_: None) -> None:
            self._unsettled.update(self._used)
            self._settle()
            synced()

        for each in self._labelled.values():
            each.when_synced().addCallback(read)
            each.start()

    def stop(self) -> Deferred[Any]:
        """Stop all watches; never fails."""
        self._used.clear()
        if self._settling is not None and self._settling.active():
            self._settling.cancel()
        for each in (*self._labelled.values(), *self._by_name.values()):
            self._stopping.add(each.stop())
        self._by_name.clear()
        return self._stopping.over()

    def add_user(self, ref: SecretRef) -> None:
        """Add a user of a Secret."""
        self._used[ref] += 1
        self._settle_later(ref)

    def remove_user(self, ref: SecretRef) -> None:
        """Remove a user of a Secret."""
        self._used[ref] -= 1
        if self._used[ref] <= 0:
            del self._used[ref]
            self._let_go(ref)

    def get(self, ref: SecretRef) -> Object | None:
        """Return a used Secret as last observed; ``None`` if it is missing or not read yet."""
        own = self._by_name.get(ref)
        secret = own.get(ref.name, ref.namespace) if own is not None else None
        return secret if secret is not None else self._with_label(ref)

    def is_gone(self, ref: SecretRef) -> bool:
        """Return whether the Secret is known not to exist."""
        own = self._by_name.get(ref)
        return own is not None and own.synced and self.get(ref) is None

    def problem(self, ref: SecretRef) -> str:
        """Return why a Secret cannot be read, or empty."""
        if self._with_label(ref) is not None:
            return ""
        own = self._by_name.get(ref)
        if own is not None and own.problem and not own.synced:
            return f"{ref} cannot be read: {own.problem}"
        if own is None and not self.synced and self.troubles:
            return f"{ref} cannot be read: {self.troubles}"
        if own is None and self._is_full:
            return f"{ref} exceeds the limit for watches by name; give it the label {SPACE_LABEL}"
        return ""

    @property
    def _is_full(self) -> bool:
        return len(self._by_name) >= MAX_SECRETS_BY_NAME

    def _by_label(self, namespace: str) -> Reflector:
        return Reflector(
            self._hub,
            SECRETS.resource,
            self._clock,
            namespace=namespace,
            label_selector=SPACE_LABEL,
            on_change=self._labelled_changed,
            trim=trim_secret,
        )

    def _with_label(self, ref: SecretRef) -> Object | None:
        copy = self._labelled.get(ref.namespace) or self._labelled.get("")
        return None if copy is None else copy.get(ref.name, ref.namespace)

    def _labelled_changed(self, before: Object | None, after: Object | None) -> None:
        namespace, name = key_of(after or before or {})
        ref = SecretRef(namespace, name)
        if ref not in self._used:
            return
        if after is None:
            self._settle_later(ref)  # the Secret was deleted, or only its label
        else:
            self._let_go(ref)
        self._changed(ref)

    def _settle_later(self, ref: SecretRef) -> None:
        self._unsettled.add(ref)
        if self._settling is None or not self._settling.active():
            self._settling = self._clock.callLater(SETTLE_SECONDS, self._settle)

    def _settle(self) -> None:
        if not self.synced:
            return  # this runs again once they are synced
        unsettled, self._unsettled = self._unsettled, set()
        for ref in unsettled:
            is_watched = ref in self._by_name or self._with_label(ref) is not None
            if ref not in self._used or is_watched:
                continue
            if not self._is_full:
                self._by_name[ref] = self._follow(ref)
            self._changed(ref)

    def _follow(self, ref: SecretRef) -> Reflector:
        own = Reflector(
            self._hub,
            SECRETS.resource,
            self._clock,
            namespace=ref.namespace,
            field_selector=f"metadata.name={ref.name}",
            on_change=lambda _, __: self._changed(ref),
            trim=trim_secret,
        )
        own.when_synced().addCallback(lambda _: self._changed(ref))
        own.start()
        return own

    def _let_go(self, ref: SecretRef) -> None:
        own = self._by_name.pop(ref, None)
        if own is not None:
            self._stopping.add(own.stop())


def trim_secret(secret: Object) -> Object:
    """Reduce a Secret to the parts that are used, so that memory holds no other secrets."""
    metadata, data = secret["metadata"], secret.get("data") or {}
    return {
        "metadata": {key: metadata[key] for key in _METADATA if key in metadata},
        # Messages count the other keys.
        "data": {key: value if key == KUBECONFIG_KEY else "" for key, value in data.items()},
    }
