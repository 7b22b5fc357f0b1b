"""
Tests for :mod:`twisted_exec.api.schema`.
"""

from __future__ import annotations

from functools import partial

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api import schema

SCHEMA = schema.struct(
    {
        "name": schema.string(pattern="[a-z]+"),
        "power": schema.string(enum=["On", "Off"], default="On"),
        "port": schema.integer(minimum=1, maximum=10),
        "flag": schema.boolean(),
        "labels": schema.mapping(schema.string()),
        "items": schema.array(schema.struct({"size": schema.quantity()}, required=["size"])),
        "free": schema.anything(),
    },
    required=["name"],
)


class CheckTests(SynchronousTestCase):
    """Tests for :func:`schema.check`."""

    def told(self, value: object) -> list[tuple[str, str]]:
        return [(cause["field"], cause["message"]) for cause in schema.check(SCHEMA, value)]

    def test_good(self) -> None:
        """A valid value has no causes."""
        self.assertEqual(
            self.told(
                {
                    "name": "a",
                    "power": "Off",
                    "port": 3,
                    "flag": True,
                    "labels": {"a": "b"},
                    "items": [{"size": "1Gi"}, {"size": 5}],
                    "free": {"any": [1, {"thing": None}]},
                }
            ),
            [],
        )

    def test_types(self) -> None:
        """Each value of a wrong type is reported with its path."""
        self.assertEqual(
            self.told(
                {"name": 1, "port": True, "flag": 0, "labels": {"a": 1}, "items": [{"size": []}, 1]}
            ),
            [
                (
                    "name",
                    'Invalid value: "integer": name in body must be of type string: "integer"',
                ),
                (
                    "port",
                    'Invalid value: "boolean": port in body must be of type integer: "boolean"',
                ),
                (
                    "flag",
                    'Invalid value: "integer": flag in body must be of type boolean: "integer"',
                ),
                (
                    "labels[a]",
                    'Invalid value: "integer": labels[a] in body must be of type string: "integer"',
                ),
                (
                    "items[0].size",
                    'Invalid value: "array": items[0].size in body must be of type string: "array"',
                ),
                (
                    "items[1]",
                    'Invalid value: "integer": items[1] in body must be of type object: "integer"',
                ),
            ],
        )

    def test_values(self) -> None:
        """Missing fields, unsupported values and exceeded limits are reported."""
        self.assertEqual(
            self.told({"power": "Maybe", "port": 11}),
            [
                ("name", "Required value"),
                ("power", 'Unsupported value: "Maybe": supported values: "Off", "On"'),
                ("port", "Invalid value: 11: must be less than or equal to 10"),
            ],
        )
        self.assertEqual(len(self.told({"name": "A", "port": 0})), 2)

    def test_length(self) -> None:
        """The length of a string counts characters."""
        text = schema.string("", maxLength=2)
        self.assertEqual(schema.check(text, "\u00e9\u00e9", "x"), [])
        (cause,) = schema.check(text, "abc", "x")
        self.assertEqual(cause["message"], "Too long: may not be more than 2 characters")

    def test_counts(self) -> None:
        """Lists and objects with too few or too many members are reported."""
        words = schema.array(schema.string(), minItems=1, maxItems=2)
        pairs = schema.mapping(schema.string(), maxProperties=1)
        for bounded, value, expected in (
            (words, ["a"], []),
            (words, [], ["Invalid value: 0: x in body should have at least 1 items"]),
            (words, ["a", "b", "c"], ["Too many: 3: must have at most 2 items"]),
            (pairs, {"a": "b"}, []),
            (pairs, {"a": "b", "c": "d"}, ["Too many: 2: must have at most 1 items"]),
        ):
            found = [cause["message"] for cause in schema.check(bounded, value, "x")]
            self.assertEqual(found, expected)

    def test_duplicates(self) -> None:
        """Each repeated value of a set of scalars is reported once, unless the set allows it."""
        words = schema.array(schema.string(), unique=True)
        found = [
            (cause["field"], cause["message"])
            for cause in schema.check(words, ["a", "b", "a", "b", "a"], "x")
        ]
        self.assertEqual(
            found,
            [
                ("x[2]", 'Duplicate value: "a"'),
                ("x[3]", 'Duplicate value: "b"'),
            ],
        )
        reasons = [cause["reason"] for cause in schema.check(words, [{}, {}, [], []], "x")]
        self.assertNotIn("FieldValueDuplicate", reasons)
        lax = schema.array(schema.string(), unique=True, uniqueItems=False)
        self.assertEqual(schema.check(lax, ["a", "a"]), [])

    def test_bounded(self) -> None:
        """At most 32 causes are reported."""
        self.assertEqual(len(self.told({"name": "a", "items": [1] * 1000})), 32)


class KeywordTests(SynchronousTestCase):
    """Keywords of the functions that return schemas."""

    def test_unknown(self) -> None:
        """A keyword that the check would ignore is refused where the schema is defined."""
        for make, keyword in (
            (schema.string, "minimum"),
            (schema.integer, "maxLength"),
            (schema.boolean, "enum"),
            (partial(schema.array, schema.string()), "max_items"),
            (partial(schema.mapping, schema.string()), "minProperties"),
        ):
            with self.assertRaisesRegex(TypeError, f"no keyword {keyword}; "):
                make(**{keyword: 1})

    def test_known(self) -> None:
        """A default is possible for every type with keywords."""
        flag = schema.boolean("flag is a flag.", default=False)
        self.assertEqual(
            flag, {"type": "boolean", "default": False, "description": "flag is a flag."}
        )
        listed = schema.struct({"x": schema.array(schema.string(), default=["a"]), "y": flag})
        value: dict[str, object] = {}
        schema.set_defaults(listed, value)
        self.assertEqual(value, {"x": ["a"], "y": False})


class ShapeTests(SynchronousTestCase):
    """Pruning and defaulting."""

    def test_pruned(self) -> None:
        """
        Unknown fields and nulls are pruned, except in free-form parts; the argument is unchanged.
        """
        value = {
            "name": "a",
            "odd": 1,
            "flag": None,
            "items": [{"size": 1, "odd": 2}],
            "free": {"b": 1},
        }
        before = repr(value)
        self.assertEqual(
            schema.pruned(SCHEMA, value),
            {"name": "a", "items": [{"size": 1}], "free": {"b": 1}},
        )
        self.assertEqual(repr(value), before)

    def test_unknown(self) -> None:
        """Unknown fields are reported by path."""
        value = {"odd": 1, "items": [{"odd": 2}], "labels": {"fine": "x"}, "free": {"fine": 1}}
        self.assertEqual(list(schema.unknown_fields(SCHEMA, value)), ["odd", "items[0].odd"])

    def test_defaults(self) -> None:
        """A missing field with a default is set."""
        value: dict[str, object] = {"name": "a"}
        schema.set_defaults(SCHEMA, value)
        self.assertEqual(value, {"name": "a", "power": "On"})
