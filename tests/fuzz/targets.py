"""
What must hold for any bytes: one function for each thing that reads them.

The first byte of the data chooses the target, the second how the rest is split.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import h11
from joserfc import jws
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IProtocolFactory, IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.web.http import parse_qs
from zope.interface import implementer

from tests import needs
from tests.auth import forge
from tests.auth.oidc.support import user_of
from tests.retained import weight
from twisted_exec.api import logs, patch, protobuf, quantity, selectors, times
from twisted_exec.api.status import APIError
from twisted_exec.apiserver.aggregated.admission import review
from twisted_exec.apiserver.serving import query as options
from twisted_exec.auth import jwt
from twisted_exec.auth.forwarded_user import forwarded_headers
from twisted_exec.auth.jwt_keys import jwks_keys, signing_key
from twisted_exec.auth.oidc.claims import Issuer, MappedClaim
from twisted_exec.auth.oidc.configuration import read_configuration
from twisted_exec.runtimes.lines.redfish.entry import EntryDialogue, Type
from twisted_exec.runtimes.lines.redfish.guard import Guard
from twisted_exec.runtimes.lines.redfish.quirks import Entry, Quirk
from twisted_exec.shipping.otlp import read_receipt, status_message
from twisted_exec.streaming.http import upgrade_client
from twisted_exec.streaming.interfaces import IDENTITY_HEADERS
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.wire import (
    blocks,
    channel,
    com_port,
    escape_sequences,
    plain_http,
    spdy_headers,
    stream_options,
    telnet,
    upgrade,
)
from twisted_exec.wire import spdy as spdy_frames
from twisted_exec.wire import spdy_connection as spdy
from twisted_exec.wire import spdy_console as streams
from twisted_exec.wire.cross_site import is_cross_site
from twisted_exec.wire.endings import decode_ending, decode_status, encode_status
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.resize import SizeDecoder, TerminalSize, encode_size, encode_wish

Outcome = tuple[list[Any], str]
"""What came out, and what the peer was blamed for at the end, if it was."""


def run(data: bytes) -> None:
    """
    Feed one target.

    :raises Exception: something that must hold does not.
    """
    if len(data) >= 2:
        names = sorted(TARGETS)
        TARGETS[names[data[0] % len(names)]](data[1], data[2:])


def seed(name: str, data: bytes, split: int = 1) -> bytes:
    """What :func:`run` gives to a target."""
    return bytes((sorted(TARGETS).index(name), split)) + data


def pieces(data: bytes, split: int) -> Iterator[bytes]:
    """The data in pieces of ``split`` bytes, or of one."""
    size = max(1, split)
    return (data[start : start + size] for start in range(0, len(data), size))


def same_on_any_split(read: Callable[[Iterable[bytes]], Outcome], split: int, data: bytes) -> None:
    """Whole or in pieces, the same comes out."""
    whole, cut = read([data]), read(pieces(data, split))
    assert whole == cut, (whole, cut)


# WebSocket messages.


def channels(split: int, message: bytes) -> None:
    """A message is read or passed over; what is read can be written."""
    protocol = (*channel.PROTOCOLS, channel.UNNAMED)[split % 6]
    try:
        event = channel.decode(message, protocol)
    except RemoteProtocolError:
        return
    if isinstance(event, channel.StreamData) and not channel.is_text(protocol):
        assert bytes((event.channel,)) + event.data == message
    if isinstance(event, channel.StreamData):
        again = b"".join(
            one.data
            for one in (
                channel.decode(part, protocol)
                for part in channel.messages(event.channel, event.data, protocol)
            )
            if isinstance(one, channel.StreamData)
        )
        assert again == event.data


# SPDY.


def _joined(events: Iterable[Any], kinds: type | tuple[type, ...]) -> list[Any]:
    """Neighbouring data of one stream as one: how it is cut into pieces means nothing."""
    found: list[Any] = []
    for event in events:
        last = found[-1] if found else None
        if (
            isinstance(event, kinds)
            and isinstance(last, list)
            and last[0] == _where(event)
            and not last[2]
        ):
            last[1] += event.data
            last[2] = getattr(event, "fin", False)
        elif isinstance(event, kinds):
            found.append([_where(event), event.data, getattr(event, "fin", False)])
        else:
            found.append(event)
    return found


def _where(event: Any) -> object:
    return getattr(event, "stream_id", None) or getattr(event, "channel", None)


def _read(
    feed: Callable[[bytes], None],
    following: Callable[[], Any],
    parts: Iterable[bytes],
    then: Callable[[Any], None] = lambda event: None,
) -> Iterator[Any]:
    for part in parts:
        feed(part)
        while (event := following()) is not None:
            yield event
            then(event)


def _until_blamed(events: Iterator[Any]) -> Outcome:
    found: list[Any] = []
    try:
        for event in events:
            found.append(event)
    except RemoteProtocolError as error:
        return found, str(error)
    return found, ""


def frames(split: int, data: bytes) -> None:
    """Frames are the same on any split, and no more is kept than came."""

    def read(parts: Iterable[bytes]) -> Outcome:
        reader = spdy_frames.FrameReader()
        empty = weight(reader)
        found, blamed = _until_blamed(_read(reader.feed, reader.next_frame, parts))
        assert weight(reader) <= empty + 2 * len(data)
        return _joined(found, spdy_frames.Data), blamed

    same_on_any_split(read, split, data)


def _connection(client: bool) -> Callable[[int, bytes], None]:
    def connection(split: int, data: bytes) -> None:
        """An end of a connection: events and answers are the same on any split."""

        def read(parts: Iterable[bytes]) -> Outcome:
            end = spdy.SPDYConnection(client=client, max_streams=5)
            if client:
                for _ in range(4):
                    end.open([(b"streamtype", b"stdin")])
            sent = bytearray(end.data_to_send())

            def then(event: Any) -> None:
                if isinstance(event, spdy.StreamOpened):
                    end.accept(event.stream_id)
                sent.extend(end.data_to_send())

            found, blamed = _until_blamed(_read(end.feed, end.next_event, parts, then))
            sent.extend(end.data_to_send())
            assert len(end._streams) <= 9
            # An answer is never much larger than what asked for it.
            assert len(sent) <= 4096 + 8 * len(data), len(sent)
            return [*_joined(found, spdy.DataReceived), bytes(sent)], blamed

        same_on_any_split(read, split, data)

    return connection


def _console(make: Callable[[], Any]) -> Callable[[int, bytes], None]:
    def console(split: int, data: bytes) -> None:
        """A console's end over SPDY: what is told is the same on any split."""

        def read(parts: Iterable[bytes]) -> Outcome:
            end = make()
            end.start()
            sent = bytearray()

            def then(event: Any) -> None:
                if isinstance(event, spdy.PingReceived):
                    end.answer(event)

            found, blamed = _until_blamed(_read(end.feed, end.next_event, parts, then))
            end.settle()
            sent.extend(end.data_to_send())
            assert end._early_bytes <= streams.MAX_BUFFERED_BYTES + spdy_frames.PIECE_BYTES + 1024
            return [*_joined(found, channel.StreamData), len(sent)], blamed

        # What is held before the beginning is bounded by what its pieces cost: who
        # sends very many small ones is told so earlier.
        same_on_any_split(read, max(split, len(data) // 100), data)

    return console


def header_blocks(split: int, data: bytes) -> None:
    """Blocks behind each other: read, or blamed for; never larger than their bound."""
    reader = spdy_headers.HeaderReader()
    for block in data.split(b"\0\0\xff\xff"):
        try:
            found = reader.read(block + b"\0\0\xff\xff")
        except RemoteProtocolError:
            return
        assert len(found) <= spdy_headers.MAX_HEADERS
        assert sum(len(name) + len(value) for name, value in found) <= spdy_headers.MAX_BLOCK_BYTES


def plain_headers(split: int, data: bytes) -> None:
    """The same for what is compressed as it should be."""
    writer, reader = spdy_headers.HeaderWriter(), spdy_headers.HeaderReader()
    names = [b"n%d" % number for number in range(len(data))]
    headers = list(zip(names, pieces(data, split), strict=False))[: spdy_headers.MAX_HEADERS]
    expected = [
        (name, value) for name, values in headers for value in (values.split(b"\0") or [b""])
    ]
    if len(expected) <= spdy_headers.MAX_HEADERS:
        assert list(reader.read(writer.write(headers))) == expected


# Remote command.


def sizes(split: int, data: bytes) -> None:
    """Sizes and wishes are the same on any split, can be said again, and little of them is kept."""

    def read(parts: Iterable[bytes]) -> Outcome:
        decoder, found = SizeDecoder(), []
        for part in parts:
            found += decoder.feed(part)
            assert weight(decoder) < 4096
        assert list(map(_said_again, found)) == found
        return found, str(decoder._broken)

    same_on_any_split(read, split, data)


def _said_again(told: Any) -> Any:
    if isinstance(told, TerminalSize):
        again = encode_size(told)
    else:
        again = encode_wish(told, None)
    (read,) = SizeDecoder().feed(again)
    return read


def endings(split: int, document: bytes) -> None:
    """A Status is read or blamed for, and what was read can be said again."""
    protocol = (channel.V5, channel.V4, channel.V1, channel.V2)[split % 4]
    try:
        ending = decode_ending(document, protocol)
    except RemoteProtocolError:
        return
    again = decode_status(encode_status(ending))
    # NonZeroExitCode with 0 contradicts itself; client-go takes it for success, too.
    assert (again.is_success, again.exit_code or 0) == (ending.is_success, ending.exit_code or 0)


# Sessions that follow each other.


def session_blocks(split: int, data: bytes) -> None:
    """The bytes of a session are the same on any split, and end at the first mark of an end."""
    expected, start, is_over = b"", 0, False
    while not is_over and start + blocks.HEAD_BYTES <= len(data):
        end = start + blocks.HEAD_BYTES
        head = data[start:end]
        is_over = head in (blocks.Mark.END.value, blocks.Mark.READY.value)
        length = len(data) if head == blocks.Mark.PLAIN.value else int.from_bytes(head, "big")
        if not is_over:
            expected += data[end : end + length]
        start = end + length
    for parts in ([data], pieces(data, split)):
        reader, found = blocks.BlockReader(), b""
        try:
            for part in parts:
                found += reader.read(part)
        except RemoteProtocolError:
            assert is_over
            assert expected.startswith(found)
        else:
            assert (found, reader.mark is not None) == (expected, is_over)
        assert weight(reader) < 1024


# Heads and queries.


def heads(split: int, data: bytes) -> None:
    """Headers of an upgrade: asked, checked, passed on; never with a credential."""
    lines = [line.partition(b":")[::2] for line in data.split(b"\n")]
    headers = [(name, value.strip()) for name, value in lines]
    is_cross_site(headers)
    wanted = upgrade.requested_upgrade(headers)
    try:
        upgrade.check_websocket((b"GET", b"POST")[split % 2], headers)
        assert wanted == upgrade.WEBSOCKET
    except RemoteProtocolError:
        pass
    for name, value in upgrade.forwarded_request_headers(headers, IDENTITY_HEADERS):
        assert name not in IDENTITY_HEADERS
        assert name.lower() not in upgrade.HOP_BY_HOP
        if name.lower() == b"sec-websocket-protocol":
            assert upgrade.BEARER_SUBPROTOCOL not in value
    upgrade.forwarded_response_headers(headers)
    offered = upgrade.values(headers, b"sec-websocket-protocol")
    chosen = upgrade.negotiate(offered, channel.PROTOCOLS)
    assert chosen is None or chosen.encode() in upgrade.tokens(offered)


def answers(split: int, data: bytes) -> None:
    """What a hop answers to a request for an upgrade: taken or refused, on any split."""

    def read(parts: Iterable[bytes]) -> Outcome:
        backend, following = _Backend(), _Following()
        found: list[Any] = []

        def taken(upgraded: upgrade_client.Upgraded) -> None:
            found.append(list(upgraded.headers))
            upgraded.hand_over(following)

        def failed(failure: Failure) -> None:
            problem = failure.trap(upgrade_client.UpgradeRefused, APIError)
            error = failure.value
            if problem is upgrade_client.UpgradeRefused:
                assert len(error.body) <= upgrade_client.MAX_ERROR_BYTES
                error = error.as_api_error()
            assert error.code >= 400
            # The words depend on how much h11 needs to see that it is no HTTP.
            found.append((error.code, error.reason))

        asking = upgrade_client.upgrade(backend, _ASKED, clock=Clock(), timeout_seconds=9)
        asking.addCallbacks(taken, failed).addErrback(found.append)
        for part in parts:
            if backend.lost:
                break
            backend.protocol.dataReceived(part)
        backend.protocol.connectionLost(Failure(ConnectionDone()))
        assert len(found) == 1 and not isinstance(found[0], Failure), found
        return [*found, following.received], ""

    same_on_any_split(read, split, data)


_ASKED = upgrade_client.UpgradeRequest(
    b"GET", b"/exec", b"server", [(b"Connection", b"Upgrade"), (b"Upgrade", b"SPDY/3.1")]
)


@implementer(IStreamClientEndpoint)
class _Backend:
    """The next hop, and the transport to it: what is written is lost."""

    protocol: Any = None
    lost = False

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        self.protocol = protocolFactory.buildProtocol(IPv4Address("TCP", "192.0.2.1", 1))
        self.protocol.makeConnection(self)
        return succeed(self.protocol)

    def write(self, data: bytes) -> None:
        """Nobody reads it."""

    def pauseProducing(self) -> None:
        """Data goes on coming, as a TLS layer may deliver what it has."""

    def resumeProducing(self) -> None:
        """It never stopped."""

    def abortConnection(self) -> None:
        self.lost = True


class _Following:
    """The protocol behind a 101."""

    def __init__(self) -> None:
        self.received = b""

    def makeConnection(self, transport: _Backend) -> None:
        transport.protocol = self

    def dataReceived(self, data: bytes) -> None:
        self.received += data

    def connectionLost(self, reason: Failure) -> None:
        """The end of the data."""


def requests(split: int, data: bytes) -> None:
    """A request in the plain form is encoded as h11 does it; h11 refuses none of them."""
    first, *lines = data.split(b"\n")
    method, _, target = first.partition(b" ")
    headers = [(b"Host", b"server"), *(line.partition(b":")[::2] for line in lines)]
    body = b"{}" * (split % 3)
    plain = plain_http.request(method, target, headers, body)
    if plain is None:
        return
    http = h11.Connection(h11.CLIENT)
    if body:
        headers.append((b"Content-Length", b"%d" % len(body)))
    sent = http.send(h11.Request(method=method, target=target, headers=headers)) or b""
    sent += (http.send(h11.Data(data=body)) or b"") if body else b""
    assert plain == sent + (http.send(h11.EndOfMessage()) or b"")


def switches(split: int, data: bytes) -> None:
    """The head of an answer in the plain form, such as a 101, is read as h11 does it."""
    plain = plain_http.answer(data)
    if plain is None:
        return
    http = h11.Connection(h11.CLIENT)
    upgrades = [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
    headers = [(b"Host", b"server"), *(upgrades if plain.code == 101 else ())]
    http.send(h11.Request(method=b"DELETE", target=b"/", headers=headers))
    http.send(h11.EndOfMessage())
    http.receive_data(data)
    event: Any = http.next_event()
    assert (event.status_code, event.headers.raw_items()) == (plain.code, plain.headers)
    if plain.code == 101:
        assert http.trailing_data[0] == plain.rest
    elif plain.length == len(plain.rest):
        read: list[Any] = [http.next_event() for _ in range(2 if plain.rest else 1)]
        assert b"".join(bytes(each.data) for each in read[:-1]) == plain.rest
        assert isinstance(read[-1], h11.EndOfMessage)
        assert plain.closes or http.their_state is http.our_state is h11.DONE


def queries(split: int, data: bytes) -> None:
    """Queries of streams, logs and lists: read, or refused with a Status."""
    args = parse_qs(data, keep_blank_values=True)
    wanted = stream_options.StreamOptions.of(args)
    passed = stream_options.StreamOptions.of(parse_qs(wanted.query()))
    assert (passed.channels, passed.read_only) == (wanted.channels, wanted.read_only)
    assert (passed.force, passed.query()) == (wanted.force, wanted.query())
    try:
        found = logs.parse(args, "m")
        assert logs.parse(parse_qs(found.query()), "m") == found
    except APIError as error:
        assert 400 <= error.code < 500
    form = options.ResponseForm()
    for read in (
        options.list_options,
        lambda query: options.write_options(query, "CreateOptions"),
        lambda query: options.watch_options(query, form),
    ):
        try:
            read(options.Query(args))
        except APIError as error:
            assert 400 <= error.code < 500


def texts(split: int, data: bytes) -> None:
    """Selectors, quantities, times and accepted forms."""
    text = data.decode("utf-8", "replace")
    for parse in (
        selectors.parse_labels,
        selectors.parse_fields,
        options.read_continue,
        options.accepted,
    ):
        try:
            parse(text)
        except APIError as error:
            assert 400 <= error.code < 500
    for convert in (quantity.value, times.seconds, logs.nanoseconds):
        try:
            convert(text)
        except ValueError:
            pass


def protobufs(split: int, data: bytes) -> None:
    """An object in protobuf is read, or refused with a Status."""
    for raw in (data, b"k8s\0" + data):
        try:
            found = protobuf.decode(raw, 1000)
        except APIError as error:
            assert error.code in (400, 413, 415)
        else:
            assert isinstance(found["kind"], str)


def receipts(split: int, data: bytes) -> None:
    """A log collector's answer is read, or is none; its texts are one bounded line."""
    texts = [status_message(data)]
    try:
        receipt = read_receipt(data)
    except ValueError:
        pass
    else:
        assert receipt.rejected >= 0
        texts.append(receipt.message)
    assert all(text.isprintable() and len(text) <= 300 for text in texts)


# Console servers.


def telnets(split: int, data: bytes) -> None:
    """The same on any split; answers are no longer than what asked for them."""

    def read(parts: Iterable[bytes]) -> Outcome:
        end, port = _com_port(), com_port.ComPort(com_port.LineSettings())
        sent = bytearray(end.to_send())

        def events() -> Iterator[Any]:
            for part in parts:
                for event in end.receive(part):
                    yield event
                    if isinstance(event, telnet.Parameters) and event.option == _COM_PORT:
                        yield port.receive(event.data)
                sent.extend(end.to_send())

        found, blamed = _until_blamed(events())
        assert weight(end) <= 64 + 5 * len(data)
        sent.extend(end.to_send())
        assert len(sent) <= 64 + 4 * len(data), len(sent)
        return [*_joined(found, telnet.Text), bytes(sent)], blamed

    same_on_any_split(read, split, data)
    typed = _com_port().encode(data)
    far = telnet.TelnetClient(offers=(), wants=())
    printed = b"".join(one.data for one in far.receive(typed) if isinstance(one, telnet.Text))
    assert printed == data, (printed, data)


_COM_PORT = telnet.Option.COM_PORT

_BMC = Quirk(
    "fuzz",
    entry_commands=(Entry((b"cd", b"vsp"), (b"stop",)), Entry((b"start",))),
    refusals=(b"unknown",),
    begins=(b"CLI",),
    prompts=(b"->", b"system>"),
    never_send=(b"\x1b(", b"\r~.", b"aab", b"ab"),
)


def bmc_shells(split: int, data: bytes) -> None:
    """
    No escape is sent, and the end of the console is found on any split; the dialogue with the shell types its
    commands and nothing else.
    """

    def ends(parts: Iterable[bytes]) -> bool:
        guard = Guard(_BMC)
        return any(guard.from_machine(part).has_ended for part in parts)

    assert ends([data]) == ends(pieces(data, split))
    guard = Guard(_BMC)
    sent = b"".join(map(guard.to_machine, pieces(data, split)))
    assert not any(each in sent for each in _BMC.never_send), sent
    assert len(sent) + guard.dropped == len(data)
    dialogue, typed = EntryDialogue(_BMC.entry_commands, _BMC, 0.0, releases=split % 2 > 0), b""
    now = 0.0
    for part in pieces(data, split):
        steps = [*dialogue.receive(part, now), *dialogue.wake(now)]
        typed += b"".join(step.data for step in steps if isinstance(step, Type))
        now += split / 64
    commands = {b"cd", b"vsp", b"stop", b"start"}
    *whole, rest = typed.split(b"\r")
    assert commands.issuperset(whole), typed
    assert any(each.startswith(rest) for each in commands), typed


def terminals(split: int, data: bytes) -> None:
    """Output keeps its length; whole or in pieces, the same queries are changed, and none is left."""

    def filtered(parts: Iterable[bytes]) -> bytes:
        each = escape_sequences.QueryFilter()
        return b"".join(map(each.feed, parts))

    whole = filtered([data])
    assert len(whole) == len(data), whole
    assert whole == filtered(pieces(data, split)), whole
    assert whole == filtered([whole]), whole


def _com_port() -> telnet.TelnetClient:
    end = telnet.TelnetClient(offers=(*telnet.TelnetClient.OFFERS, _COM_PORT))
    end.resize(80, 24)
    end.begin()
    return end


# Identities.

_ISSUER = Issuer(
    "https://issuer.example", ("exec",), MappedClaim("sub"), groups=MappedClaim("groups")
)
_SIGNER = signing_key(forge.private_pem(forge.ec_key("fuzz")), "key")


def tokens(split: int, data: bytes) -> None:
    """
    Any bytes as a token, and as the claims of a genuine one: it is nobody's, or somebody's with a
    name that every hop can forward, of this issuer, for us, and in its time.
    """
    genuine = jws.serialize_compact({"alg": "ES256"}, data, _SIGNER.key, ["ES256"]).encode()
    for token in (data, genuine):
        said = jwt.claimed(token)
        try:
            claims = jwt.claims_of(
                token,
                [_SIGNER.public],
                ["ES256"],
                issuer=_ISSUER.url,
                audiences=_ISSUER.audiences,
                now=1_800_000_000,
                leeway_seconds=0,
            )
            user = user_of(claims, _ISSUER)
        except jwt.InvalidToken as problem:
            assert str(problem).isprintable()
            continue
        assert said is not None and said.issuer == _ISSUER.url
        for name in (user.name, *user.groups[:-1]):
            assert name.isprintable() and name == name.strip() and name, name
            assert not name.startswith("system:"), name
        forwarded_headers(user)


def issuers(split: int, data: bytes) -> None:
    """What issuers publish, and what says which they are, is read or refused in a line."""
    try:
        assert 0 < len(jwks_keys(data)) <= 100
    except ValueError as problem:
        assert str(problem).isprintable()
    try:
        read_configuration(data, "x")
    except TLSConfigError as problem:
        assert str(problem).isprintable() and len(str(problem)) < 400


# Webhooks.

_MACHINE: dict[str, Any] = {"metadata": {"name": "vm", "labels": {"a": "b"}}, "spec": {"l": [1, 2]}}


def reviews(split: int, data: bytes) -> None:
    """
    What a webhook answers is no answer, or one that can be carried out or refused, and shown.
    """
    version = review.VERSIONS[split % 2]
    try:
        told = review.read_response(data, "u", version, mutating=bool(split & 2))
    except review.InvalidResponse as problem:
        assert str(problem).isprintable() and len(str(problem)) < 5000
        return
    assert len(told.warnings) <= 64 and len(told.annotations) <= 64
    status = review.denial("w", told.status).to_status()
    assert 400 <= status["code"] <= 599, status
    assert all(line.isprintable() for line in status["message"].split("\n")), status
    json.dumps(status)
    try:
        patch.json_patch(_MACHINE, told.patch)
    except APIError as refused:
        assert refused.code in (400, 413, 422)
    assert _MACHINE["spec"] == {"l": [1, 2]}


TARGETS: dict[str, Callable[[int, bytes], None]] = {
    "answers": answers,
    "bmc shells": bmc_shells,
    "channels": channels,
    "frames": frames,
    "spdy client": _connection(True),
    "spdy server": _connection(False),
    "console's machine": _console(lambda: streams.ServerStreams(channel.V4)),
    "console's user": _console(lambda: streams.ClientStreams(channel.V4)),
    "header blocks": header_blocks,
    "plain headers": plain_headers,
    "sizes": sizes,
    "endings": endings,
    "heads": heads,
    "queries": queries,
    "texts": texts,
    "protobufs": protobufs,
    "telnet": telnets,
    "terminals": terminals,
    "tokens": tokens,
    "issuers": issuers,
    "receipts": receipts,
    "requests": requests,
    "reviews": reviews,
    "session blocks": session_blocks,
    "switches": switches,
}
if needs.conch() is None:
    from . import ssh

    TARGETS.update(ssh.TARGETS)
