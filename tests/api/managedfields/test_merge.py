"""
Tests for :mod:`twisted_exec.api.managedfields.merge`.
"""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.managedfields import fieldset, merge
from twisted_exec.api.schema import (
    anything,
    array,
    boolean,
    integer,
    mapping,
    quantity,
    string,
    struct,
)

ITEM = struct({"name": string(), "port": integer(default=80), "x": string()}, required=["name"])
SCHEMA = struct(
    {
        "text": string(),
        "number": integer(),
        "flag": boolean(),
        "size": quantity(),
        "map": mapping(string()),
        "atom": mapping(string(), atomic=True),
        "list": array(string()),
        "set": array(string(), unique=True),
        "items": array(ITEM, keys=["name"]),
        "ports": array(ITEM, keys=["name", "port"]),
        "inner": struct({"a": string(), "b": string()}),
        "free": anything(),
    }
)

WORDS = st.sampled_from("abcd")
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "text": WORDS,
        "map": st.dictionaries(WORDS, WORDS, max_size=3),
        "atom": st.dictionaries(WORDS, WORDS, max_size=2),
        "list": st.lists(WORDS, max_size=3),
        "set": st.lists(WORDS, max_size=4, unique=True),
        "items": st.lists(
            st.fixed_dictionaries({"name": WORDS}, optional={"x": WORDS}),
            max_size=4,
            unique_by=lambda item: item["name"],
        ),
        "inner": st.fixed_dictionaries({}, optional={"a": WORDS, "b": WORDS}),
        "free": st.dictionaries(WORDS, st.one_of(WORDS, st.lists(WORDS), st.just({"a": "b"}))),
    },
)


def shown(fields: fieldset.FieldSet) -> set[str]:
    return {fieldset.shown(path) for path in fieldset.paths(fields)}


class FieldSetTests(SynchronousTestCase):
    """Tests for :func:`structured.field_set`."""

    def told(self, value: Any) -> set[str]:
        return shown(merge.field_set(SCHEMA, value))

    def test_shapes(self) -> None:
        """The set has leaves, keys of maps and list items, but not the structs on the way."""
        for value, fields in [
            ({"text": "x", "inner": {"a": "y"}}, {".text", ".inner.a"}),
            ({"map": {"k": "v"}}, {".map.k"}),
            ({"atom": {"k": "v"}, "list": ["x"]}, {".atom", ".list"}),
            ({"set": ["x", "y"]}, {'.set[="x"]', '.set[="y"]'}),
            ({"items": [{"name": "n"}]}, {'.items[name="n"]', '.items[name="n"].name'}),
            ({"free": {"a": {"b": [1]}}}, {".free.a", ".free.a.b"}),
        ]:
            self.assertEqual(self.told(value), fields)

    def test_keys_by_default(self) -> None:
        """A missing merge key has its default value."""
        fields = self.told({"ports": [{"name": "n"}]})
        self.assertEqual(fields, {'.ports[name="n",port=80]', '.ports[name="n",port=80].name'})

    def test_empty_and_null(self) -> None:
        """Empty maps and nulls are in the set; empty lists are only if they are atomic."""
        value = {"map": {}, "inner": None, "set": [], "items": [], "list": [], "text": None}
        self.assertEqual(self.told(value), {".map", ".inner", ".list", ".text"})


class CompareTests(SynchronousTestCase):
    """Tests for :func:`structured.compare`."""

    def told(self, old: Any, new: Any) -> tuple[set[str], set[str], set[str]]:
        found = merge.compare(SCHEMA, old, new)
        return shown(found.added), shown(found.modified), shown(found.removed)

    def test_shapes(self) -> None:
        """Each difference has its path, and an added or removed value includes its members."""
        nothing: set[str] = set()
        for old, new, told in [
            ({"text": "a"}, {"text": "b"}, (nothing, {".text"}, nothing)),
            ({}, {"inner": {"a": "x"}}, ({".inner", ".inner.a"}, nothing, nothing)),
            ({"map": {"a": "x"}}, {"map": {"b": "x"}}, ({".map.b"}, nothing, {".map.a"})),
            ({"atom": {"a": "x"}}, {"atom": {"b": "x"}}, (nothing, {".atom"}, nothing)),
            ({"list": ["a"]}, {"list": ["a", "b"]}, (nothing, {".list"}, nothing)),
            ({"set": ["a", "b"]}, {"set": ["b", "a"]}, (nothing, nothing, nothing)),
            ({"map": {"a": "x"}}, {}, (nothing, nothing, {".map", ".map.a"})),
            ({"inner": {}}, {"inner": None}, (nothing, {".inner"}, nothing)),
            (
                {"items": [{"name": "a", "x": "1"}]},
                {"items": [{"name": "b"}, {"name": "a", "x": "2"}]},
                ({'.items[name="b"]', '.items[name="b"].name'}, {'.items[name="a"].x'}, nothing),
            ),
            (
                {"free": {"a": {"b": 1}}},
                {"free": {"a": {"b": 2}}},
                (nothing, {".free.a.b"}, nothing),
            ),
            ({"free": {"a": {"b": 1}}}, {"free": {"a": [1]}}, (nothing, {".free.a"}, nothing)),
        ]:
            self.assertEqual(self.told(old, new), told, (old, new))

    def test_items_alike(self) -> None:
        """Items with the same key are added, removed and changed together."""
        one: dict[str, Any] = {"items": [{"name": "a"}]}
        two = {"items": [{"name": "a"}, {"name": "a", "x": "1"}]}
        three = {"items": [{"name": "a"}, {"name": "a", "x": "2"}]}
        item = {'.items[name="a"]'}
        self.assertEqual(self.told(two, three), (set(), item, set()))
        self.assertEqual(self.told({"items": []}, two)[0], item)
        self.assertEqual(self.told(two, {"items": []})[2], item)
        self.assertIn('.items[name="a"]', self.told(one, two)[0])

    @given(VALUES, VALUES)
    def test_sides(self, old: Any, new: Any) -> None:
        """Comparing in the other direction swaps added and removed."""
        added, modified, removed = self.told(old, new)
        self.assertEqual(self.told(new, old), (removed, modified, added))

    @given(VALUES)
    def test_same(self, value: Any) -> None:
        """A value does not differ from its copy."""
        self.assertEqual(self.told(value, copy.deepcopy(value)), (set(), set(), set()))


class MergedTests(SynchronousTestCase):
    """Tests for :func:`structured.merged`."""

    @given(VALUES, VALUES)
    def test_what_is_applied_is_so(self, live: Any, applied: Any) -> None:
        """Every applied field has its applied value, and the arguments are unchanged."""
        before = copy.deepcopy((live, applied))
        body = merge.merged(SCHEMA, live, applied)
        self.assertEqual((live, applied), before)
        wanted = merge.field_set(SCHEMA, applied)
        changed = merge.compare(SCHEMA, applied, body)
        for fields in (changed.modified, changed.removed):
            self.assertEqual(shown(fieldset.intersection(fields, wanted)), set())

    @given(VALUES, VALUES)
    def test_nothing_is_removed(self, live: Any, applied: Any) -> None:
        """Applying removes no field."""
        body = merge.merged(SCHEMA, live, applied)
        removed = shown(merge.compare(SCHEMA, live, body).removed)
        self.assertEqual({path for path in removed if not path.startswith(".free")}, set())

    @given(VALUES)
    def test_the_same_again(self, value: Any) -> None:
        """Applying an unchanged configuration changes nothing, not even the order."""
        self.assertEqual(merge.merged(SCHEMA, value, value), value)

    def test_order(self) -> None:
        """Shared items follow the applied order; other items keep their places between them."""
        for live, applied, result in [
            ("abc", "cxa", "bcxa"),
            ("axby", "ba", "xbya"),
            ("xa", "na", "xna"),
            ("ay", "na", "nay"),
            ("x", "n", "xn"),
            ("abcd", "", "abcd"),
            ("", "ab", "ab"),
            ("abcd", "db", "acdb"),
        ]:
            body = merge.merged(SCHEMA, {"set": list(live)}, {"set": list(applied)})
            self.assertEqual("".join(body["set"]), result, (live, applied))

    def test_null(self) -> None:
        """Null replaces a leaf and leaves a map unchanged."""
        live = {"text": "a", "map": {"a": "x"}}
        body = merge.merged(SCHEMA, live, {"text": None, "map": None})
        self.assertEqual(body, {"text": None, "map": {"a": "x"}})

    def test_items_alike(self) -> None:
        """An applied item replaces all live items with the same key."""
        live = {"items": [{"name": "a", "x": "1"}, {"name": "a", "x": "2"}, {"name": "b"}]}
        body = merge.merged(SCHEMA, live, {"items": [{"name": "a"}]})
        self.assertEqual(body, {"items": [{"name": "a"}, {"name": "b"}]})


class WithoutTests(SynchronousTestCase):
    """Tests for :func:`structured.without`."""

    @given(VALUES)
    def test_everything(self, value: Any) -> None:
        """Without all its fields, a value is empty."""
        fields = merge.field_set(SCHEMA, value)
        unwanted = merge.with_named_fields(SCHEMA, fields)
        left = merge.without(SCHEMA, value, unwanted) or {}
        # Lists of nothing are in no set.
        self.assertEqual({key for key in left if left[key]}, set())

    def test_parts(self) -> None:
        """The named fields and items are removed from a copy."""
        value = {"inner": {"a": "1", "b": "2"}, "items": [{"name": "n", "x": "1"}, {"name": "o"}]}
        before = copy.deepcopy(value)
        item = fieldset.key_step({"name": "n"})
        unwanted = fieldset.made_of([("f:inner", "f:a"), ("f:items", item, "f:x")])
        self.assertEqual(
            merge.without(SCHEMA, value, unwanted),
            {"inner": {"b": "2"}, "items": [{"name": "n"}, {"name": "o"}]},
        )
        gone = fieldset.made_of([("f:items", item), ("f:inner",)])
        self.assertEqual(merge.without(SCHEMA, value, gone), {"items": [{"name": "o"}]})
        self.assertEqual(value, before)


class ProblemsTests(SynchronousTestCase):
    """Tests for :func:`structured.problems`."""

    def test_none(self) -> None:
        """A valid value has no problems; null is always valid."""
        for value in [
            {},
            {"size": "1Gi", "number": 1, "flag": True, "free": {"a": [{}]}},
            {"size": 7, "text": None, "inner": None, "items": None},
            {"items": [{"name": "a"}, {"name": "b"}]},
        ]:
            self.assertEqual(list(merge.problems(SCHEMA, value)), [], value)

    def test_told(self) -> None:
        """Errors give the path and the expected type."""
        for value, told in [
            ([], ": expected map, got []"),
            ({"text": 1}, ".text: expected string, got 1"),
            ({"number": True}, ".number: expected numeric (int or float), got true"),
            ({"flag": 1}, ".flag: expected boolean, got 1"),
            ({"size": []}, ".size: expected any scalar, got []"),
            ({"list": {}}, ".list: expected list, got {}"),
            ({"list": [1]}, ".list[0]: expected string, got 1"),
            ({"inner": {"c": 1}}, ".inner.c: field not declared in schema"),
            ({"set": ["a", "a"]}, '.set: duplicate entries for key [="a"]'),
            ({"set": [None]}, ".set: element 0: an item of a set must be a scalar"),
            (
                {"items": [{"x": "1"}]},
                ".items: element 0: associative list with keys has an element that omits key "
                'field "name" (and doesn\'t have default value)',
            ),
            ({"items": [{"name": "a", "x": 1}]}, '.items[name="a"].x: expected string, got 1'),
        ]:
            self.assertEqual(list(merge.problems(SCHEMA, value)), [told], value)
