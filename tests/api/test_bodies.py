"""
Tests for :mod:`twisted_exec.api.bodies` and :mod:`twisted_exec.api.protobuf`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.linear import assert_linear
from twisted_exec.api import bodies, protobuf
from twisted_exec.api.status import BadRequest, RequestEntityTooLarge, UnsupportedMediaType

VECTORS = Path(__file__).parents[1] / "captures" / "protobuf-vectors.json"


def decoded(raw: bytes) -> dict[str, Any]:
    """A protobuf body, decoded."""
    return bodies.decode(protobuf.MEDIA_TYPE, raw)


class JSONTests(SynchronousTestCase):
    """JSON bodies."""

    def test_object(self) -> None:
        """A JSON object is read with any JSON media type, or without one."""
        for kind in [
            "",
            "application/json",
            "application/json; charset=utf-8",
            "application/merge-patch+json",
        ]:
            self.assertEqual(bodies.decode(kind, b'{"a": [1, null]}'), {"a": [1, None]})

    def test_unreadable(self) -> None:
        """A body that is not a JSON object is 400."""
        for raw in [
            b"",
            b"{",
            b"[]",
            b"1",
            b"\xff",
            b'{"a": NaN}',
            b"[" * 10_000,
            b'{"a":' * 70 + b"1" + b"}" * 70,
            b'{"a": ' + b"9" * 10_000 + b"}",
            b'{"a": [1e999]}',
            b'{"a": -1e999}',
            b'{"a": "\\ud800"}',
            b'{"\\udfff": 1}',
        ]:
            with self.assertRaises(BadRequest, msg=raw[:20].decode("latin-1")):
                bodies.decode("application/json", raw)

    def test_unknown_type(self) -> None:
        """An unknown content type is 415."""
        with self.assertRaises(UnsupportedMediaType):
            bodies.decode("text/plain", b"{}")


class LimitTests(SynchronousTestCase):
    """Values are counted before a body is decoded."""

    def refused(
        self, raw: bytes, content_type: str = "", limit: bodies.Limit = bodies.OBJECT
    ) -> str:
        """The message of a refusal as too large."""
        with self.assertRaises(RequestEntityTooLarge) as caught:
            bodies.decode_any(content_type, raw, limit=limit)
        return caught.exception.message

    def test_before_decoding(self) -> None:
        """A body with too many values is refused before it is parsed, even if it is invalid."""
        for value in (b"0,", b"[],", b"{},", b'"",', b'{"a":1},', b'{"a":{}},', b'["\\\\",1],'):
            message = self.refused(b"[" + value * (bodies.OBJECT.values + 1) + b"!")
            self.assertIn("more than 16384 values", message)
            self.assertIn("send less in one request", message)

    def test_exact(self) -> None:
        """As many values as allowed are accepted, and one more is not."""
        limit = bodies.Limit(1 << 20, 5)
        for most, above in (
            (b"[1,2,3,4]", b"[1,2,3,4,5]"),
            (b'{"a":{},"b":[],"c":[ ],"d":{ }}', b'{"a":{},"b":[],"c":[[]],"d":{}}'),
            (b'{"a":[{"b":{"c":1}}]}', b'{"a":[{"b":{"c":[1]}}]}'),
            (b'[",","\\"","\\\\",{}]', b'[",","\\"","\\\\",{"a":1}]'),
        ):
            bodies.decode_any("", most, limit=limit)
            self.refused(above, limit=limit)

    @given(
        st.recursive(
            st.none() | st.integers() | st.text('",[]{}\\a \n\u00e4', max_size=9),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text('",[]{}\\'), inner, max_size=3)
            ),
        ),
        st.booleans(),
        st.integers(1, 12),
    )
    def test_windows(self, value: Any, is_indented: bool, size: int) -> None:
        """The number of values does not depend on where the text is divided."""

        def number(value: Any) -> int:
            inner = value.values() if isinstance(value, dict) else value
            return 1 + (sum(map(number, inner)) if isinstance(value, dict | list) else 0)

        text = json.dumps(value, indent=1 if is_indented else None).encode()
        self.assertEqual(bodies.count_values(text, window_bytes=size), number(value))

    def test_text(self) -> None:
        """Text is one value, whatever is in it."""
        for text in (",", "[", "{", "\n", '"', '\\",', "\\", "\\\\", "\u00e4,", '{"a": [1, 2]},\n'):
            data = {"data": {"table.csv": text * (100_000 // len(text)), "b": "c"}}
            self.assertEqual(bodies.decode("", json.dumps(data).encode()), data)
            self.assertEqual(bodies.decode("", json.dumps(data, indent=2).encode()), data)

    def test_reviews(self) -> None:
        """Requests that store nothing have lower limits."""
        groups = json.dumps({"spec": {"groups": ["g"] * 3000}}).encode()
        bodies.decode("", groups)
        self.refused(groups, limit=bodies.REVIEW)
        self.refused(json.dumps({"a": "b" * 70_000}).encode(), limit=bodies.REVIEW)
        self.refused(b"a: [" + b"x," * 3000 + b"]", "application/yaml", limit=bodies.REVIEW)

    def test_protobuf(self) -> None:
        """Fields of protobuf are counted, too, in messages of any depth."""

        def field(number: int, content: bytes) -> bytes:
            return bytes([number << 3 | 2, len(content)]) + content

        kind = field(1, b"authorization.k8s.io/v1") + field(2, b"SubjectAccessReview")
        limit = bodies.Limit(1 << 20, 20)
        for count in (15, 16):  # two messages and the two fields of the kind count as well
            review = field(1, kind) + field(2, field(2, field(4, b"g") * count))
            if count == 15:
                bodies.decode(protobuf.MEDIA_TYPE, b"k8s\x00" + review, limit=limit)
            else:
                message = self.refused(b"k8s\x00" + review, protobuf.MEDIA_TYPE, limit)
                self.assertIn("more than 20 fields", message)


class YAMLTests(SynchronousTestCase):
    """YAML bodies."""

    def test_numbers(self) -> None:
        """Numbers that JSON cannot represent are refused."""
        for raw in (b"a: .nan", b"a: [.inf]", b"a: {b: -.inf}", b"a: 1.0e+999"):
            with self.assertRaises(BadRequest, msg=raw.decode()):
                bodies.decode("application/yaml", raw)

    def test_object(self) -> None:
        """Dates stay text; the rest is as JSON would have it."""
        self.assertEqual(
            bodies.decode("application/yaml", b"a: 2020-01-01\nb: {c: 1}\nd: [x, true]\n"),
            {"a": "2020-01-01", "b": {"c": 1}, "d": ["x", True]},
        )

    def test_unreadable(self) -> None:
        """A body that is not a plain YAML object is 400."""
        for raw in [
            b"- a",
            b"a: [",
            b"a: !!python/object:os.system x",
            b"1: 2",
            b"a: !!binary aGk=",
            b"a: b: c",
            b"\xff",
            b"a: 1\n---\nb: 2\n",
            b"a: !!set {x}",
            b"? [a]\n: b",
            b"a: !!int ''",
            b"a: !!bool x",
            b"a: !!timestamp x",
        ]:
            with self.assertRaises(BadRequest, msg=raw.decode("latin-1")):
                bodies.decode("application/yaml", raw)

    def test_bombs(self) -> None:
        """Aliases and masses of YAML are refused before they cost anything."""
        with self.assertRaises(BadRequest) as caught:
            bodies.decode("application/apply-patch+yaml", b"a: &x [1]\nb: [*x, *x]\n")
        self.assertIn("line 2: aliases (*) are not accepted", caught.exception.message)
        with self.assertRaises(RequestEntityTooLarge):
            bodies.decode("application/yaml", b"a: b\n" * 200_000)
        for small in (b"[],", b"{},", b"1,"):
            with self.assertRaises(RequestEntityTooLarge) as refused:
                bodies.decode("application/yaml", b"a: [" + small * 100_000 + b"]")
            self.assertIn("a JSON body may have more", refused.exception.message)


class CostTests(SynchronousTestCase):
    """The cost of a body grows no faster than its size, whether it is accepted or refused."""

    def check(self, make: Callable[[int], str], size: int, media_type: str) -> None:
        texts = {each: make(each).encode() for each in (size, 4 * size)}

        def decode(size: int) -> None:
            try:
                bodies.decode(media_type, texts[size], [])
            except (BadRequest, RequestEntityTooLarge):
                pass

        assert_linear(decode, size)

    def test_yaml(self) -> None:
        """``%TAG`` directives, numbers of base 60, and long keys that are there twice."""
        handles = ["".join(each) for each in product("abcdefghijklmnopqrstuvwxyz", repeat=3)]
        comments = "# a comment\n"
        for make in (
            lambda size: "".join(f"%TAG !{each}! a\n" for each in handles[: size // 13]) + "--- a",
            lambda size: "a: !!int '" + "1:" * (size // 2) + "1'",
            lambda size: f"? {'k' * size}\n: {{" + "a: 1, " * (size // 100) + "}",
        ):
            self.check(
                lambda size, make=make: comments * (size // 12) + make(size // 2),
                80_000,
                "application/yaml",
            )

    def test_json(self) -> None:
        """Long keys beside keys that are there twice, and text that is not ASCII."""

        def members(count: int) -> str:
            return ",".join(f'"{number}":1' for number in range(count))

        for make in (
            lambda size: f'{{"a": 1, "a": 1, "{"k" * size}": {{{members(size // 250)}}}}}',
            lambda size: '{"a": "' + "\u00e9" * size + '"}',
        ):
            self.check(make, 900_000, "application/json")

    def test_paths(self) -> None:
        """The path of a key that is there twice has a bounded length, but all steps."""
        for media_type in ("application/json", "application/yaml"):
            found: list[str] = []
            text = f'{{"{"k" * 999}": [1, {{"a": 1, "a": 2}}], "b": 1, "b": 1}}'
            bodies.decode(media_type, text.encode(), found)
            self.assertEqual({*found}, {f"{'k' * 256}[1].a", "b"})


class ProtobufTests(SynchronousTestCase):
    """Protobuf bodies from kubectl."""

    def test_captured(self) -> None:
        """Captured bodies of kubectl 1.33 decode to the objects that kubectl sent."""
        vectors = {
            vector["cmd"]: decoded(bytes.fromhex(vector["hex"]))
            for vector in json.loads(VECTORS.read_text())["vectors"]
        }
        self.assertEqual(
            vectors["kubectl auth can-i get machines"]["spec"]["resourceAttributes"],
            {
                "namespace": "default",
                "verb": "get",
                "group": "compute.example.dev",
                "resource": "machines",
            },
        )
        self.assertEqual(
            vectors["kubectl auth can-i --list"],
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectRulesReview",
                "metadata": {},
                "spec": {"namespace": "default"},
            },
        )
        self.assertEqual(vectors["kubectl auth whoami"]["kind"], "SelfSubjectReview")
        namespace = vectors["kubectl create namespace foo"]
        self.assertEqual((namespace["kind"], namespace["metadata"]["name"]), ("Namespace", "foo"))
        account = vectors["kubectl create serviceaccount x"]
        self.assertEqual((account["kind"], account["metadata"]["name"]), ("ServiceAccount", "x"))
        (request,) = (told for told in vectors.values() if told["kind"] == "TokenRequest")
        bound = {"kind": "Secret", "apiVersion": "v1", "name": "pin", "uid": "u-2"}
        self.assertEqual(
            request["spec"],
            {"audiences": ["vault"], "boundObjectRef": bound, "expirationSeconds": 1200},
        )

    def test_flags(self) -> None:
        """A false flag is omitted, unless false differs from its default."""
        head = b"\x0a\x14\x0a\x02v1\x12\x0eServiceAccount"
        raw = b"k8s\x00" + head + b"\x12\x02\x20\x00"
        self.assertIs(decoded(raw)["automountServiceAccountToken"], False)
        secret = b"k8s\x00\x0a\x0c\x0a\x02v1\x12\x06Secret\x12\x02\x28\x00"
        self.assertNotIn("immutable", decoded(secret))

    def test_event(self) -> None:
        """Numbers and timestamps of Events are decoded; a zero timestamp is omitted."""

        def field(number: int, value: bytes) -> bytes:
            return bytes([number << 3 | 2, len(value)]) + value

        moment = b"\x08" + b"\x80\xe2\xcf\xaa\x06" + b"\x10" + b"\xc0\x84\x3d"
        raw = (
            field(1, field(1, b"a"))
            + field(2, field(3, b"vm"))
            + field(6, b"")
            + field(7, moment)
            + b"\x40\x03"
            + field(11, b"\x08\x02" + field(2, moment))
        )
        told = decoded(b"k8s\x00" + field(1, field(1, b"v1") + field(2, b"Event")) + field(2, raw))
        self.assertEqual(
            told,
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": "a"},
                "involvedObject": {"name": "vm"},
                "lastTimestamp": "2023-11-14T22:13:20.001000Z",
                "count": 3,
                "series": {"count": 2, "lastObservedTime": "2023-11-14T22:13:20.001000Z"},
            },
        )
        newer = decoded(
            b"k8s\x00"
            + field(1, field(1, b"events.k8s.io/v1") + field(2, b"Event"))
            + field(2, field(2, moment) + field(8, field(3, b"vm")) + field(10, b"it runs"))
        )
        self.assertEqual((newer["regarding"], newer["note"]), ({"name": "vm"}, "it runs"))
        self.assertEqual(newer["eventTime"], "2023-11-14T22:13:20.001000Z")
        for bad in (b"\x42\x01a", field(7, b"\x08" + b"\xff" * 8 + b"\x3f"), b"\x38\x01"):
            with self.assertRaises(BadRequest):
                decoded(b"k8s\x00" + field(1, field(1, b"v1") + field(2, b"Event")) + field(2, bad))

    def test_secret(self) -> None:
        """A Secret's bytes are decoded as base64, as in JSON."""

        def field(number: int, content: bytes) -> bytes:
            return bytes([number << 3 | 2, len(content)]) + content

        message = field(2, field(1, b"key") + field(2, b"\x00\xff"))
        message += field(3, b"Opaque") + field(4, field(1, b"a") + field(2, b"b")) + b"\x28\x01"
        told = field(1, field(1, b"v1") + field(2, b"Secret")) + field(2, message)
        self.assertEqual(
            bodies.decode(protobuf.MEDIA_TYPE, b"k8s\x00" + told),
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "data": {"key": "AP8="},
                "stringData": {"a": "b"},
                "type": "Opaque",
                "immutable": True,
            },
        )

    def test_signing_request(self) -> None:
        """A CertificateSigningRequest is decoded with its approval, as kubectl sends it."""

        def field(number: int, content: bytes) -> bytes:
            return bytes([number << 3 | 2, len(content)]) + content

        spec = field(1, b"\x01") + field(5, b"any") + field(7, b"a.b/c") + b"\x40\xd8\x04"
        decided = field(1, b"Approved") + field(6, b"True") + field(4, b"\x08\x01")
        status = field(1, decided) + field(2, b"\x02")
        kind = field(1, b"certificates.k8s.io/v1") + field(2, b"CertificateSigningRequest")
        raw = b"k8s\x00" + field(1, kind) + field(2, field(2, spec) + field(3, status))
        told = bodies.decode(protobuf.MEDIA_TYPE, raw)
        self.assertEqual(
            told["spec"],
            {
                "request": "AQ==",
                "usages": ["any"],
                "signerName": "a.b/c",
                "expirationSeconds": 600,
            },
        )
        when = "1970-01-01T00:00:01Z"
        approved = {"type": "Approved", "status": "True", "lastUpdateTime": when}
        self.assertEqual(told["status"], {"conditions": [approved], "certificate": "Ag=="})

    def test_unknown_kind(self) -> None:
        """A kind without a protobuf schema is 415, and the message says to send JSON."""
        unknown = b"k8s\x00" + bytes([10, 11, 18, 9]) + b"ConfigMap"
        with self.assertRaises(UnsupportedMediaType) as caught:
            bodies.decode(protobuf.MEDIA_TYPE, unknown)
        self.assertIn("send application/json", caught.exception.message)

    @given(st.binary(max_size=64), st.integers(0, 200))
    def test_garbage(self, noise: bytes, at: int) -> None:
        """A damaged body is either decoded or refused, without any other exception."""
        good = bytes.fromhex(json.loads(VECTORS.read_text())["vectors"][0]["hex"])
        for raw in (good[:at] + noise + good[at + len(noise) :], good[:at], b"k8s\x00" + noise):
            try:
                decoded(raw)
            except (BadRequest, UnsupportedMediaType):
                pass
