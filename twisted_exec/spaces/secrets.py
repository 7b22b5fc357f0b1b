"""
The Secrets of Spaces, followed.

Those that bear the Space Manager's label come in one watch for each namespace that is followed, or one for
all.  Whatever else is named, such as a Secret that somebody imported a Space with, is followed by its name:
that needs no more than the right to read that one.  A Secret with the label that is read a moment after
its Space is no stranger, so nobody is followed by name at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall

from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.api.spaces import KUBECONFIG_KEY, SPACE_LABEL
from twisted_exec.kube.informers.reflector import Reflector, key_of
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.program.tasks import Stopping
from twisted_exec.spaces.space_view import SecretRef

SETTLE_SECONDS = 0.2
"""So long a Secret may come after the Space that names it before it is looked for by its name."""

MAX_SECRETS_BY_NAME = 1000
"""Each is a watch; beyond this Secrets need the label."""

_KEPT = ("namespace", "name", "uid", "resourceVersion", "labels")


class SpaceSecrets:
    """
    :param namespaces: those whose Secrets are followed by the label; ``[""]`` for all.
    :param labelled: whether any are followed by the label.
    :param changed: called with a Secret that is wanted when :meth:`get` or :meth:`problem` may have
        changed.
    """

    def __init__(
        self,
        hub: IKubeClient,
        clock: Any,
        namespaces: Sequence[str],
        changed: Callable[[SecretRef], None],
        *,
        labelled: bool = True,
    ) -> None:
        self._hub, self._clock, self._changed = hub, clock, changed
        self._wanted: Counter[SecretRef] = Counter()
        self._by_name: dict[SecretRef, Reflector] = {}
        self._settling: IDelayedCall | None = None
        self._unsettled: set[SecretRef] = set()
        self._stopping = Stopping()
        self._labelled = {each: self._by_label(each) for each in namespaces if labelled}

    @property
    def synced(self) -> bool:
        """Those with the label were all read at least once."""
        return all(each.synced for each in self._labelled.values())

    @property
    def troubles(self) -> str:
        """Why those with the label are not known as they are now, or empty."""
        copies = self._labelled.values()
        return next((each.problem for each in copies if each.problem), "")

    def start(self, synced: Callable[[], None]) -> None:
        """Follow them until :meth:`stop`; ``synced`` is called when :attr:`synced` may have changed."""

        def read(_: None) -> None:
            self._unsettled.update(self._wanted)
            self._settle()
            synced()

        for each in self._labelled.values():
            each.when_synced().addCallback(read)
            each.start()

    def stop(self) -> Deferred[Any]:
        """Fires when nothing is under way any more; never fails."""
        self._wanted.clear()
        if self._settling is not None and self._settling.active():
            self._settling.cancel()
        for each in (*self._labelled.values(), *self._by_name.values()):
            self._stopping.add(each.stop())
        self._by_name.clear()
        return self._stopping.over()

    def want(self, ref: SecretRef) -> None:
        """Somebody needs it; as often as it is told, :meth:`unwant` is."""
        self._wanted[ref] += 1
        self._settle_later(ref)

    def unwant(self, ref: SecretRef) -> None:
        """Who needed it needs it no more."""
        self._wanted[ref] -= 1
        if self._wanted[ref] <= 0:
            del self._wanted[ref]
            self._let_go(ref)

    def get(self, ref: SecretRef) -> Object | None:
        """A Secret that is wanted, as last seen; ``None`` when it is not there, or not known yet."""
        own = self._by_name.get(ref)
        found = own.get(ref.name, ref.namespace) if own is not None else None
        return found if found is not None else self._with_label(ref)

    def is_gone(self, ref: SecretRef) -> bool:
        """There is no such Secret, for sure."""
        own = self._by_name.get(ref)
        return own is not None and own.synced and self.get(ref) is None

    def problem(self, ref: SecretRef) -> str:
        """Why it is not known as it is now, or empty."""
        if self._with_label(ref) is not None:
            return ""
        own = self._by_name.get(ref)
        if own is not None and own.problem and not own.synced:
            return f"{ref} cannot be read: {own.problem}"
        if own is None and not self.synced and self.troubles:
            return f"{ref} cannot be read: {self.troubles}"
        if own is None and self._is_full:
            return (
                f"{ref} is one too many to be followed by its name; give it the label {SPACE_LABEL}"
            )
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
            trim=trimmed,
        )

    def _with_label(self, ref: SecretRef) -> Object | None:
        copy = self._labelled.get(ref.namespace) or self._labelled.get("")
        return None if copy is None else copy.get(ref.name, ref.namespace)

    def _labelled_changed(self, before: Object | None, after: Object | None) -> None:
        namespace, name = key_of(after or before or {})
        ref = SecretRef(namespace, name)
        if ref not in self._wanted:
            return
        if after is None:
            self._settle_later(ref)  # it is gone, or only its label is
        else:
            self._let_go(ref)
        self._changed(ref)

    def _settle_later(self, ref: SecretRef) -> None:
        self._unsettled.add(ref)
        if self._settling is None or not self._settling.active():
            self._settling = self._clock.callLater(SETTLE_SECONDS, self._settle)

    def _settle(self) -> None:
        """Follow by their names those that did not come with the others."""
        if not self.synced:
            return  # it is done when they are
        unsettled, self._unsettled = self._unsettled, set()
        for ref in unsettled:
            known = ref in self._by_name or self._with_label(ref) is not None
            if ref not in self._wanted or known:
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
            trim=trimmed,
        )
        own.when_synced().addCallback(lambda _: self._changed(ref))
        own.start()
        return own

    def _let_go(self, ref: SecretRef) -> None:
        own = self._by_name.pop(ref, None)
        if own is not None:
            self._stopping.add(own.stop())


def trimmed(secret: Object) -> Object:
    """What is read of it: whatever else it holds is nobody's business here."""
    metadata, data = secret["metadata"], secret.get("data") or {}
    return {
        "metadata": {key: metadata[key] for key in _KEPT if key in metadata},
        # Other keys by their names, which is what a message says of them.
        "data": {key: value if key == KUBECONFIG_KEY else "" for key, value in data.items()},
    }
