"""
Tests for :mod:`twisted_exec.apiserver.consoles.policies` and
:mod:`twisted_exec.apiserver.consoles.policy_evaluation`, with the store of a whole server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ClassVar
from unittest import skipUnless

from tests.apiserver.consoles.policies_support import COMPUTE, POLICIES, REQUESTS, PolicyTestCase
from tests.apiserver.support import EPOCH, MACHINES, MERGE
from tests.retained import entries
from twisted_exec.api import patterns
from twisted_exec.api.dialects import DEFAULT
from twisted_exec.api.kinds import CONSOLEPOLICIES, Object
from twisted_exec.api.kinds.consolepolicies import POLICY_REQUIRED
from twisted_exec.api.status import Forbidden, ServiceUnavailable
from twisted_exec.api.users import User
from twisted_exec.apiserver.consoles.policies import ConsolePolicies
from twisted_exec.apiserver.interfaces import Applicant
from twisted_exec.auth.rules import Attributes
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.wire.session_terms import Right, Terms

OPEN = "kubectl console --reason TICKET -n default vm-1"
ASK = "kubectl console --request --reason TICKET -n default vm-1"
BOT = "agent:jane:bot"
JANE = User("jane")
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


class SubjectsTests(PolicyTestCase):
    """Policies for some users."""

    on_call: ClassVar[list[Object]] = [{"kind": "Group", "name": "on-call"}]
    robot = "system:serviceaccount:default:robot"

    def user(self, name: str, *groups: str, **more: Any) -> Applicant:
        return replace(self.applicant(**more), user=User(name, groups))

    def test_bound(self) -> None:
        """A policy restricts its users, the members of its groups and its ServiceAccounts, and nobody else."""
        account = {"kind": "ServiceAccount", "namespace": "default", "name": "robot"}
        made = self.make_policy(
            subjects=[*self.on_call, {"kind": "User", "name": "eve"}, account], idleSeconds=60
        )
        self.assertEqual(made["spec"]["subjects"][0]["apiGroup"], "rbac.authorization.k8s.io")
        for applicant, seconds in (
            (self.user("eve"), 60),
            (self.user("dan", "others", "on-call"), 60),
            (self.user(self.robot), 60),
            (self.user("on-call", "eve"), 0),
            (self.user("jane"), 0),
        ):
            self.assertEqual(self.opened(applicant).idle_seconds, seconds, applicant.user)
            self.assertEqual(self.reviewed(applicant).idle_seconds, seconds, applicant.user)

    def test_change(self) -> None:
        """Other subjects count for open sessions, too."""
        made = self.make_policy(subjects=self.on_call, reason="Required")
        self.assertEqual(self.reviewed(), Terms(Right.DRIVE))
        made["spec"]["subjects"] = [{"kind": "User", "name": "jane"}]
        self.answer("PUT", f"{POLICIES}/p", made)
        self.assertIn("requires a reason", self.ended())

    def test_request(self) -> None:
        """A request needs a reason only of users whom the policy restricts."""
        self.make_policy(subjects=[{"kind": "User", "name": "bob"}], reason="Required")
        self.request()
        body = {"metadata": {"name": "s"}, "spec": {"machine": "vm-1"}}
        refused = self.answer("POST", REQUESTS, body, user="bob", code=403)
        self.assertIn("requires a reason", refused["message"])

    def test_strict(self) -> None:
        """Verbs are strict for these users alone, also in an access review."""
        self.make_policy(subjects=[{"kind": "User", "name": "jane"}], verbs="Strict")
        self.assertTrue(self.policies.is_strict(self.machine, JANE))
        self.assertFalse(self.policies.is_strict(self.machine, User("dan")))
        self.assertTrue(self.policies.strictness("default", JANE).strict)
        self.assertFalse(self.policies.strictness("default", User("dan")).strict)

    def test_recording(self) -> None:
        """A recording is demanded of these users alone."""
        self.make_policy(subjects=self.on_call, recording={})
        self.assertIsNone(self.policies.recording_demand(self.machine, JANE, Right.DRIVE))
        member = User("dan", ("on-call",))
        self.assertIsNotNone(self.policies.recording_demand(self.machine, member, Right.DRIVE))

    def test_others_as_people(self) -> None:
        """A program, and an impersonated user, cannot pass for the second person of a user who needs one."""
        self.make_policy(subjects=self.on_call, people=2)
        self.assertEqual(self.opened().people, 1)
        self.assertIn("is not a person", self.not_opened(self.user(self.robot)))
        for applicant in (self.user("dan", caller="eve"), self.user(self.robot)):
            self.assertIn("people at this console", self.ended(applicant))

    def test_unusable(self) -> None:
        """A policy that this server cannot evaluate refuses everybody, whoever its subjects are."""
        made = self.make_policy(subjects=self.on_call)
        selector = {"matchExpressions": [{"key": "tier", "operator": "Near", "values": ["x"]}]}
        stored = {**made, "spec": {**made["spec"], "selector": selector}}
        self.successResultOf(self.storage.update(CONSOLEPOLICIES.resource, stored))
        self.assertIn("cannot be evaluated", self.not_opened())

    def test_labels(self) -> None:
        """A user whom a policy does not restrict needs the right to update it, too, to take a machine out of it."""
        self.make_policy(subjects=self.on_call, selector={"matchLabels": {"tier": "gold"}})
        self.label(tier="gold")
        refused = self.label("jane", 403, tier=None)
        self.assertIn('ConsolePolicy "default/p" would not apply', refused["message"])

    def test_table(self) -> None:
        """kubectl get shows the subjects."""
        self.make_policy(subjects=[*self.on_call, {"kind": "User", "name": "eve"}])
        self.make_policy("q")
        table = self.answer("GET", POLICIES, headers=[("Accept", TABLE)])
        cells = [row["cells"][2] for row in table["rows"]]
        self.assertEqual(cells, ["on-call,eve", "<all>"])


class TermsTests(PolicyTestCase):
    """The terms of sessions."""

    def test_none(self) -> None:
        """Without a policy the user has the right that they want."""
        for right in Right:
            self.assertEqual(self.opened(right=right), Terms(right=right))

    def test_selected(self) -> None:
        """A policy applies to the machines that it selects, and to others without it not."""
        self.make_policy(selector={"matchLabels": {"tier": "gold"}}, idleSeconds=60)
        self.assertEqual(self.opened(), Terms(Right.DRIVE))
        self.label(tier="gold")
        expected = Terms(Right.DRIVE, idle_seconds=60, policy="default/p")
        self.assertEqual(self.opened(), expected)
        self.assertEqual(self.reviewed(), expected)

    def test_input(self) -> None:
        """A policy limits the rate of the input, and has its users yield to people."""
        self.make_policy(inputBytesPerSecond=50, yieldsToPeople=True)
        self.make_policy("q", inputBytesPerSecond=40)
        terms = self.opened()
        self.assertEqual((terms.input_rate, terms.yields), (40, True))
        self.assertEqual(terms.policy_of("input_rate"), "default/q")
        self.assertEqual(terms.policy_of("yields"), "default/p")

    def test_agents_yield(self) -> None:
        """An agent yields to people under each policy."""
        self.make_policy(idleSeconds=60, subjects=[{"kind": "User", "name": BOT}])
        agent = self.applicant(BOT)
        self.assertTrue(self.opened(agent).yields)
        self.assertTrue(self.reviewed(agent).yields)
        self.assertFalse(self.opened().yields)

    def test_agent_without_policy(self) -> None:
        """Without a policy with subjects that cover it, an agent observes, and nobody else is restricted."""
        self.make_policy("all", idleSeconds=60)
        self.make_policy("others", subjects=[{"kind": "User", "name": "agent:jane:other"}])
        gold = {"matchLabels": {"tier": "gold"}}
        self.make_policy("gold", selector=gold, subjects=[{"kind": "Group", "name": "agents"}])
        agent = Applicant(User(BOT, ("agents",)), "s-1", self.clock.seconds())
        message = self.not_opened(agent)
        self.assertIn(
            f'agent "{BOT}" may only observe where no ConsolePolicy with subjects', message
        )
        self.assertIn("kubectl apply -n default -f agents.yaml", message)
        self.assertEqual(self.causes(agent), [POLICY_REQUIRED])
        self.assertIn("may only observe", self.ended(agent))
        watching = replace(agent, wanted=Right.OBSERVE)
        self.assertEqual(self.opened(watching, Right.TAKEOVER).right, Right.OBSERVE)
        self.assertEqual(self.reviewed(watching, Right.TAKEOVER).right, Right.OBSERVE)
        self.assertEqual(self.opened().right, Right.DRIVE)
        self.label(tier="gold")
        self.assertEqual(self.opened(agent).right, Right.DRIVE)
        self.assertEqual(self.reviewed(agent).right, Right.DRIVE)

    def test_agent_with_unusable_policy(self) -> None:
        """A policy that cannot be evaluated covers no agent."""
        made = self.make_policy(subjects=[{"kind": "User", "name": BOT}])
        stored = {**made, "spec": {**made["spec"], "reasonPattern": "("}}
        self.successResultOf(self.storage.update(CONSOLEPOLICIES.resource, stored))
        self.not_opened(self.applicant(BOT))

    def test_restricts_input(self) -> None:
        """A policy for input has no condition for a session that only observes, and lets it do nothing else."""
        self.make_policy(
            restricts="Input", reason="Required", approval="Once", maxSeconds=9, recording={}
        )
        watching = self.applicant(wanted=Right.OBSERVE)
        self.assertEqual(self.opened(watching), Terms(Right.OBSERVE, policy="default/p"))
        self.assertEqual(self.reviewed(watching).right, Right.OBSERVE)
        self.assertFalse(self.policies.uses_approvals(self.machine, JANE, Right.OBSERVE))
        self.assertIsNone(self.policies.recording_demand(self.machine, JANE, Right.OBSERVE))
        self.assertIn("requires a reason", self.not_opened())
        self.assertTrue(self.policies.uses_approvals(self.machine, JANE, Right.DRIVE))
        self.make_policy("q", reason="Required")
        self.assertNotIn("default/p", self.not_opened(watching))

    def test_restricts_input_unusable(self) -> None:
        """A policy that cannot be evaluated restricts all sessions."""
        made = self.make_policy(restricts="Input")
        selector = {"matchExpressions": [{"key": "tier", "operator": "Near", "values": ["x"]}]}
        stored = {**made, "spec": {**made["spec"], "selector": selector}}
        self.successResultOf(self.storage.update(CONSOLEPOLICIES.resource, stored))
        self.assertIn("cannot be evaluated", self.not_opened(self.applicant(wanted=Right.OBSERVE)))

    def test_unusable_selector(self) -> None:
        """A stored policy with a selector that is refused now allows no session, and can be read, mended and deleted."""
        for operator, values in (("In", []), ("NotIn", []), ("Exists", ["gold"]), ("Near", ["x"])):
            made = self.make_policy()
            expression = {"key": "tier", "operator": operator, "values": values}
            selector = {"matchExpressions": [expression]}
            stored = {**made, "spec": {**made["spec"], "selector": selector}}
            self.successResultOf(self.storage.update(CONSOLEPOLICIES.resource, stored))
            message = self.not_opened()
            self.assertIn('"default/p" cannot be evaluated by this server: ', message)
            self.assertIn(operator, message)
            table = self.answer("GET", POLICIES, headers=[("Accept", TABLE)])
            self.assertIn(f"tier {operator}", table["rows"][0]["cells"][1])
            label = {"metadata": {"labels": {"seen": "yes"}}}
            self.answer("PATCH", f"{POLICIES}/p", label, content_type=MERGE)
            mended = {"matchLabels": {"tier": "gold"}, "matchExpressions": None}
            change = {"spec": {"selector": mended}}
            self.answer("PATCH", f"{POLICIES}/p", change, content_type=MERGE)
            self.assertEqual(self.opened(), Terms(Right.DRIVE))
            self.answer("DELETE", f"{POLICIES}/p")

    def test_strictest(self) -> None:
        """Of several policies the strictest terms count, and messages name the policy of each."""
        self.make_policy("a", people=2, viewers=5, idleSeconds=60)
        self.make_policy("b", viewers=3, idleSeconds=600, maxSeconds=90)
        terms = self.opened()
        self.assertEqual(
            replace(terms, sources=()),
            Terms(Right.DRIVE, 2, 3, 60, EPOCH + 90, "default/a, default/b"),
        )
        for term, name in (
            ("people", "a"),
            ("viewers", "b"),
            ("idle_seconds", "a"),
            ("until", "b"),
        ):
            self.assertEqual(terms.policy_of(term), f"default/{name}")

    def test_many_names(self) -> None:
        """The names of many policies still fit into the header."""
        for number in range(5):
            self.make_policy(f"{'p' * 240}{number}")
        policy = self.opened().policy
        self.assertTrue(policy.endswith(" and 2 more"))
        self.assertLess(len(policy), 1024)

    def test_all_refusals(self) -> None:
        """Several policies that refuse a session are all named, with a remedy for all of them."""
        self.make_policy("a", reason="Required")
        self.make_policy("b", approval="Required", approvers="#on-call")
        self.assertEqual(
            self.not_opened(),
            'ConsolePolicy "default/a" requires a reason; ConsolePolicy "default/b" requires the approval '
            f"of another user (#on-call): request it with {ASK}",
        )

    def test_reason_and_approval(self) -> None:
        """A policy that requires a reason and an approval names both at once."""
        self.make_policy("p", reason="Required", approval="Required")
        self.assertEqual(
            self.not_opened(),
            'ConsolePolicy "default/p" requires a reason; ConsolePolicy "default/p" requires the approval '
            f"of another user: request it with {ASK}",
        )
        self.assertEqual(self.causes(), ["ReasonRequired", "ApprovalRequired"])
        self.assertEqual(self.causes(self.applicant(reason="OPS-1")), ["ApprovalRequired"])
        for reason, given in (("OPS-1", "OPS-1"), ("repair; now", "TICKET"), ("'", "TICKET")):
            ask = f": request it with {ASK.replace('TICKET', given)}"
            self.assertTrue(self.not_opened(self.applicant(reason=reason)).endswith(ask))

    def test_causes(self) -> None:
        """Programs read from the causes what is missing, and the texts have no commands."""
        self.make_policy("a", reason="Required")
        self.make_policy("b", approval="Required", approvers="#on-call")
        self.assertEqual(
            self.refusal().to_status()["details"],
            {
                "causes": [
                    {
                        "reason": "ReasonRequired",
                        "message": 'ConsolePolicy "default/a" requires a reason',
                    },
                    {
                        "reason": "ApprovalRequired",
                        "message": 'ConsolePolicy "default/b" requires the approval of another user '
                        "(#on-call)",
                    },
                ]
            },
        )
        self.request(reason="OPS-1")
        self.assertEqual(self.causes(), ["ReasonRequired", "ApprovalRequired"])

    def test_not_met(self) -> None:
        """A condition that no reason and no approval meets has a cause of its own."""
        self.make_policy(approval="Required")
        robot = self.applicant("system:serviceaccount:default:robot")
        self.assertEqual(self.causes(robot), ["ConsolePolicyNotMet"])

    def test_many_refusals(self) -> None:
        """The message names some policies and the number of the others."""
        for number in range(9):
            self.make_policy(f"p-{number}", reason="Required")
        message = self.not_opened()
        self.assertEqual(message.count("requires a reason"), 5)
        self.assertTrue(message.endswith("; and 4 more policies refuse it"), message)

    def test_reason(self) -> None:
        """Any reason satisfies a policy without a pattern."""
        self.make_policy(reason="Required")
        self.not_opened()
        self.assertEqual(self.opened(self.applicant(reason="why not")).policy, "default/p")

    @skipUnless(patterns.SUPPORTED, patterns.UNSUPPORTED)
    def test_reason_pattern(self) -> None:
        """The reason must contain what the policy wants."""
        self.make_policy(reason="Required", reasonPattern="^OPS-[0-9]+")
        self.opened(self.applicant(reason="OPS-12 disk full"))
        self.assertEqual(
            self.not_opened(self.applicant(reason="because")),
            'ConsolePolicy "default/p" requires a reason that matches ^OPS-[0-9]+, such as OPS-0, not '
            '"because": use '
            f"{OPEN}",
        )
        # A user without a reason also learns which one is wanted.
        self.assertIn(
            "requires a reason that matches ^OPS-[0-9]+, such as OPS-0: use", self.not_opened()
        )

    @skipUnless(patterns.SUPPORTED, patterns.UNSUPPORTED)
    def test_cannot_evaluate(self) -> None:
        """A server that cannot evaluate a policy lets nobody in."""
        obj = self.make_policy("p", reason="Required", reasonPattern="x+")
        self.patch(patterns, "SUPPORTED", False)
        changed = {**obj, "metadata": {**obj["metadata"], "labels": {"a": "b"}}}
        self.successResultOf(self.storage.update(CONSOLEPOLICIES.resource, changed))
        message = self.not_opened(self.applicant(reason="x"))
        self.assertIn("cannot be evaluated by this server: regular expressions need", message)
        self.assertTrue(self.policies.is_strict(self.machine, JANE))

    def test_max(self) -> None:
        """The end counts from the beginning of the session, and a review refuses what is over."""
        self.make_policy(maxSeconds=60)
        applicant = self.applicant()
        self.clock.advance(59)
        self.assertEqual(self.reviewed(applicant).until, EPOCH + 60)
        self.clock.advance(1)
        with self.assertRaises(Forbidden) as caught:
            self.reviewed(applicant)
        self.assertEqual(
            caught.exception.message,
            'ConsolePolicy "default/p" allows sessions of at most 60 seconds',
        )

    def test_people(self) -> None:
        """Neither a ServiceAccount nor an impersonated user is one of two people."""
        self.make_policy(people=2)
        self.assertEqual(self.opened().people, 2)
        robot = self.not_opened(self.applicant("system:serviceaccount:default:robot"))
        self.assertIn("a ServiceAccount is not a person", robot)
        self.assertIn(
            "impersonated users do not count", self.not_opened(self.applicant(caller="eve"))
        )

    def test_strict(self) -> None:
        """Strict policies are those of the machine."""
        self.assertFalse(self.policies.is_strict(self.machine, JANE))
        self.make_policy(selector={"matchLabels": {"tier": "gold"}}, verbs="Strict")
        self.assertFalse(self.policies.is_strict(self.machine, JANE))
        self.label(tier="gold")
        self.assertTrue(self.policies.is_strict(self.machine, JANE))

    def test_strict_review(self) -> None:
        """An access review for a machine under a strict policy answers as opening its console does."""
        self.assertEqual(self.may("takeover", "vm-1"), (True, True))
        self.make_policy(selector={"matchLabels": {"tier": "gold"}}, verbs="Strict")
        self.assertEqual(self.may("takeover", "vm-1"), (True, True))
        self.label(tier="gold")
        self.assertEqual(self.may("takeover", "vm-1"), (False, False))
        self.assertEqual(self.may("drive", "vm-1"), (True, True))  # jane has the verb itself

    def may(self, verb: str, machine: str) -> tuple[bool, bool]:
        """Return the answers to jane's question about herself, and to the same of another user."""
        place = {"namespace": "default", "name": machine, "subresource": "console"}
        asked = {"verb": verb, "group": "compute.ironcore.dev", "resource": "machines", **place}
        reviews = "/apis/authorization.k8s.io/v1"
        own = {"spec": {"resourceAttributes": asked}}
        other = {"spec": {"resourceAttributes": asked, "user": "jane"}}
        answers = (
            self.answer("POST", f"{reviews}/selfsubjectaccessreviews", own, user="jane", code=201),
            self.answer("POST", f"{reviews}/subjectaccessreviews", other, code=201),
        )
        own_answer, other_answer = (bool(each["status"]["allowed"]) for each in answers)
        return own_answer, other_answer

    def test_unknown(self) -> None:
        """Before the policies are known nobody is let in."""
        fresh = ConsolePolicies(MemoryStorage(), [DEFAULT.workload], self.clock, self.clock.seconds)
        self.assertTrue(fresh.is_strict(self.machine, JANE))
        opened = fresh.open(self.applicant(), self.machine, Right.OBSERVE)
        self.failureResultOf(opened, ServiceUnavailable)
        with self.assertRaises(ServiceUnavailable):
            fresh.review(self.applicant(), self.machine["metadata"]["uid"], Right.OBSERVE)

    def test_review_at_a_start(self) -> None:
        """Until policies and machines are known, an access review is to be tried again."""
        machine = {"resource": "machines", "namespace": "default", "name": "vm-1"}
        attributes = Attributes(User("jane"), "takeover", COMPUTE, subresource="console", **machine)
        fresh = ConsolePolicies(self.storage, [DEFAULT.workload], self.clock, self.clock.seconds)
        for followed in fresh.followed():
            with self.assertRaises(ServiceUnavailable) as caught:
                fresh.is_strict_for(attributes)
            self.assertEqual(caught.exception.retry_after_seconds, 1)
            assert followed.listed is not None
            followed.listed(self.successResultOf(self.storage.list(followed.resource)))
        self.assertFalse(fresh.is_strict_for(attributes))


class HoursTests(PolicyTestCase):
    """Sessions end with the hours."""

    def setUp(self) -> None:
        super().setUp()
        begins = datetime.fromtimestamp(EPOCH, UTC)  # Tue 2023-11-14 22:13:20
        self.assertEqual(f"{begins:%a %H:%M}", "Tue 22:13")
        self.hours = [{"days": ["Tue"], "from": "22:00", "to": "22:30"}]

    def test_inside(self) -> None:
        """The session ends when the hours end."""
        self.make_policy(hours=self.hours)
        until = EPOCH - EPOCH % 1800 + 1800
        self.assertEqual(self.opened().until, until)

    def test_outside(self) -> None:
        """Outside the hours the message says when they begin, in the time zone of the policy."""
        self.make_policy(hours=self.hours, timeZone="Europe/Berlin")
        self.assertEqual(
            self.not_opened(),
            'ConsolePolicy "default/p" does not allow this console at this hour; its hours begin on '
            "Tue 2023-11-21 22:00 Europe/Berlin",
        )


class HintTests(PolicyTestCase):
    """Changes are reported at once, and moments by one timer."""

    def setUp(self) -> None:
        super().setUp()
        self.hints = 0
        self.policies.follow(self.hinted)

    def hinted(self) -> None:
        self.hints += 1

    def patch(self, path: str, patch: Object) -> None:
        self.answer("PATCH", path, patch, content_type=MERGE)

    def assertHints(self, action: Callable[[], object], expected: bool = True) -> None:
        before = self.hints
        action()
        self.assertEqual(self.hints > before, expected)

    def test_changes(self) -> None:
        """Policies, labels of machines and decisions about requests."""
        self.assertHints(lambda: self.make_policy(selector={"matchLabels": {"a": "b"}}))
        self.assertHints(lambda: self.label(a="b"))
        self.assertHints(lambda: self.patch(f"{POLICIES}/p", {"spec": {"people": 2}}))
        self.assertHints(self.request, expected=False)
        self.assertHints(self.decide)
        self.assertHints(lambda: self.answer("DELETE", f"{REQUESTS}/r"))
        self.assertHints(lambda: self.answer("DELETE", f"{POLICIES}/p"))

    def test_irrelevant_changes(self) -> None:
        """Changes that concern no policy are no hints: users could have all sessions reviewed."""
        self.make_policy(selector={"matchLabels": {"tier": "gold"}})
        self.assertHints(lambda: self.label(a="b"), expected=False)
        self.request()
        self.assertHints(lambda: self.answer("DELETE", f"{REQUESTS}/r"), expected=False)
        self.request("denied")
        self.request("approved")
        self.decide("approved")
        annotated = {"metadata": {"annotations": {"a": "b"}}}
        self.assertHints(lambda: self.patch(f"{REQUESTS}/approved", annotated), expected=False)
        self.assertHints(lambda: self.decide("denied", denied=True), expected=False)
        self.assertHints(lambda: self.patch(f"{MACHINES}/vm-1", annotated), expected=False)

    def test_end_of_hours(self) -> None:
        """The end of hours is reported at that moment, and their next beginning too."""
        self.make_policy(hours=[{"days": ["Tue"], "from": "22:00", "to": "22:30"}])
        left = 1800 - EPOCH % 1800
        self.assertHints(lambda: self.pump(left - 1), expected=False)
        self.assertHints(lambda: self.pump(1))
        self.assertHints(lambda: self.pump(60), expected=False)
        self.assertHints(lambda: self.pump(7 * 86_400 - 1800))

    def test_end_of_approval(self) -> None:
        """The end of an approval is reported at that moment."""
        self.make_policy(approval="Required")
        self.request(seconds=90)
        self.decide()
        self.opened()
        self.assertHints(lambda: self.pump(89), expected=False)
        self.assertHints(lambda: self.pump(1))
        with self.assertRaises(Forbidden):
            self.reviewed()

    def test_one_moment(self) -> None:
        """A request that changes often is expected to end once: its user may change it any time."""
        self.make_policy(approval="Required")
        self.request(seconds=90)
        self.decide()
        first = {"metadata": {"annotations": {"a": ""}}}
        self.answer("PATCH", f"{REQUESTS}/r", first, content_type=MERGE)
        before = self.entries()
        for number in range(20):
            patch = {"metadata": {"annotations": {"a": str(number)}}}
            self.answer("PATCH", f"{REQUESTS}/r", patch, content_type=MERGE)
        self.assertEqual(self.entries(), before)
        self.pump(90)
        self.assertLess(self.entries(), before)

    def test_many_changes(self) -> None:
        """A policy that changes often has one timer."""
        self.make_policy()
        before = self.entries()
        for people in (1, 2) * 20:
            patch = {"spec": {"people": people, "hours": [{"from": "22:00", "to": "22:30"}]}}
            body = patch if people == 2 else {"spec": {"people": 1}}
            self.answer("PATCH", f"{POLICIES}/p", body, content_type=MERGE)
        self.assertLess(self.entries(), before + 40)
        before = self.hints
        self.pump(1800 - EPOCH % 1800)
        self.assertEqual(self.hints, before + 1)

    def test_deleted(self) -> None:
        """Approvals and policies that are deleted leave nothing behind until they would have ended."""
        for number in range(20):
            self.request(f"r-{number}", seconds=90)
            self.decide(f"r-{number}")
            self.answer("DELETE", f"{REQUESTS}/r-{number}")
            self.make_policy(hours=[{"from": "22:00", "to": "22:30"}])
            self.answer("DELETE", f"{POLICIES}/p")
        self.assertLess(len(self.policies._moments), 20)

    def entries(self) -> int:
        """Return how much the index remembers."""
        return entries(self.policies, beside=[self.storage])

    def pump(self, seconds: float) -> None:
        whole = int(seconds)
        while whole > 0:
            step = min(whole, 60)
            self.clock.advance(step)
            whole -= step


class ApplicantTests(PolicyTestCase):
    """Whose approval counts."""

    def test_other_account(self) -> None:
        """A new account of the same name does not inherit an approval."""
        self.make_policy(approval="Required")
        self.request()
        self.decide()
        # The token file gives jane the UID 2.
        opened = Applicant(User("jane", uid="2"), "s-1", self.clock.seconds())
        self.assertEqual(self.opened(opened).policy, "default/p")
        other = Applicant(User("jane", uid="9"), "s-1", self.clock.seconds())
        self.assertIn("another account of this name", self.not_opened(other))
