"""
Where to begin: bytes of real clients, and one good example of what they lack.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

from tests import needs
from twisted_exec.testing.collectors import encode_partial_success
from twisted_exec.wire.blocks import Mark, head
from twisted_exec.wire.endings import COMPLETED, INTERNAL, LINE_LOST, Ending, encode_status
from twisted_exec.wire.resize import Break, Role, TerminalSize, encode_wish
from twisted_exec.wire.spdy import FrameWriter, data, go_away, ping, rst_stream

from .targets import seed

CAPTURES = Path(__file__).parent.parent / "captures"

_TEXTS = (
    b"app=web,tier in (a, b),!old,x<3",
    b"metadata.name=x,status.phase!=Running",
    b"1.5Gi",
    b"3e2",
    b"2026-11-20T05:00:00.5+01:00",
    b"application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    b"WzEsICJhIiwgImIiXQ==",
)
_QUERIES = (
    b"stdin=true&stdout=true&tty=true&command=console&container=console",
    b"input=1&output=1&error=1&readOnly=true&force=1",
    b"watch=1&allowWatchBookmarks=true&sendInitialEvents=true&timeoutSeconds=9&resourceVersion=3",
    b"follow=true&tailLines=10&sinceTime=2026-11-20T05:00:00Z&timestamps=true&limitBytes=9",
    b"sinceSeconds=5&stream=All&previous=false",
    b"limit=500&continue=WzEsICJhIiwgImIiXQ%3D%3D&labelSelector=a%3Db&fieldSelector=a%3Db",
    b"dryRun=All&fieldValidation=Strict&resourceVersionMatch=Exact&resourceVersion=7",
)


_ANSWERS = (
    b"101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nand more",
    b"101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    b'403 Forbidden\r\nContent-Length: 29\r\n\r\n{"kind":"Status","message":""}',
    b"429 Busy\r\nRetry-After: 5\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nfoo\r\n0\r\n\r\n",
    b"302 Found\r\nLocation: https://elsewhere/\r\nContent-Length: 0\r\n\r\n",
)


_BMC_SHELLS = (
    b"Welcome\r\n-> cd\r\n-> vsp\r\nESC ( leaves the CLI\r\nlogin: ",
    b"system> cd\r\nunknown\r\nsystem> start\r\nin use\r\n\x1b[0msystem> ",
    b"aaab\x1b((\r~..ab",
)

_TELNET = (
    b"\xff\xfb\x03\xff\xfd\x03\xff\xfb\x01\xff\xfe\x01\xff\xfd\x00\xff\xfb\x00\xff\xfd\x2clogin: ",
    b"\xff\xfd\x2c\xff\xfa\x2c\x65\x00\x00\x25\x80\xff\xf0\xff\xfa\x2c\x6b\x88\xff\xf0\xff\xfa\x2c\x6c\xff\xf0x",
    b"a\r\0b\r\nc\xff\xffd\xff\xf1\xff\xfd\x1f\xff\xfe\x00\xff\xfc\x03\r\xff\xf1\0",
    b"\xff\xfd\x2c\xff\xfa\x2c" + b"\x64ser2net" * 200,
)


_CLAIMS = (
    b'{"iss":"https://issuer.example","aud":"exec","sub":"jane","exp":1800000060,"groups":["a"]}',
    b'{"iss":"https://issuer.example","aud":["x","exec"],"sub":"system:x","exp":1.8e9,"nbf":1}',
    b"eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIn0.",
)
_ISSUERS = (
    b'{"keys":[{"kty":"RSA","kid":"k1","use":"sig","n":"' + b"3" * 343 + b'","e":"AQAB"}]}',
    b"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n"
    b"- issuer: {url: https://issuer.example, audiences: [exec]}\n"
    b'  claimMappings: {username: {claim: sub, prefix: ""}}\n',
)


_TERMINALS = (
    b"vim\x1b[c\x1b[>c\x1b[6n\x1b[?12$p\x1b]11;?\x07\x1b[?25h",
    b"\x1bP$qm\x1b\\\x1bP+q544e\x1b\\\x1bZ\x05\x1b_Ga=q,i=1;AAAA\x1b\\",
    b"\xc2\x9b6n\x9b6n\xe2\x99\x9b6n\x1b]4;1;?;2;?\x1b\\\x1b]52;c;?\x07\x1b]1337;ReportCellSize\x07",
    b"\x1b_Ga=T" + b",i=1,q=2" * 50 + b";AAAA\x1b\\",
)


def _review(response: str) -> bytes:
    review = (
        '{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u",%s}}'
    )
    return (review % response).encode()


_REVIEWS = (
    _review('"allowed":false,"status":{"code":403,"message":"no\\nway","details":{"causes":[]}}'),
    _review('"allowed":true,"warnings":["w"],"auditAnnotations":{"k":"v"}'),
    _review(
        '"allowed":true,"patchType":"JSONPatch","patch":"'
        + b64encode(
            b'[{"op":"add","path":"/spec/l/-","value":3},{"op":"copy","from":"/spec","path":"/x"},'
            b'{"op":"remove","path":"/metadata/labels/a"}]'
        ).decode()
        + '"'
    ),
)


def all_seeds() -> Iterator[bytes]:
    """Each for its target."""
    yield from (seed("reviews", review, 2) for review in _REVIEWS)
    yield from (seed("tokens", claims) for claims in _CLAIMS)
    yield from (seed("issuers", published) for published in _ISSUERS)
    yield from (seed("terminals", said, split) for split, said in enumerate(_TERMINALS, 1))
    yield from (seed("bmc shells", said, split) for split, said in enumerate(_BMC_SHELLS, 1))
    yield from (seed("telnet", said, split) for split, said in enumerate(_TELNET, 1))
    yield from (seed("answers", b"HTTP/1.1 " + answer, 9) for answer in _ANSWERS)
    yield from (seed("switches", b"HTTP/1.1 " + answer) for answer in _ANSWERS)
    yield seed(
        "requests", b"GET /exec?tty=1\nConnection:Upgrade\nUpgrade:SPDY/3.1\nX-Remote-User:a b"
    )
    yield seed("requests", b"DELETE /exec\nAuthorization:Bearer t\nX-Empty:", 2)
    yield from _of_spdy()
    yield from _of_ssh()
    yield from _of_captures()
    for message in (b"\0ls\n", b"\1", b"4{}", b"\xff\0", b"0bHM=", b"3e30="):
        for protocol in range(6):
            yield seed("channels", message, protocol)
    yield seed("sizes", b'{"Width":80,"Height":24}\n{"width":1,"HEIGHT":2} \n{"a":{"b":"}"}}', 3)
    yield seed("sizes", encode_wish(Break(300), TerminalSize(80, 24)), 9)
    yield seed("sizes", encode_wish(Role.WRITER, None) + b'{"break":5001,"role":"x"}', 2)
    yield seed("sizes", b" " * 1500 + b'{"Width":80}' + b"\n" * 1500 + b"{}", 100)
    for ending in (
        Ending(COMPLETED),
        Ending(COMPLETED, "", 7),
        Ending(INTERNAL, "no"),
        Ending(LINE_LOST, "gone"),
    ):
        yield seed("endings", encode_status(ending), 0)
    yield seed("endings", encode_status(Ending(COMPLETED, "", 7)).replace(b'"7"', b'"0"'))
    yield seed("receipts", encode_partial_success(7, "too old"))
    yield seed("receipts", b"\x08\x03\x12\x07too old")
    yield from (seed("texts", text) for text in _TEXTS)
    yield from (seed("queries", query) for query in _QUERIES)
    for split in (1, 2, 7):
        for mark in Mark:
            yield seed("session blocks", head(5) + b"hello" + head(1) + b"!" + mark.value, split)
        yield seed("session blocks", head(2) + b"hi" + Mark.END.value + Mark.READY.value, split)


def _of_ssh() -> Iterator[bytes]:
    if needs.conch() is None:
        from . import ssh

        yield from (seed(name, data, split) for name, data, split in ssh.seeds())


def _of_spdy() -> Iterator[bytes]:
    client, server = FrameWriter(), FrameWriter()
    names = (b"error", b"stdin", b"stdout", b"resize")
    opened = [
        client.syn_stream(1 + 2 * number, [(b"streamtype", name)])
        for number, name in enumerate(names)
    ]
    replied = [server.syn_reply(1 + 2 * number) for number in range(len(names))]
    said = b"".join(data(3, b"echo hello\n")) + b"".join(data(7, b'{"Width":1,"Height":1}'))
    end = ping(1) + rst_stream(3, 5) + b"".join(data(5, b"", True)) + go_away(0)
    for split in (1, 7, 255):
        for name in ("frames", "spdy server", "console's machine"):
            yield seed(name, b"".join(opened) + said + end, split)
        for name in ("frames", "spdy client", "console's user"):
            yield seed(name, b"".join(replied) + said + ping(2) + end, split)
    yield seed("header blocks", b"".join(one[18:] for one in opened))
    yield seed("plain headers", b"streamtype\0stdin", 5)


def _of_captures() -> Iterator[bytes]:
    for path in sorted(CAPTURES.glob("spdy-v4-*.json")):
        head, *items = json.loads(path.read_text())["items"]
        for side, name in (("C", "spdy server"), ("S", "spdy client")):
            said = b"".join(bytes.fromhex(one["hex"]) for one in items if one["dir"] == side)
            yield seed(name, said.partition(b"\r\n\r\n")[2] if side == "S" else said, 11)
    for path in sorted(CAPTURES.glob("[!k]*-kubectl1.*.json")):
        head = bytes.fromhex(json.loads(path.read_text())["items"][0]["hex"])
        yield seed("heads", head.partition(b"\n")[2])
    for path in sorted(CAPTURES.glob("kubelet-*.json")):
        asked = json.loads(path.read_text())["to_node_server"]
        yield seed("heads", asked["request"].encode().partition(b"\n")[2] + b"\r\n\r\n")
    for one in _bodies(json.loads((CAPTURES / "protobuf-vectors.json").read_text())):
        yield seed("protobufs", one.removeprefix(b"k8s\0"))


def _bodies(found: object) -> Iterator[bytes]:
    """Every text in hexadecimal that is in a document."""
    if isinstance(found, dict):
        for value in found.values():
            yield from _bodies(value)
    elif isinstance(found, list):
        for value in found:
            yield from _bodies(value)
    elif isinstance(found, str) and found.startswith("6b387300"):
        yield bytes.fromhex(found)
