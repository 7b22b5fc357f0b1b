"""
Tests for :mod:`twisted_exec.api.patch`.
"""

from __future__ import annotations

import copy
import json
import time
import timeit
from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api import bodies, patch
from twisted_exec.api.schema import array, integer, string, struct
from twisted_exec.api.status import APIError, BadRequest, RequestEntityTooLarge

from .counted import Counted, counted


class MergeTests(SynchronousTestCase):
    """RFC 7386."""

    def test_appendix(self) -> None:
        """The examples of the RFC's appendix A."""
        for target, change, result in [
            ({"a": "b"}, {"a": "c"}, {"a": "c"}),
            ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
            ({"a": "b"}, {"a": None}, {}),
            ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
            ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
            ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
            ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
            ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
            (["a", "b"], ["c", "d"], ["c", "d"]),
            ({"a": "b"}, ["c"], ["c"]),
            ({"a": "foo"}, None, None),
            ({"a": "foo"}, "bar", "bar"),
            ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
            ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
            ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ]:
            before = copy.deepcopy(target)
            self.assertEqual(patch.merge(target, change), result)
            self.assertEqual(target, before)


KEYED = struct(
    {
        "l": array(
            struct(
                {
                    "name": string(),
                    "in": array(struct({"k": integer()}), keys=["k"]),
                }
            ),
            keys=["name"],
        ),
        "o": array(integer()),
    }
)


class StrategicTests(SynchronousTestCase):
    """Strategic merge patches, as kubectl sends them."""

    def test_as_merge(self) -> None:
        """Objects merge, null removes, lists replace."""
        self.assertEqual(
            patch.strategic({"a": {"b": 1, "c": 2}, "l": [1]}, {"a": {"b": None}, "l": [2]}),
            {"a": {"c": 2}, "l": [2]},
        )

    def test_finalizers(self) -> None:
        """Finalizers are added and removed one by one."""
        target = {"metadata": {"finalizers": ["a/x", "b/y"]}}
        change: dict[str, Any] = {
            "metadata": {
                "$setElementOrder/finalizers": ["b/y", "c/z"],
                "$deleteFromPrimitiveList/finalizers": ["a/x"],
                "finalizers": ["c/z"],
            }
        }
        self.assertEqual(
            patch.strategic(target, change), {"metadata": {"finalizers": ["b/y", "c/z"]}}
        )

    def test_many_finalizers(self) -> None:
        """The number of comparisons grows linearly with the number of finalizers."""
        finalizers = counted("a/x", 1000)
        change: dict[str, Any] = {"finalizers": [*map(str, finalizers), "b/y"]}
        self.assertEqual(
            patch.strategic({"finalizers": finalizers}, change)["finalizers"], [*finalizers, "b/y"]
        )
        gone = {"$deleteFromPrimitiveList/finalizers": [f"c/{each}" for each in finalizers]}
        self.assertEqual(
            patch.strategic({"finalizers": finalizers}, gone)["finalizers"], finalizers
        )
        self.assertLess(Counted.compared, 10_000)

    def test_no_scalars(self) -> None:
        """
        Items that are not scalars are always appended and never deleted; the schema refuses them.
        """
        odd = {"finalizers": [{}, ["a/x"]]}
        self.assertEqual(
            patch.strategic({"finalizers": ["a/x"]}, odd)["finalizers"], ["a/x", {}, ["a/x"]]
        )
        gone = {"$deleteFromPrimitiveList/finalizers": [{}, "a/x"]}
        self.assertEqual(patch.strategic(odd, gone), odd)

    def test_replace(self) -> None:
        """A part can be replaced as a whole."""
        self.assertEqual(
            patch.strategic({"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 2}}), {"a": {"c": 2}}
        )

    def test_items(self) -> None:
        """Items that have a key are merged, added and taken away one by one, in their order."""
        target = {"l": [{"name": "a", "x": 1, "in": [{"k": 1, "v": 1}]}, {"name": "b"}], "o": [1]}
        change = {
            "$setElementOrder/l": [{"name": "c"}, {"name": "a"}],
            "l": [
                {"name": "c"},
                {"name": "a", "y": 2, "in": [{"k": 2}]},
                {"name": "b", "$patch": "delete"},
            ],
            "o": [2],
        }
        found = patch.strategic(target, change, KEYED)
        merged = {"name": "a", "x": 1, "in": [{"k": 1, "v": 1}, {"k": 2}], "y": 2}
        self.assertEqual(found, {"l": [merged, {"name": "c"}], "o": [2]})

    def test_items_replaced(self) -> None:
        """A list with keys can still be replaced as a whole."""
        change = {"l": [{"$patch": "replace"}, {"name": "c"}]}
        found = patch.strategic({"l": [{"name": "a"}]}, change, KEYED)
        self.assertEqual(found, {"l": [{"name": "c"}]})

    def test_items_without_keys(self) -> None:
        """An item without a usable merge key is refused."""
        for item in ({}, "a", {"name": None}, {"name": {}}, ["name"]):
            with self.assertRaises(BadRequest):
                patch.strategic({"l": []}, {"l": [item]}, KEYED)

    def test_unknown_directives(self) -> None:
        """An unsupported directive is refused, never stored."""
        for change in [{"$patch": "delete"}, {"a": {"$unheard": 1}}]:
            with self.assertRaises(BadRequest):
                patch.strategic({}, change)


class JSONPatchTests(SynchronousTestCase):
    """RFC 6902."""

    def test_operations(self) -> None:
        """Operations apply in order, and the target stays as it is."""
        target = {"a": [1, 2], "b": {"c": 3}}
        before = copy.deepcopy(target)
        result = patch.json_patch(
            target,
            [
                {"op": "test", "path": "/b/c", "value": 3},
                {"op": "add", "path": "/a/-", "value": 4},
                {"op": "replace", "path": "/b/c", "value": 5},
                {"op": "copy", "from": "/b", "path": "/d"},
                {"op": "remove", "path": "/a/0"},
                {"op": "move", "from": "/b/c", "path": "/e"},
            ],
        )
        self.assertEqual(result, {"a": [2, 4], "b": {}, "d": {"c": 5}, "e": 5})
        self.assertEqual(target, before)

    def test_not_applicable(self) -> None:
        """An operation that cannot be applied is 422."""
        for operation in [
            {"op": "test", "path": "/a", "value": 2},
            {"op": "remove", "path": "/b"},
            {"op": "replace", "path": "/a/b/c", "value": 1},
            {"op": "add", "path": "/l/x", "value": 1},
            {"op": "add", "path": "/l/9", "value": 1},
            {"op": "copy", "from": "/zz", "path": "/b"},
            {"op": "copy", "from": "/l/-", "path": "/b"},
            {"op": "add", "path": "a", "value": 1},
        ]:
            with self.assertRaises(APIError, msg=str(operation)) as caught:
                patch.json_patch({"a": 1, "l": []}, [operation])
            self.assertIn(caught.exception.code, (400, 422), operation)

    def test_not_a_patch(self) -> None:
        """A JSON patch that is not a list of operations is 400."""
        for operations in [
            {},
            None,
            [1],
            ["x"],
        ]:
            with self.assertRaises(BadRequest, msg=str(operations)):
                patch.json_patch({"a": 1}, operations)

    def test_operations_that_are_none(self) -> None:
        """An unknown or incomplete operation is 422, and the message names it."""
        for operation, told in [
            ({"op": "explode", "path": "/a"}, 'operation 1 of the JSON patch ("explode" "/a")'),
            ({"op": "add"}, "Operation must have a 'path' member"),
            ({}, "Operation does not contain 'op' member"),
        ]:
            good = {"op": "test", "path": "/a", "value": 1}
            with self.assertRaises(APIError) as caught:
                patch.json_patch({"a": 1}, [good, operation])
            self.assertEqual(caught.exception.code, 422)
            self.assertIn(told, caught.exception.message)

    def test_lenient(self) -> None:
        """As in kube-apiserver, replace sets a missing member, and a missing value is null."""
        for operation, result in [
            ({"op": "replace", "path": "/o/b", "value": 2}, {"o": {"b": 2}}),
            ({"op": "replace", "path": "/o", "value": 2}, {"o": 2}),
            ({"op": "add", "path": "/n"}, {"o": {}, "n": None}),
        ]:
            self.assertEqual(patch.json_patch({"o": {}}, [operation]), result)

    def test_no_python(self) -> None:
        """Error messages contain neither values nor Python types."""
        for operation in [
            {"op": "test", "path": "/a", "value": "b"},
            {"op": "remove", "path": "/b"},
            {"op": "copy", "from": "/zz", "path": "/b"},
        ]:
            with self.assertRaises(APIError) as caught:
                patch.json_patch({"a": "secret"}, [operation])
            self.assertNotIn("secret", caught.exception.message)
            self.assertNotIn("class", caught.exception.message)

    def test_bomb(self) -> None:
        """Copying a document into itself again and again is stopped."""
        bomb = [{"op": "copy", "from": "", "path": f"/k{turn}"} for turn in range(100)]
        with self.assertRaises(RequestEntityTooLarge):
            patch.json_patch({"a": "x" * 1000}, bomb)

    def test_copied_values(self) -> None:
        """Copies are counted before they are made, in values as in bytes."""
        source = {"a": [0] * 100, "b": {}}
        copies = [{"op": "copy", "from": "/a", "path": f"/b/{turn}"} for turn in range(900)]
        with self.assertRaises(RequestEntityTooLarge) as caught:
            patch.json_patch(source, copies)
        self.assertIn("copies more than 16384 values", caught.exception.message)
        self.assertEqual(len(patch.json_patch(source, copies[:160])["b"]), 160)

    def test_long_paths(self) -> None:
        """Paths deeper than an object may be are refused, because following many takes seconds."""
        deep = [{"op": "add", "path": "/a" * steps, "value": {}} for steps in range(1, 200)]
        with self.assertRaises(APIError) as caught:
            patch.json_patch({}, deep)
        self.assertEqual(caught.exception.code, 422)
        self.assertIn("operation 64 of the JSON patch", caught.exception.message)

    def test_too_deep(self) -> None:
        """Moves and copies cannot nest an object deeper than a request body may be."""
        down = "/a" * 60
        for kind, rounds in (("move", 2), ("move", 100), ("copy", 2), ("copy", 12)):
            nest = [{"op": "add", "path": "/a" * n, "value": {}} for n in range(1, 61)]
            steps = [{"op": "add", "path": "/b", "value": {}}, *nest]
            for _ in range(rounds):
                steps += [
                    {"op": kind, "from": "/b", "path": f"{down}/b"},
                    {"op": kind, "from": "/a", "path": "/b"},
                    {"op": "add", "path": "/a", "value": {}},
                    *nest[1:],
                ]
            with self.assertRaises(APIError) as caught:
                patch.json_patch({}, steps)
            self.assertIn(caught.exception.code, (400, 413, 422))

    def test_too_many(self) -> None:
        """The number of operations is bounded."""
        with self.assertRaises(RequestEntityTooLarge):
            patch.json_patch({}, [{"op": "add", "path": "/a", "value": 1}] * 10_001)


OLD: dict[str, Any] = {"metadata": {"name": "m"}, "spec": {"a": 1}}


class ReaderTests(SynchronousTestCase):
    """Bodies of patches, for :func:`patch.reader`."""

    def refusal(self, media_type: str, raw: bytes) -> APIError:
        with self.assertRaises(APIError) as caught:
            patch.reader(media_type, raw)(OLD)
        return caught.exception

    def test_patches(self) -> None:
        """Each media type is carried out its own way."""
        for media_type, raw, spec in [
            (patch.MERGE, b'{"spec": {"a": null, "b": 2}}', {"b": 2}),
            (patch.STRATEGIC, b'{"spec": {"$patch": "replace", "c": 3}}', {"c": 3}),
            (patch.JSON, b'[{"op": "remove", "path": "/spec/a"}]', {}),
        ]:
            self.assertEqual(patch.reader(media_type, raw)(OLD)["spec"], spec)

    def test_unreadable(self) -> None:
        """A body that is not JSON, or not a patch, is 400."""
        for media_type in (patch.MERGE, patch.STRATEGIC, patch.JSON):
            for raw in (b"", b"{", b"7", b"null", b"{} x", b'"x"'):
                error = self.refusal(media_type, raw)
                self.assertEqual(error.code, 400, (media_type, raw))
                self.assertTrue(error.message.startswith("error decoding patch: "), error.message)

    def test_nothing_left(self) -> None:
        """A patch that leaves no object is 422; one that removes the name is 400."""
        self.assertEqual(
            self.refusal(patch.JSON, b'[{"op": "replace", "path": "", "value": []}]').code, 422
        )
        error = self.refusal(patch.MERGE, b'{"metadata": null}')
        self.assertEqual(
            (error.code, error.message),
            (
                400,
                "the name of the object (m based on URL) was undeterminable: name must be provided",
            ),
        )

    def test_duplicates(self) -> None:
        """A duplicate field is reported once, however often the patch is retried."""
        duplicates: list[str] = []
        patched = patch.reader(patch.MERGE, b'{"spec": {"a": 1, "a": 2}}', duplicates)
        for _ in range(2):
            self.assertEqual(patched(OLD)["spec"], {"a": 2})
        self.assertEqual(duplicates, ["spec.a"])

    def test_once(self) -> None:
        """A patch is decoded once, and applied to any object, again and again."""
        duplicates: list[str] = []
        operations = [
            {"op": "add", "path": "/spec/b", "value": {"c": []}},
            {"op": "add", "path": "/spec/b/c/-", "value": 1},
        ]
        make = patch.reader(patch.JSON, json.dumps(operations).encode(), duplicates)
        for _ in range(2):
            self.assertEqual(make(OLD)["spec"]["b"], {"c": [1]})
        with self.assertRaises(BadRequest):
            patch.reader(patch.MERGE, b"{")

    def test_failed_once(self) -> None:
        """A configuration that is no YAML is parsed once, and so is one that is JSON."""
        rest = "# a comment\n" * 40_000
        for text in (f"{rest}a: b: c", '{"a": "' + "b" * 400_000 + '"}'):
            parsed = self.cost(lambda text=text: patch.configuration(text.encode()))
            once = self.cost(lambda text=text: bodies.decode(patch.APPLY, text.encode()))
            self.assertLess(parsed, 1.6 * once)

    def cost(self, work: Callable[[], object]) -> float:
        def run() -> None:
            try:
                work()
            except BadRequest:
                pass

        return min(timeit.repeat(run, timer=time.thread_time, number=1, repeat=9))

    def test_configurations(self) -> None:
        """The body of an apply is YAML or JSON; an empty body is an empty configuration."""
        for raw in (b"spec: {a: 1}", b'{"spec": {"a": 1}}'):
            self.assertEqual(patch.configuration(raw), {"spec": {"a": 1}})
        for raw in (b"", b"null", b"{}"):
            self.assertEqual(patch.configuration(raw), {})
        large = {"a": ["x" * 100] * 9000}
        self.assertEqual(patch.configuration(json.dumps(large).encode()), large)
        text = "," * 20_000  # one value, and no quotes that would say so
        self.assertEqual(patch.configuration(b"a: |\n  " + text.encode()), {"a": text})
        duplicates: list[str] = []
        self.assertEqual(patch.configuration(b"{a: 1, a: 2}", duplicates), {"a": 2})
        self.assertEqual(duplicates, ["a"])
        for raw in (b"[]", b"7", b"a: ["):
            with self.assertRaises(BadRequest) as caught:
                patch.configuration(raw)
            self.assertTrue(caught.exception.message.startswith("error decoding YAML: "))
