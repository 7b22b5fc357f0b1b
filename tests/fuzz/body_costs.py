"""
``python -m tests.fuzz.body_costs [SECONDS]``: look for bodies and files that take the most time a byte.

For each decoder of what others send a search keeps the dearest bodies so far, changes them and measures
again, and so climbs to those that cost most.  It ends with 1 if a cost grows faster than the body.
"""

from __future__ import annotations

import io
import random
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product

from tests.linear import assert_even, cpu_seconds
from twisted_exec.api import bodies, kinds, patch, protobuf, strategy
from twisted_exec.api.managedfields import updates
from twisted_exec.api.managedfields.entries import WriteOrigin
from twisted_exec.api.status import APIError
from twisted_exec.api.yaml_reader import FILE, parse_yaml
from twisted_exec.apiserver.aggregated.admission.review import InvalidResponse, read_response
from twisted_exec.apiserver.auditing import policy
from twisted_exec.auth.jwt_keys import jwks_keys
from twisted_exec.auth.oidc.configuration import read_configuration
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.kubeconfig.loader import load_inline
from twisted_exec.program.config_file import ConfigError
from twisted_exec.recording.asciicast_v2 import to_version_2
from twisted_exec.recording.playback import frames
from twisted_exec.recording.proof_lines import InvalidRecording
from twisted_exec.runtimes import config
from twisted_exec.shipping import config as shipping
from twisted_exec.tls.errors import TLSConfigError

Decode = Callable[[bytes], object]

_OLD = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "m", "annotations": {"a": "b"}, "finalizers": ["a/b"]},
    "data": {"a": "QQ=="},
}
_WRITER = WriteOrigin("m", "", 0.0)
_PLACED = replace(FILE, placed=True)


def _patch(media_type: str) -> Decode:
    schema = strategy.full_schema(kinds.SECRETS)
    return lambda data: patch.reader(media_type, data, [], schema)(_OLD)


def _create(data: bytes) -> None:
    body = bodies.decode("application/json", data, [])
    strategy.unknown_fields(kinds.SECRETS, body)
    strategy.for_create(kinds.SECRETS, body, namespace="default", now=0.0)


def _apply(data: bytes) -> None:
    updates.applied(kinds.SECRETS, _OLD, patch.configuration(data, []), _WRITER, force=True)


def _file(parse: Callable[[object], object]) -> Decode:
    return lambda data: parse(parse_yaml(data, _PLACED))


def _recording(data: bytes) -> None:
    for _ in frames(io.BytesIO(data)):
        pass


def _cast(data: bytes) -> None:
    for _ in to_version_2(data.splitlines(keepends=True)):
        pass


READERS: dict[str, Decode] = {
    "admission review": lambda data: read_response(data, "u", "v1", mutating=True),
    "apply": _apply,
    "audit policy": _file(policy.parse),
    "authentication configuration": lambda data: read_configuration(data, "it"),
    "cast": _cast,
    "create": _create,
    "file": lambda data: parse_yaml(data, _PLACED),
    "json": lambda data: bodies.decode_any("application/json", data, []),
    "json patch": _patch(patch.JSON),
    "kubeconfig": lambda data: load_inline(data, "it", environ={}),
    "merge patch": _patch(patch.MERGE),
    "protobuf": lambda data: bodies.decode_any(protobuf.MEDIA_TYPE, data),
    "published keys": lambda data: jwks_keys(data),
    "recording": _recording,
    "runtime": _file(config.parse),
    "shipping": _file(shipping.parse),
    "strategic patch": _patch(patch.STRATEGIC),
    "yaml": lambda data: bodies.decode("application/yaml", data, []),
}
"""Everything that decodes what others send, by name."""

_REFUSALS = (
    *(APIError, ConfigError, InvalidResponse, InvalidRecording, KubeConfigError),
    *(TLSConfigError, ValueError),
)

NUMBER = b"@"
"""Stands for a different number in each repetition."""

FRAMES = {
    b"": b"",
    b"%YAML 1.1\n": b"--- a\n",
    b"{": b'"z":1}',
    b"[": b"1]",
    b'{"': b'":1}',
    b'"': b'"',
    b'{"a":"': b'"}',
    b'{"a":': b"}",
    b'{"a":[': b"1]}",
    b'{"a":1,"a":1,"': b'":1}',
    b'{"a":1,"a":1,"k":{': b'"z":1}}',
    b"a: ": b"\n",
    b"a: !!int '": b"1'\n",
    b"a: !!float '": b"1'\n",
    b"a: !": b" b\n",
    b'a: "': b'"\n',
    b"a: '": b"'\n",
    b"a: |\n": b"\n",
    b"a: >\n": b"\n",
    b"a: &a {": b"z: 1}\nb: {<<: *a}\nc: [*a, *a, *a]\n",
    b"x: &x [": b"1]\ny: [*x, *x]\n",
    b"? ": b"\n: {a: 1, a: 2, b: 3}\n",
    b"- ": b"\n",
    b"# ": b"\n",
    b'{"metadata":{"name":"m"},"data":{': b'"z":"QQ=="}}',
    b'{"metadata":{"name":"m","labels":{': b'"z":"a"}}}',
    b'{"metadata":{"name":"m","finalizers":[': b'"z/z"]}}',
    b'{"metadata":{"name":"m","managedFields":[{"fieldsV1":{': b'"f:z":{}}}]}}',
    b'{"metadata":{"name":"m","ownerReferences":[': b"]}}",
    b'[{"op":"add","path":"': b'","value":1}]',
    b'[{"op":"add","path":"/data","value":{}},': b'{"op":"remove","path":"/data"}]',
    b'{"users":[': b'{"name":"z"}]}',
    b"users:\n": b"",
    b'{"keys":[': b"{}]}",
    b"k8s\0\n\x0c\n\2v1\x12\6Secret\x12\xff\xff\x03": b"",
    b"k8s\0": b"",
    b'[1,"o","': b'"]\n',
    b"jwt:\n": b"",
    b"classes:\n- name: a\n  driver: socket\n  capabilities: {cpu: 1, memory: 1Gi}\n  lines:\n": b"",
    b"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n": b"",
    b"sinks:\n": b"",
}
"""What is around the repeated unit: the start, and the end that makes it whole."""
TWOFOLD = [
    (b'{"a":1,"a":1,"', b"k", b'":[', b"1]}"),
    (b'{"a":1,"a":1,"', b"k", b'":{', b'"z":1}}'),
    (b'{"a":[', b"1,", b'1],"b":[', b"1]}"),
    (b'{"a":"', b"a", b'","b":"', b'"}'),
    (b'{"metadata":{"name":"m"},"data":{"', b"k", b'":"","b":{', b'"z":1}}}'),
    (b'[{"op":"add","path":"/data/', b"k", b'","value":""},', b'{"op":"remove","path":"/data"}]'),
    (b"", b"a: &", b" 1\nb: [", b"]\n"),
    (b"? ", b"k", b"\n: {a: 1, a: 2, ", b"b: 3}\n"),
    (b"", b"k", b": [", b"1]\n"),
]
"""Frames with another repeated unit: the start, that unit, what follows it, and the end."""
PIECES = [
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b'"',
        b"'",
        b"\\",
        b"\\\\",
        b'\\"',
        b"\\u00e9",
        b"\\ud800",
    ),
    *(
        b'"a":',
        b'"@":',
        b'"@",',
        b'"a":1,',
        b'"@":1,',
        b'"@":"QQ==",',
        b'{"a":1,"a":2},',
        b"[],",
        b"{},",
    ),
    *(
        b"a",
        b"0",
        b"1",
        b"1:",
        b"-",
        b"+",
        b".",
        b"e",
        b"_",
        b"~",
        b"0x",
        b"0b",
        b"@",
        b"null",
        b"1e9,",
    ),
    *(
        b" ",
        b"  ",
        b"\n",
        b"\r",
        b"\t",
        b"\0",
        b"\xc2\x85",
        b"\xe2\x80\xa8",
        b"\xef\xbb\xbf",
        b"\xc3\xa9",
    ),
    *(
        b"- ",
        b"? ",
        b": ",
        b"a: 1\n",
        b"@: 1\n",
        b"# a\n",
        b"---\n",
        b"...\n",
        b"| \n",
        b"> \n",
        b" b\n",
    ),
    *(
        b"%TAG !@! a\n",
        b"%TAG",
        b"%YAML 1.1\n",
        b"&a ",
        b"&a@ ",
        b"*a,",
        b"*x,",
        b"!!int ",
        b"!!str ",
        b"! ",
    ),
    *(
        b"<<: {",
        b"<<: *a,",
        b"<<: ",
        b"!<%41>",
        b"\\n",
        b"\\x41",
        b"=",
        b"''",
        b"$patch",
        b"f:@",
        b"k:{",
    ),
    *(
        b'{"op":"add","path":"/data/@","value":"@"},',
        b'{"op":"copy","from":"/data","path":"/data/@"},',
    ),
    *(
        b'{"op":"move","from":"/data","path":"/data"},',
        b'{"op":"test","path":"/data/a","value":""},',
    ),
    *(
        b"/",
        b"~1",
        b'{"name":"@"},',
        b'"a/@",',
        b'{"uid":"@","name":"@","kind":"a","apiVersion":"v1"},',
    ),
    *(
        b"    m@: {endpoint: 'unix:/@'}\n",
        b"- level: None\n",
        b"  m@: {kind: files}\n",
        b"- name: @\n",
    ),
    *(b"\n\x00", b"\x12\x02\n\x00", b"\x0a", b"\xff", b"\x22\x05\n\x01a\x12\x00", b"\x01", b"\x80"),
    *(
        b'[1,"o","a"]\n',
        b'[0.1,"i","@"]\n',
        b"#raw QQ==\n",
        b'#at {"time":1}\n',
        b'{"version":3}\n',
    ),
]


@dataclass(frozen=True)
class Body:
    """
    One kind of body, of any size.

    :param start: before the unit, which is repeated, each time with another number.
    :param first: another unit, which is repeated behind the start and takes half of the body; empty for none.
    :param then: between the two.
    """

    start: bytes
    unit: bytes
    end: bytes
    first: bytes = b""
    then: bytes = b""

    def of_size(self, size: int) -> bytes:
        start = self.start
        if self.first:
            start += _repeated(self.first, size // 2) + self.then
        return start + _repeated(self.unit, size - len(start) - len(self.end)) + self.end

    def changed(self, source: random.Random) -> Body:
        """Return this body with one change."""
        kind = source.randrange(5)
        if kind == 0:
            return _framed(source, self.unit)
        if kind == 1:
            return replace(self, start=self.start + _text(source, 1))
        if kind == 2:
            return replace(self, unit=_text(source, 3, least=1))
        cut_at = source.randrange(len(self.unit) + 1)
        unit = self.unit[:cut_at] + source.choice(PIECES) + self.unit[cut_at + kind % 2 :]
        return replace(self, unit=unit[-200:])


def _repeated(unit: bytes, size: int) -> bytes:
    count = max(0, size) // max(1, len(unit))
    if NUMBER not in unit:
        return unit * count
    numbered = (unit.replace(NUMBER, b"%x" % number) for number in range(count))
    return b"".join(numbered)[: max(0, size)]


def _text(source: random.Random, most: int, least: int = 0) -> bytes:
    return b"".join(source.choices(PIECES, k=source.randint(least, most)))


def _frames(unit: bytes) -> list[Body]:
    single = [Body(start, unit, end) for start, end in FRAMES.items()]
    return single + [Body(start, unit, end, first, then) for start, first, then, end in TWOFOLD]


def _framed(source: random.Random, unit: bytes) -> Body:
    return source.choice(_frames(unit))


def any_body(source: random.Random) -> Body:
    return _framed(source, _text(source, 3, least=1))


def cost(name: str, body: Body, size: int) -> float:
    """Return the nanoseconds of CPU that a byte takes."""
    data = body.of_size(size)

    def read() -> None:
        with suppress(_REFUSALS):
            READERS[name](data)

    return cpu_seconds(read) * 1e9 / size


CONTROL = Body(b"# ", b"a comment\n# ", b"\n")
ORDINARY = Body(b"[", b'"a":1,', b"1]")
SIZE = 32 << 10
_KEPT = 20
_SCREENED = 24 << 10
"""Size of the bodies that a search begins with."""
_LARGE = 60 << 10
"""Size of the bodies of :func:`main`; four times as much is within the limit of each decoder."""
_LARGEST = 512 << 10


def expected(name: str, body: Body, size: int) -> float:
    """
    Return the nanoseconds that a byte of :data:`_LARGEST` takes if the cost grows as from a fourth of a size to that size.

    So bodies whose cost grows count more than those that are only dear.
    """
    small, large = (cost(name, body, each) for each in (size // 4, size))
    return large + (large - small) * (_LARGEST - size) / (size - size // 4)


def dearest(name: str, seconds: float, source: random.Random) -> list[Body]:
    """
    Climb for a time of CPU; return the bodies that are expected to cost a decoder most, the dearest first.

    It begins with each piece in each frame, which takes some seconds.
    """
    simple = [body for piece in PIECES for body in _frames(piece)]
    first = {body: expected(name, body, _SCREENED) for body in simple}
    simple.sort(key=lambda each: first[each])
    found: dict[Body, float] = {}
    until = time.thread_time() + seconds
    while len(found) < _KEPT or time.thread_time() < until:
        if simple and source.random() < 0.5:
            body = simple.pop()
        elif len(found) < _KEPT or source.random() < 0.3:
            body = any_body(source)
        else:
            body = source.choice(list(found)).changed(source)
        if body not in found:
            found[body] = expected(name, body, _LARGE)
            if len(found) > _KEPT:
                del found[min(found, key=lambda each: found[each])]
    return sorted(found, key=lambda each: -found[each])


@cache
def _least_nanoseconds() -> float:
    """
    Return the time of an ordinary file of 24 KiB, on a machine of any speed.  What takes less grows too little to tell.

    A decoder may refuse a short body at once, and a longer one behind its first thousands of values.
    """
    return min(cost("file", ORDINARY, _SCREENED) for _ in range(3)) * _SCREENED


def assert_no_faster_than_body(name: str, body: Body, size: int = SIZE) -> None:
    """Fail if a byte of four times as much takes much more time."""
    assert_even(partial(cost, name, body), size, f"{name}, {body}", _least_nanoseconds())


def main(seconds: float) -> int:
    source, code = random.Random(), 0
    for name in READERS:
        first, *others = dearest(name, seconds / len(READERS), source)
        figures = [min(cost(name, each, _LARGE) for _ in range(3)) for each in (first, CONTROL)]
        print(f"{name}: {figures[0]:.0f} ns a byte, comments {figures[1]:.0f}: {first}", flush=True)
        # A limit of values may end what a smaller body begins.
        for body, size in product((first, *others[:4]), (_LARGE // 4, _LARGE)):
            try:
                assert_no_faster_than_body(name, body, size)
            except AssertionError as error:
                print(f"FAILED {error}", flush=True)
                code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 60))
