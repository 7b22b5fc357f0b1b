"""
Tests for :mod:`twisted_exec.auth.rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.linear import assert_linear
from twisted_exec.api.status import BadRequest
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.rules import ALL_RULES, Attributes, Rule, uncovered

NOBODY = User("nobody")


def asked(what: str, name: str = "", group: str = "compute") -> Attributes:
    """``"create machines/exec"`` as attributes; a path begins with a slash."""
    verb, target = what.split()
    if target.startswith("/"):
        return Attributes(NOBODY, verb, path=target)
    resource, _, subresource = target.partition("/")
    return Attributes(
        NOBODY, verb, group, "v1", resource, subresource, namespace="default", name=name
    )


def rule(
    verbs: str,
    resources: str = "",
    *,
    groups: str = "compute",
    names: str = "",
    urls: str = "",
) -> Rule:
    return Rule(
        tuple(verbs.split()),
        tuple(groups.split(",")) if resources else (),
        tuple(resources.split()),
        tuple(names.split()),
        tuple(urls.split()),
    )


class AllowsTests(SynchronousTestCase):
    """Tests for :meth:`Rule.allows`, after Kubernetes' own tables."""

    def allows(self, given: Rule, *whats: str, name: str = "", group: str = "compute") -> None:
        for what in whats:
            self.assertTrue(given.allows(asked(what, name, group)), what)

    def refuses(self, given: Rule, *whats: str, name: str = "", group: str = "compute") -> None:
        for what in whats:
            self.assertFalse(given.allows(asked(what, name, group)), what)

    def test_exact(self) -> None:
        """Verb, group and resource must all be listed."""
        given = rule("get list", "machines")
        self.allows(given, "get machines", "list machines")
        self.refuses(given, "create machines", "get machinepools", "GET machines", "* machines")
        self.refuses(given, "get machines", group="")

    def test_subresource_is_not_its_resource(self) -> None:
        """Neither a resource nor its subresource includes the other."""
        self.refuses(rule("create", "machines"), "create machines/exec")
        self.refuses(rule("create", "machines/exec"), "create machines", "create machines/log")
        self.allows(rule("create", "machines/exec"), "create machines/exec")

    def test_every_resource_with_a_subresource(self) -> None:
        """``*/exec`` is exec of everything, and nothing else."""
        given = rule("create", "*/exec")
        self.allows(given, "create machines/exec", "create pods/exec")
        self.refuses(given, "create machines", "create machines/executor", "create exec")

    def test_stars(self) -> None:
        """``*`` as a resource includes subresources; as verb and group everything."""
        self.allows(rule("create", "*"), "create machines", "create machines/exec")
        self.allows(rule("*", "machines"), "get machines", "whatever machines")
        self.allows(rule("get", "machines", groups="*"), "get machines", group="other")
        self.refuses(rule("create", "machines/*"), "create machines/exec", "create machines")

    def test_names(self) -> None:
        """With resource names only those are allowed, and never a request without a name."""
        given = rule("get create", "machines/exec", names="vm-1 vm-2")
        self.allows(given, "create machines/exec", name="vm-1")
        self.refuses(given, "create machines/exec", name="vm-3")
        self.refuses(given, "create machines/exec", name="")
        self.refuses(rule("get", "machines", names="*"), "get machines", name="vm-1")

    def test_paths(self) -> None:
        """Paths match exactly, or by a final star."""
        given = rule("get", urls="/healthz /api/* /version/")
        self.allows(given, "get /healthz", "get /api/", "get /api/v1/x", "get /version/")
        self.refuses(given, "get /healthz/x", "get /api", "get /version", "post /healthz")
        self.allows(rule("get", urls="*"), "get /anything")
        self.allows(rule("*", urls="/healthz*"), "put /healthz/x")

    def test_paths_are_not_resources(self) -> None:
        """A rule for resources allows no path, and the reverse."""
        self.refuses(rule("*", "*", groups="*"), "get /healthz")
        self.refuses(rule("*", urls="*"), "get machines")

    def test_nothing(self) -> None:
        """A rule without verbs, groups or resources allows nothing."""
        for useless in (
            Rule(),
            Rule(("get",)),
            Rule(("get",), ("compute",)),
            Rule(("get",), (), ("machines",)),
            Rule((), ("compute",), ("machines",)),
        ):
            self.refuses(useless, "get machines", "get /healthz")


class ObjectTests(SynchronousTestCase):
    """Tests for rules as they are stored."""

    def test_round_trip(self) -> None:
        """A rule goes to JSON and back."""
        told = {
            "verbs": ["get"],
            "apiGroups": [""],
            "resources": ["pods"],
            "resourceNames": ["a"],
        }
        self.assertEqual(Rule.from_object(told).to_object(), told)
        self.assertEqual(Rule().to_object(), {"verbs": []})

    def test_odd_values(self) -> None:
        """A field that is no list of strings grants nothing."""
        for odd in ("*", None, 7, {"*": "*"}, [7, None]):
            self.assertEqual(
                Rule.from_object({"verbs": odd, "apiGroups": odd, "resources": odd}), Rule()
            )


class UncoveredTests(SynchronousTestCase):
    """Tests for :func:`uncovered`, after Kubernetes' own tables."""

    def covered(self, own: list[Rule], wanted: Rule) -> bool:
        return not uncovered(own, [wanted])

    def test_together(self) -> None:
        """Several rules may cover one together."""
        own = [rule("get", "machines"), rule("list", "machines"), rule("get list", "pools")]
        self.assertTrue(self.covered(own, rule("get list", "machines pools")))
        missing = uncovered(own, [rule("get list watch", "machines pools")])
        self.assertEqual(missing, [rule("watch", "machines"), rule("watch", "pools")])

    def test_stars(self) -> None:
        """A star covers everything; listing everything known does not cover a star."""
        self.assertTrue(self.covered([rule("*", "*", groups="*")], rule("*", "*", groups="*")))
        self.assertFalse(self.covered([rule("get list", "machines")], rule("*", "machines")))
        self.assertFalse(self.covered([rule("get", "machines pools")], rule("get", "*")))
        self.assertTrue(self.covered([rule("get", "*")], rule("get", "machines machines/exec")))

    def test_subresources(self) -> None:
        """``*/exec`` covers exec of anything; a resource covers no subresource."""
        self.assertTrue(self.covered([rule("get", "*/exec")], rule("get", "machines/exec")))
        self.assertFalse(self.covered([rule("get", "machines")], rule("get", "machines/exec")))
        self.assertFalse(self.covered([rule("get", "*/exec")], rule("get", "machines")))
        self.assertFalse(self.covered([rule("get", "machines/exec")], rule("get", "*/exec")))

    def test_names(self) -> None:
        """Some names do not cover all; all cover some."""
        some, others = rule("get", "machines", names="a b"), rule("get", "machines", names="a c")
        every = rule("get", "machines")
        self.assertTrue(self.covered([every], some))
        self.assertFalse(self.covered([some], every))
        self.assertEqual(uncovered([some], [others]), [rule("get", "machines", names="c")])

    def test_paths(self) -> None:
        """A longer prefix is covered by a shorter one."""
        own = [rule("get", urls="/api/*")]
        self.assertTrue(self.covered(own, rule("get", urls="/api/v1 /api/*")))
        self.assertFalse(self.covered(own, rule("get", urls="/apis")))
        self.assertFalse(self.covered(own, rule("get", urls="*")))

    def test_everything(self) -> None:
        """Only everything covers everything."""
        self.assertEqual(uncovered(ALL_RULES, ALL_RULES), [])
        self.assertEqual(uncovered(ALL_RULES[:1], ALL_RULES), [ALL_RULES[1]])

    def test_bomb(self) -> None:
        """A role with too many combinations is refused immediately."""
        many = tuple(f"x{number}" for number in range(1000))
        with self.assertRaises(BadRequest):
            uncovered([rule("get", "machines")], [Rule(many, many, many, many)])
        self.assertEqual(uncovered(ALL_RULES, [Rule(many, many, many, many)]), [])

    def test_too_many_rules(self) -> None:
        """... and so is a role with too many rules, even if the rules allow nothing."""
        own = [rule("get", "machines")]
        for verbs in ((), ("get",)):
            empty = [Rule(verbs, (f"g{number}",), ()) for number in range(10_001)]
            with self.assertRaises(BadRequest):
                uncovered(own, empty)
            self.assertEqual(uncovered(own, empty[:5000]), [])

    def test_linear(self) -> None:
        """Thousands of rules are compared with thousands in linear time."""
        shapes: tuple[Callable[[list[str]], list[Rule]], ...] = (
            lambda values: [rule("get", each) for each in values],
            lambda values: [rule("get", " ".join(values))],
            lambda values: [rule("get", "machines", groups=each) for each in values],
            lambda values: [rule("get", "machines", names=each) for each in values],
            lambda values: [rule(each, "machines") for each in values],
            lambda values: [rule("get", urls=" ".join(f"/{each}" for each in values))],
        )
        for number, shape in enumerate(shapes):

            def check(size: int, shape: Callable[[list[str]], list[Rule]] = shape) -> None:
                values = [f"x{each}" for each in range(size)]
                own, required = shape(values), shape(values[::-1])
                self.assertEqual(uncovered([*own, *ALL_RULES], required), [])

            assert_linear(check, 800, number)

    def test_many_comparisons(self) -> None:
        """Rules that must be compared too often are refused."""
        verbs = ("get", "list")
        own = [rule(verb, "machines", names=f"n{i} z") for verb in verbs for i in range(2000)]
        required = [
            Rule(verbs, ("compute",), ("machines",), ("z",) * times) for times in range(1, 90)
        ]
        with self.assertRaisesRegex(BadRequest, "comparisons"):
            uncovered(own, required)


VERBS = st.lists(st.sampled_from(["get", "create", "*"]), max_size=2)
GROUPS = st.lists(st.sampled_from(["", "compute", "*"]), max_size=2)
RESOURCES = st.lists(
    st.sampled_from(["machines", "machines/exec", "pools/exec", "*/exec", "*", "machines/*"]),
    max_size=2,
)
NAMES = st.lists(st.sampled_from(["a", "b"]), max_size=2)
URLS = st.lists(st.sampled_from(["/a", "/a/*", "/a/b", "/*", "*"]), max_size=2)
RULES = st.builds(lambda *parts: Rule(*map(tuple, parts)), VERBS, GROUPS, RESOURCES, NAMES, URLS)
ASKED = st.one_of(
    st.builds(
        lambda verb, group, resource, subresource, name: Attributes(
            NOBODY, verb, group, "v1", resource, subresource, "default", name
        ),
        st.sampled_from(["get", "create", "delete"]),
        st.sampled_from(["", "compute", "other"]),
        st.sampled_from(["machines", "pools", "exec"]),
        st.sampled_from(["", "exec", "log"]),
        st.sampled_from(["", "a", "b", "c"]),
    ),
    st.builds(
        lambda verb, path: Attributes(NOBODY, verb, path=path),
        st.sampled_from(["get", "create"]),
        st.sampled_from(["/", "/a", "/a/", "/a/b", "/a/b/c", "/b"]),
    ),
)


def naive(given: Rule, what: Attributes) -> bool:
    """The same question, answered by enumerating what the rule spells out."""
    if not any(verb in ("*", what.verb) for verb in given.verbs):
        return False
    if what.path:
        return any(
            what.path == url or (url[-1] == "*" and what.path.startswith(url[:-1]))
            for url in given.non_resource_urls
        )
    if not any(group in ("*", what.group) for group in given.api_groups):
        return False
    if given.resource_names and what.name not in given.resource_names:
        return False
    full = what.resource + ("/" + what.subresource if what.subresource else "")
    spelled = {"*", full}
    if what.subresource:
        spelled.add("*/" + what.subresource)
    return bool(spelled & set(given.resources))


class ModelTests(SynchronousTestCase):
    """Matching and covering against a model."""

    @given(RULES, ASKED)
    def test_allows(self, given_rule: Rule, what: Attributes) -> None:
        """Matching agrees with the naive model."""
        self.assertEqual(given_rule.allows(what), naive(given_rule, what))

    @given(st.lists(RULES, max_size=3), RULES, ASKED)
    def test_covered_means_allowed(self, own: list[Rule], wanted: Rule, what: Attributes) -> None:
        """Covered rules allow nothing more than the covering ones: no escalation."""
        assume(not uncovered(own, [wanted]))
        if wanted.allows(what):
            self.assertTrue(any(mine.allows(what) for mine in own))

    @given(RULES, ASKED)
    def test_combinations(self, given_rule: Rule, what: Attributes) -> None:
        """A rule allows the same as its combinations together, and ``size`` is their number."""
        atoms = list(given_rule.combinations())
        self.assertEqual(len(atoms), given_rule.size())
        self.assertEqual(given_rule.allows(what), any(each.allows(what) for each in atoms))

    @given(RULES)
    def test_own(self, given_rule: Rule) -> None:
        """Everyone covers what they have."""
        self.assertEqual(uncovered([given_rule], [replace(given_rule)]), [])
