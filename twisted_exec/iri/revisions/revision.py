"""
What a revision of the machine runtime interface is: which messages travel, and what they mean.

The interface was changed several times without its package, its service or its methods
getting other names, so what is on the wire cannot be told from the wire: it is configured.  Inside
there is one vocabulary, that of ``machine_pb2``, and a revision translates at the edge, the same
way for a client and for a server.  A translation is pure.

What a revision cannot say is told to :data:`Lose`.  A *request* that would lose something that
matters is refused (:func:`strict`): better no machine than one with an unencrypted disk.  An
*answer* is given without it (:data:`lenient`): the machine is there, whatever can be said of it.
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
"""Called with what cannot be said, such as ``"a guest hostname"``; may raise."""

Translator = Callable[[Any, Lose], Message]
"""From a message of one vocabulary to its like in the other."""

Translators = Mapping[tuple[type[Message], type[Message]], Translator]
"""By the types that they translate from and to."""


def lenient(what: str) -> None:
    """It is left out."""


def strict(revision: str) -> Lose:
    """:return: raises :class:`NotImplementedByBackend` that names what and why."""

    def refuse(what: str) -> None:
        raise NotImplementedByBackend(
            f"the machine runtime's interface (revision {revision}) cannot tell {what}"
        )

    return refuse


@dataclass(frozen=True)
class Call:
    """
    One RPC of one revision.

    :param path: on the wire, ``/SERVICE/METHOD``.
    :param attribute: its name in ``IMachineRuntime`` or ``IMachineLogs``.
    :param request: the message that travels, and ``response`` the one that comes back.
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
        :param request: of the vocabulary inside.
        :raises NotImplementedByBackend: this revision cannot say all that matters of it.
        """
        raw: bytes = self.request_out(request, strict(self.revision)).SerializeToString()
        return raw

    def decode_request(self, raw: bytes) -> Message:
        """
        :raises DecodeError: no message of this call.
        :raises BadRequest: it contradicts itself.
        """
        return self.request_in(self.request.FromString(raw), lenient)

    def encode_response(self, response: Message) -> bytes:
        """:param response: of the vocabulary inside; what cannot be said is left out."""
        raw: bytes = self.response_out(response, lenient).SerializeToString()
        return raw

    def decode_response(self, raw: bytes) -> Message:
        """
        :raises DecodeError: no answer to this call.
        :raises BadRequest: it contradicts itself.
        """
        return self.response_in(self.response.FromString(raw), lenient)


@dataclass(frozen=True)
class Revision:
    """
    One wire form of the interface.

    :param service: its full name on the wire.
    :param calls: by :attr:`Call.attribute`; what is missing the revision does not have.
    :param nothing: paths of methods about what no machine of ours has: they answer an empty
        message, which is an empty list.
    """

    name: str
    service: str
    calls: Mapping[str, Call]
    nothing: Sequence[str] = ()

    def call(self, attribute: str) -> Call:
        """:raises NotImplementedByBackend: there is no such method."""
        try:
            return self.calls[attribute]
        except KeyError:
            strict(self.name)(f"{attribute}: it has no such method")
            raise AssertionError("strict always raises") from None


def same(message: Message, lose: Lose) -> Message:
    """A message that is the same inside."""
    return message


def renamed(to: type[Message]) -> Translator:
    """:return: translates messages that differ in nothing but names, which do not travel."""
    return lambda message, _: to.FromString(message.SerializeToString())


def attribute_of(method: str) -> str:
    """``UpdateMachinePower`` is ``update_machine_power``."""
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
    :param declared: the descriptor of the service whose messages travel.
    :param service: its name on the wire, where that is not the descriptor's.
    :param inside: the descriptor of the service inside; default: that of machines.
    :param methods: names of methods on the wire, and inside where they differ.
    :param nothing: names of methods that have no like inside, see :attr:`Revision.nothing`.
    :param translators: between messages that are not the same inside and on the wire.
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
        calls[attribute] = Call(
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
