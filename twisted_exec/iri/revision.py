"""
Revisions of the machine runtime interface: wire messages and their translation.

The interface has changed several times without a new name of its package or service. The revision
cannot be detected on the wire and is configured. The rest of the program uses the current revision,
``machine_pb2``; a revision translates from and to it.

A *request* that would lose something important fails (:func:`strict`): better no machine than one
with an unencrypted disk. An *answer* is sent without it (:data:`lenient`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf import message_factory
from google.protobuf.message import Message

from twisted_exec.api.status import NotImplementedByBackend
from twisted_exec.iri.protos import machine_pb2 as pb

Lose = Callable[[str], None]
"""Called with the name of a loss, such as ``"a guest hostname"``; may raise."""

Translator = Callable[[Any, Lose], Message]
"""Translates a message from one revision to the other."""

Translators = Mapping[tuple[type[Message], type[Message]], Translator]
"""Translators by the message types that they translate from and to."""


def lenient(what: str) -> None:
    """Accept the loss."""


def strict(revision: str) -> Lose:
    """Return a function that refuses every loss with :class:`NotImplementedByBackend`."""

    def refuse(what: str) -> None:
        raise NotImplementedByBackend(
            f"the machine runtime's interface (revision {revision}) cannot tell {what}"
        )

    return refuse


@dataclass(frozen=True)
class RevisedCall:
    """
    One RPC of one revision.

    :param request: type of the request on the wire; likewise ``response``.
    """

    revision: str
    path: str
    attribute: str
    request: type[Message]
    response: type[Message]
    request_out: Translator
    request_in: Translator
    response_out: Translator
    response_in: Translator

    def encode_request(self, request: Message) -> bytes:
        """
        :raises NotImplementedByBackend: the revision cannot express the request.
        """
        raw: bytes = self.request_out(request, strict(self.revision)).SerializeToString()
        return raw

    def decode_request(self, raw: bytes) -> Message:
        """
        :raises DecodeError: it is not a request of this call.
        :raises BadRequest: it contradicts itself.
        """
        return self.request_in(self.request.FromString(raw), lenient)

    def encode_response(self, response: Message) -> bytes:
        raw: bytes = self.response_out(response, lenient).SerializeToString()
        return raw

    def decode_response(self, raw: bytes) -> Message:
        """
        :raises DecodeError: it is not an answer of this call.
        :raises BadRequest: it contradicts itself.
        """
        return self.response_in(self.response.FromString(raw), lenient)


@dataclass(frozen=True)
class Revision:
    """
    One wire form of the interface.

    :param nothing: paths of methods for objects that this project does not have: they return an
        empty message.
    """

    name: str
    service: str
    calls: Mapping[str, RevisedCall]
    nothing: Sequence[str] = ()

    def call(self, attribute: str) -> RevisedCall:
        """:raises NotImplementedByBackend: there is no such method."""
        try:
            return self.calls[attribute]
        except KeyError:
            strict(self.name)(f"{attribute}: it has no such method")
            raise AssertionError("strict always raises") from None


def same(message: Message, lose: Lose) -> Message:
    """Return a message that is the same in both revisions."""
    return message


def renamed(to: type[Message]) -> Translator:
    """Return a translator of messages that differ only in names, which are not on the wire."""
    return lambda message, _: to.FromString(message.SerializeToString())


def attribute_of(method: str) -> str:
    """Return the attribute of a method: ``update_machine_power`` for ``UpdateMachinePower``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", method).lower()


def make_revision(
    name: str,
    declared: Any,
    *,
    service: str = "",
    inside: Any = None,
    methods: Mapping[str, str] | None = None,
    nothing: Collection[str] = (),
    translators: Translators | None = None,
) -> Revision:
    """
    :param nothing: names of methods without a current equivalent, see :attr:`Revision.nothing`.
    """
    service = service or declared.full_name
    inside = inside or pb.DESCRIPTOR.services_by_name["MachineRuntime"]
    calls = {}
    for wire in declared.methods:
        if wire.name in nothing:
            continue
        inner = inside.methods_by_name[(methods or {}).get(wire.name, wire.name)]
        request, response = _message(wire.input_type), _message(wire.output_type)
        inner_request, inner_response = _message(inner.input_type), _message(inner.output_type)
        attribute = attribute_of(inner.name)
        between = translators or {}
        calls[attribute] = RevisedCall(
            revision=name,
            path=f"/{service}/{wire.name}",
            attribute=attribute,
            request=request,
            response=response,
            request_out=_between(inner_request, request, between),
            request_in=_between(request, inner_request, between),
            response_out=_between(inner_response, response, between),
            response_in=_between(response, inner_response, between),
        )
    return Revision(name, service, calls, [f"/{service}/{method}" for method in nothing])


def _between(here: type[Message], there: type[Message], translators: Translators) -> Translator:
    return same if here is there else translators[here, there]


def _message(descriptor: Any) -> type[Message]:
    message_class: type[Message] = message_factory.GetMessageClass(descriptor)
    return message_class
