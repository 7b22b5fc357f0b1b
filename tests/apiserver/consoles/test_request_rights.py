"""
Tests for :mod:`twisted_exec.apiserver.consoles.request_rights`: who asks, who approves, and for what.
"""

from __future__ import annotations

from typing import Any
from unittest import skipUnless

from twisted.internet.defer import CancelledError, Deferred, fail

from tests.apiserver.consoles.policies_support import COMPUTE, REQUESTS, PolicyTestCase
from tests.apiserver.support import EPOCH, EVENTS, MACHINES, MERGE, RBAC
from twisted_exec.api import kinds, patterns
from twisted_exec.api.dialects import DEFAULT
from twisted_exec.api.kinds import CONSOLEREQUESTS, Object
from twisted_exec.api.kinds.consolepolicies import POLICY_REQUIRED
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import Forbidden, GatewayTimeout, ServiceUnavailable
from twisted_exec.api.times import timestamp
from twisted_exec.apiserver.consoles import request_rights
from twisted_exec.apiserver.consoles.policies import ConsolePolicies
from twisted_exec.apiserver.interfaces import Applicant
from twisted_exec.control.backoff import FIRST_PAUSE_SECONDS
from twisted_exec.wire.session_terms import Right, Terms

AS = "Impersonate-User"
GROUP_NAME = CONSOLEREQUESTS.resource.group


class CreationTests(PolicyTestCase):
    """The server records who asks for which machine."""

    def test_recorded(self) -> None:
        """User and machine are those of the request, whatever its body says."""
        forged = {"user": "bob", "userUID": "3", "caller": "x", "machineUID": "u-9"}
        body = {"metadata": {"name": "r"}, "spec": {"machine": "vm-1", **forged}}
        spec = self.answer("POST", REQUESTS, body, user="jane", code=201)["spec"]
        self.assertEqual(
            spec,
            {
                "machine": "vm-1",
                "machineResource": "machines.compute.ironcore.dev",
                "right": "drive",
                "seconds": 3600,
                "user": "jane",
                "userUID": "2",
                "machineUID": self.machine["metadata"]["uid"],
            },
        )

    def test_impersonated(self) -> None:
        """A request by impersonation names the user who impersonates."""
        body = {"metadata": {"name": "r"}, "spec": {"machine": "vm-1"}}
        headers = [(AS, "jane")]
        made = self.answer("POST", REQUESTS, body, code=201, headers=headers)
        self.assertEqual((made["spec"]["user"], made["spec"]["caller"]), ("jane", "admin"))

    def test_no_machine(self) -> None:
        """A machine that does not exist has no requests."""
        for machine, code in (("vm-9", 404), ("", 422)):
            body = {"metadata": {"name": "r"}, "spec": {"machine": machine}}
            self.refused(code, "POST", REQUESTS, body, user="jane")
        body = {"metadata": {"name": "r"}, "spec": {"machine": "vm-1", "machineResource": "pods."}}
        message = self.refused(400, "POST", REQUESTS, body, user="jane")
        self.assertIn("use machines.compute.ironcore.dev", message)

    def test_unseen_machine(self) -> None:
        """A user who may neither read nor observe machines does not learn which there are."""
        consoles = {"apiGroups": [COMPUTE], "resources": ["machines/console"], "verbs": ["observe"]}
        machines = {"apiGroups": [COMPUTE], "resources": ["machines"], "verbs": ["get"]}
        for user, rules in (("eve", []), ("observer", [consoles]), ("reader", [machines])):
            own = {"apiGroups": [GROUP_NAME], "resources": ["consolerequests"], "verbs": ["create"]}
            role = {"metadata": {"name": f"asks-{user}"}, "rules": [own, *rules]}
            self.answer("POST", f"{RBAC}/clusterroles", role, code=201)
            self.bind(user, f"asks-{user}")
        refusals = set()
        for machine, code in (("vm-1", 201), ("vm-9", 404)):
            body = {"metadata": {"generateName": "r-"}, "spec": {"machine": machine}}
            message = self.refused(403, "POST", REQUESTS, body, headers=[(AS, "eve")])
            refusals.add(message.replace(machine, "VM"))
            for user in ("observer", "reader"):
                self.answer("POST", REQUESTS, body, headers=[(AS, user)], code=code)
        (refusal,) = refusals
        self.assertIn('cannot observe resource "machines/console"', refusal)
        self.assertIn("or get on the machine", refusal)

    @skipUnless(patterns.SUPPORTED, patterns.UNSUPPORTED)
    def test_useless_reason(self) -> None:
        """A request whose reason a policy of the machine refuses bothers nobody."""
        self.make_policy(reason="Required", reasonPattern="OPS-[0-9]+", approval="Once")
        selector = {"matchLabels": {"tier": "none"}}
        self.make_policy("other", selector=selector, reason="Required", reasonPattern="never")
        needs = 'ConsolePolicy "default/p" requires a reason that matches OPS-[0-9]+, such as OPS-0'
        remedy = "use kubectl console --request --reason TICKET -n default vm-1"
        for reason, problem in (
            ({}, f"{needs}: {remedy}"),
            ({"reason": " "}, f"{needs}: {remedy}"),
            ({"reason": "because"}, f'{needs}, not "because": {remedy}'),
        ):
            body = {"metadata": {"generateName": "r-"}, "spec": {"machine": "vm-1", **reason}}
            self.assertEqual(self.refused(403, "POST", REQUESTS, body, user="jane"), problem)
        self.assertEqual(self.answer("GET", REQUESTS)["items"], [])
        self.request(reason="see OPS-7")

    def test_too_many(self) -> None:
        """A user has at most 50 requests that wait."""
        for number in range(50):
            self.request(f"r-{number}")
        body = {"metadata": {"name": "more"}, "spec": {"machine": "vm-1"}}
        self.refused(429, "POST", REQUESTS, body, user="jane")
        self.answer("POST", REQUESTS, body, user="bob", code=201)

    def test_name_of_another(self) -> None:
        """
        The name of a deleted request is not used again: an approver who looked at the one would
        approve the other.
        """
        self.request(right="observe")
        self.answer("DELETE", f"{REQUESTS}/r", user="jane")
        body = {"metadata": {"name": "r"}, "spec": {"machine": "vm-1", "right": "takeover"}}
        message = self.refused(409, "POST", REQUESTS, body, user="jane")
        self.assertIn("use another name, or metadata.generateName", message)
        self.clock.advance(86_401)
        self.answer("POST", REQUESTS, body, user="jane", code=201)

    def test_many_names(self) -> None:
        """A user cannot make the server forget a name by deleting many requests."""
        self.patch(request_rights, "MOST_DELETED", 3)
        for number in range(3):
            self.request(f"r-{number}")
            self.answer("DELETE", f"{REQUESTS}/r-{number}", user="jane")
        body = {"metadata": {"name": "more"}, "spec": {"machine": "vm-1"}}
        message = self.refused(429, "POST", REQUESTS, body, user="jane")
        self.assertIn("3 console requests of", message)
        self.answer("POST", REQUESTS, body, user="bob", code=201)
        self.clock.advance(86_401)
        self.request("next")


class AgentApprovalTests(PolicyTestCase):
    """Approvals for an agent of bob, who may approve."""

    agent = "agent:bob:bot"

    def ask_as_agent(self, **spec: Any) -> Object:
        """Store a request of the agent, as the server does for the agent's certificate."""
        made = self.request("r", "jane")
        stored = {**made, "spec": {**made["spec"], "user": self.agent, "userUID": "", **spec}}
        return self.successResultOf(self.storage.update(CONSOLEREQUESTS.resource, stored))

    def cannot(self, user: str = "bob", **more: Any) -> str:
        return str(self.decide(user=user, code=403, **more)["message"])

    def test_recorded(self) -> None:
        """The request of an agent has the UID of its person, so that another name of the account is that person."""
        self.make_policy(approval="Required", subjects=[{"kind": "User", "name": self.agent}])
        spec = self.create("drive")["spec"]
        self.assertEqual((spec["user"], spec["userUID"]), (self.agent, "7"))

    def create(self, right: str, code: int = 201) -> Any:
        """Create a request as the agent."""
        headers = [
            (AS, self.agent),
            ("Impersonate-Group", "system:masters"),
            ("Impersonate-Extra-agents.twisted-exec.dev%2Fperson-uid", "7"),
        ]
        body = {"metadata": {"name": "r"}, "spec": {"machine": "vm-1", "right": right}}
        return self.answer("POST", REQUESTS, body, code=code, headers=headers)

    def test_without_policy(self) -> None:
        """An agent that only observes, whatever a person approves, reads so when it asks; a policy for all is not enough."""
        for name in ("first", "second"):
            refusal = self.create("drive", code=403)
            self.assertIn("may only observe where no ConsolePolicy", refusal["message"])
            self.assertEqual(refusal["details"]["causes"][0]["reason"], POLICY_REQUIRED)
            self.make_policy(name, approval="Required")
        self.create("observe")

    def test_another(self) -> None:
        """Another person approves for an agent, and the agent's session opens."""
        self.make_policy(approval="Required", subjects=[{"kind": "User", "name": self.agent}])
        self.ask_as_agent()
        self.decide(user="admin")
        terms = self.opened(self.applicant(self.agent))
        self.assertEqual((terms.right, terms.yields), (Right.DRIVE, True))

    def test_own(self) -> None:
        """A person approves for an agent of their own where no policy has that person ask another one."""
        self.make_policy(approval="Required", subjects=[{"kind": "Group", "name": "agents"}])
        self.ask_as_agent()
        self.assertEqual(self.decide(user="bob")["status"]["decidedBy"], "bob")

    def test_own_under_policy(self) -> None:
        """A person who needs the approval of another one cannot approve for an agent, but can deny."""
        self.make_policy(
            "agents", approval="Required", subjects=[{"kind": "Group", "name": "agents"}]
        )
        self.make_policy("bob", approval="Required", subjects=[{"kind": "User", "name": "bob"}])
        self.ask_as_agent()
        self.assertIn(
            'it is of your own agent, and ConsolePolicy "default/bob" requires the approval of another user',
            self.cannot(),
        )
        self.decide(user="bob", denied=True)

    def test_under_policy_for_all(self) -> None:
        """A policy for everybody binds the person, too."""
        self.make_policy(approval="Once")
        self.ask_as_agent()
        self.assertIn("it is of your own agent", self.cannot())

    def test_same_account(self) -> None:
        """Another name of the person's account is the person."""
        self.make_policy(approval="Once")
        self.ask_as_agent(userUID="2")
        headers = [(AS, "other"), ("Impersonate-Uid", "2"), ("Impersonate-Group", "system:masters")]
        self.assertIn("it is of your own agent", self.cannot("admin", headers=headers))

    def test_impersonating_approver(self) -> None:
        """A person cannot approve for an agent by acting as another user."""
        self.ask_as_agent(user="agent:admin:bot")
        message = self.cannot("admin", headers=[(AS, "bob")])
        self.assertIn('user "admin", whose agent asks, impersonates that user', message)

    def test_agent_approves(self) -> None:
        """An agent approves nothing, whatever its roles: neither its person's request nor that of a stranger."""
        self.request()
        headers = [(AS, self.agent), ("Impersonate-Group", "system:masters")]
        self.assertIn("an agent may not approve", self.cannot("admin", headers=headers))

    def test_forged(self) -> None:
        """An approval by an agent, in a store that was written by hand, does not count."""
        self.make_policy(approval="Required")
        self.request()
        self.decide()
        made = self.stored(CONSOLEREQUESTS, "r")
        forged = {**made, "status": {**made["status"], "decidedBy": self.agent}}
        self.successResultOf(self.storage.update(CONSOLEREQUESTS.resource, forged))
        self.assertIn("requires the approval", self.not_opened())

    def test_number(self) -> None:
        """The limit of waiting requests is that of the person and all agents together."""
        self.patch(request_rights, "MOST_PENDING", 2)
        self.ask_as_agent(user="agent:jane:bot")
        self.request("s")
        body = {"metadata": {"name": "t"}, "spec": {"machine": "vm-1"}}
        self.answer("POST", REQUESTS, body, user="jane", code=429)


class ApprovalTests(PolicyTestCase):
    """Approval by another person, for one machine, for a time."""

    def setUp(self) -> None:
        super().setUp()
        self.make_policy(approval="Required")

    def reason(self, applicant: Applicant) -> str:
        """Return the reason of a session that opens."""
        opened = self.policies.open(applicant, self.machine, Right.DRIVE)
        reason: str = self.successResultOf(opened).reason
        return reason

    def cannot(self, user: str, code: int = 403, **more: Any) -> str:
        return str(self.decide(user=user, code=code, **more)["message"])

    def test_approved(self) -> None:
        """The command of the docs approves, and the session is limited to the approval."""
        self.request(seconds=600)
        self.assertIn('your request "r" waits', self.not_opened(self.applicant()))
        (cause,) = self.refusal(self.applicant()).details["causes"]
        self.assertEqual((cause["reason"], cause["request"]), ("ApprovalRequired", "r"))
        self.assertNotIn("your request", cause["message"])
        status = self.decide()["status"]
        until = EPOCH + 600
        self.assertEqual(
            status,
            {
                "approved": True,
                "decidedBy": "bob",
                "decisionTime": timestamp(EPOCH),
                "expirationTime": timestamp(until),
            },
        )
        self.assertEqual(self.opened(), Terms(Right.DRIVE, until=until, policy="default/p"))

    def test_approver_leaves(self) -> None:
        """An approval outlasts the rights of its approver; another approver withdraws it."""
        self.request()
        self.decide()
        bindings = f"{RBAC}/namespaces/default/rolebindings"
        for role in ("admin", "bob-drives"):
            self.answer("DELETE", f"{bindings}/bob-{role}")
        self.opened()
        self.decide(user="bob", code=403, denied=True)
        self.decide(user="admin", denied=True)
        self.assertIn("admin withdrew the approval", self.not_opened())

    def test_again(self) -> None:
        """A second approval does not make it last longer."""
        self.request(seconds=600)
        first = self.decide()["status"]
        self.clock.advance(300)
        self.assertEqual(self.decide()["status"], first)

    def test_self(self) -> None:
        """Nobody approves their own request, whatever their roles."""
        self.request(user="bob")
        self.assertIn("another user must approve or deny it", self.cannot("bob"))
        self.request("mine", user="admin")
        self.assertIn("another user must approve", self.cannot("admin", name="mine"))

    def test_impersonating_approver(self) -> None:
        """The user of a request cannot approve it by acting as another user."""
        self.request(user="admin")
        self.assertIn(
            'user "admin", who created it, impersonates that user',
            self.cannot("admin", headers=[(AS, "bob")]),
        )

    def test_impersonating_requester(self) -> None:
        """A user who asked by acting as another user cannot approve that."""
        body = {"metadata": {"name": "r"}, "spec": {"machine": "vm-1"}}
        self.answer("POST", REQUESTS, body, code=201, headers=[(AS, "jane")])
        self.assertIn("another user must approve", self.cannot("admin"))

    def test_same_account(self) -> None:
        """Another name of the same account is not another user."""
        self.request()
        headers = [(AS, "other"), ("Impersonate-Uid", "2"), ("Impersonate-Group", "system:masters")]
        self.assertIn("another user must approve", self.cannot("admin", headers=headers))

    def test_service_account(self) -> None:
        """A ServiceAccount approves nothing: users who edit the namespace can get its tokens."""
        name = "system:serviceaccount:default:robot"
        self.bind_robot(name)
        self.request()
        self.assertIn(
            "a ServiceAccount is not a person", self.cannot("admin", headers=[(AS, name)])
        )

    def test_token(self) -> None:
        """
        A ServiceAccount requests nothing, and opens no console that needs an approval: its token is
        in the hands of the users who could approve.
        """
        name = "system:serviceaccount:default:robot"
        self.bind_robot(name)
        body = {"metadata": {"name": "r"}, "spec": {"machine": "vm-1"}}
        message = self.refused(403, "POST", REQUESTS, body, user="robot")
        self.assertIn("a ServiceAccount is not a person", message)
        robot = self.applicant(name)
        self.assertIn("a ServiceAccount is not a person", self.not_opened(robot))

    def test_robot_that_impersonates(self) -> None:
        """A ServiceAccount that acts for a user is not a person either."""
        acting = self.applicant(caller="system:serviceaccount:default:robot")
        self.assertIn("a ServiceAccount is not a person", self.not_opened(acting))

    def bind_robot(self, name: str) -> None:
        for role in ("admin", "bob-drives"):
            body = {
                "metadata": {"name": f"robot-{role}"},
                "roleRef": {"kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "User", "name": name}],
            }
            path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
            self.answer("POST", path, body, code=201)

    def test_without_drive(self) -> None:
        """An approver may drive that machine."""
        self.answer(
            "POST",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
            {
                "metadata": {"name": "approver"},
                "roleRef": {"kind": "ClusterRole", "name": "console-approver"},
                "subjects": [{"kind": "User", "name": "leaf"}],
            },
            code=201,
        )
        self.request()
        self.assertIn(
            'an approver must be allowed to drive machines/console of "vm-1"', self.cannot("leaf")
        )
        right = {"user": "leaf", "verb": "drive", "subresource": "console", "namespace": "default"}
        (cause,) = self.decide(user="leaf", code=403, approved=True)["details"]["causes"]
        self.assertEqual({**cause, **right}, cause)

    def test_deny(self) -> None:
        """A denial is final, and its message reaches the user."""
        self.request()
        self.decide(denied=True, message="not today")
        self.assertIn('"r" does not count, bob denied it (not today)', self.not_opened())
        self.assertIn("a denial is final", self.cannot("bob", code=422, approved=True))
        self.request("again")
        self.decide("again")
        self.opened()

    def test_withdrawn(self) -> None:
        """An approval that is withdrawn, or whose request is deleted, counts no longer."""
        for name in ("r", "again"):
            self.request(name)
            self.decide(name)
            self.reviewed()
            if name == "r":
                self.decide(name, denied=True)
            else:
                self.answer("DELETE", f"{REQUESTS}/{name}")
            self.assertIn("requires the approval of another user", self.not_opened())

    def test_withdrawn_beside_another(self) -> None:
        """
        A running session ends with the name of the approval that is over, not of a request that waits
        or was denied; a new session reads which request waits.
        """
        for name in ("waits", "no", "r", "later"):
            self.request(name)
            self.clock.advance(1)
        self.decide("no", denied=True)
        self.decide()
        self.opened()
        self.decide(denied=True, message="wrong rack")
        self.assertIn(
            'your request "r" does not count, bob withdrew the approval (wrong rack); request again with',
            self.ended(),
        )
        self.assertIn('your request "later" waits for another user', self.not_opened())

    def test_remedy(self) -> None:
        """A refusal has the command for the right that the user asks for, and not for the highest."""
        for wanted, option in (
            (Right.OBSERVE, "--read-only "),
            (Right.DRIVE, ""),
            (Right.TAKEOVER, "--force "),
        ):
            ask = f"kubectl console {option}--request --reason TICKET -n default vm-1"
            for right in (wanted, Right.TAKEOVER):
                message = self.not_opened(self.applicant(wanted=wanted), right)
                self.assertTrue(message.endswith(f"another user: request it with {ask}"), message)

    def test_request_for_another_right(self) -> None:
        """
        A request for another right is named with that right, with the command for the right that the
        user asks for, and only if there is none for that.
        """
        self.request()
        observer = self.applicant(wanted=Right.OBSERVE)
        ask = "kubectl console --read-only --request --reason TICKET -n default vm-1"
        self.assertIn(
            'your request "r" to drive waits for another user to run twisted-exec request approve '
            f"-n default r; to observe, request it with {ask}",
            self.not_opened(observer),
        )
        self.assertIn('your request "r" waits for another user to run', self.not_opened())
        self.clock.advance(1)
        self.request("own", right="observe")
        self.clock.advance(1)
        self.request("later")
        self.assertIn('your request "own" waits for another', self.not_opened(observer))
        self.assertIn('your request "later" waits for another', self.not_opened())
        for name in ("r", "own", "later"):
            self.decide(name, denied=True)
        denied = f'your request "own" does not count, bob denied it; request again with {ask}'
        self.assertIn(denied, self.not_opened(observer))
        self.answer("DELETE", f"{REQUESTS}/own", user="jane")
        denied = (
            f'your request "later" to drive does not count, bob denied it; request again with {ask}'
        )
        self.assertIn(denied, self.not_opened(observer))

    def test_waiting_for_another_reason(self) -> None:
        """A request that waits is named rather than one for the session's reason that was denied."""
        self.request("old", reason="OPS-9")
        self.decide("old", denied=True)
        applicant = self.applicant(reason="OPS-9")
        self.assertIn(
            'your request "old" does not count, bob denied it', self.not_opened(applicant)
        )
        self.request("waits", reason="OPS-8")
        self.assertIn('your request "waits" waits for another user', self.not_opened(applicant))
        self.request("again", reason="OPS-9")
        self.assertIn('your request "again" waits for another user', self.not_opened(applicant))

    def test_deleted_beside_another(self) -> None:
        """A session whose request was deleted has no approval; a request that waits is another one."""
        self.request()
        self.request("waits")
        self.decide()
        self.opened()
        self.answer("DELETE", f"{REQUESTS}/r")
        self.assertIn(
            'of another user, which this session does not have: your request "waits" waits for',
            self.ended(),
        )

    def test_valid_for_another_reason(self) -> None:
        """A session whose approval is withdrawn reads of it, not of a valid one for another reason."""
        self.request(reason="OPS-1")
        self.request("other", reason="OPS-2")
        self.decide()
        self.decide("other")
        session = self.applicant(reason="OPS-1")
        self.opened(session)
        self.decide(denied=True)
        self.assertIn('"r" does not count, bob withdrew the approval', self.ended(session))

    def test_expired_beside_another(self) -> None:
        """A running session whose approval ends reads so, whatever other request waits."""
        self.request(seconds=60)
        self.request("waits")
        self.decide()
        self.opened()
        self.clock.advance(60)
        self.assertIn('your request "r" does not count, it has expired', self.ended())

    def test_finalizer(self) -> None:
        """A request that is being deleted counts no longer, whatever finalizers its user has set."""
        body = {
            "metadata": {"name": "r", "finalizers": ["example.org/stay"]},
            "spec": {"machine": "vm-1"},
        }
        self.answer("POST", REQUESTS, body, user="jane", code=201)
        self.decide()
        self.opened()
        hints: list[None] = []
        self.policies.follow(lambda: hints.append(None))
        self.answer("DELETE", f"{REQUESTS}/r", user="bob")
        self.assertTrue(hints)
        self.assertIn("it is being deleted", self.not_opened())

    def test_expired(self) -> None:
        """An approval ends, and a request that waited for a day cannot be approved."""
        self.request(seconds=60)
        self.decide()
        self.clock.advance(60)
        self.assertIn("it has expired; request again with", self.not_opened())
        self.request("late")
        self.clock.advance(86_400)
        self.assertIn("its user must create another", self.cannot("bob", 409, name="late"))

    def test_other_machine(self) -> None:
        """An approval is void for another machine of the same name."""
        self.request()
        self.request("waits")
        self.decide()
        self.opened()
        self.answer("DELETE", f"{MACHINES}/vm-1")
        self.machine = self.make_machine("vm-1")
        self.assertIn("request it with", self.not_opened())
        message = self.cannot("bob", 409, name="waits")
        self.assertIn('is for an earlier machine "vm-1"', message)

    def test_other_user(self) -> None:
        """An approval is for one user, and not for those who impersonate them."""
        self.request()
        self.decide()
        self.not_opened(self.applicant("bob"))
        message = self.not_opened(self.applicant(caller="admin"))
        self.assertIn("for a user who impersonates", message)

    def test_right(self) -> None:
        """An approval to observe does not let the user type."""
        self.request(right="observe")
        self.decide()
        self.assertEqual(self.opened(right=Right.TAKEOVER).right, Right.OBSERVE)

    def test_reason(self) -> None:
        """The reason of the request counts for the session."""
        self.make_policy("q", reason="Required")
        self.request(reason="OPS-1")
        self.assertIn("requires a reason", self.not_opened())  # not before it is approved
        self.decide()
        self.opened()

    def test_bound_to_reason(self) -> None:
        """
        A session does not open with an approval for another reason; it has the approved reason if it is given none.
        """
        self.request(reason="OPS-1")
        self.decide()
        other = self.applicant(reason="OPS-2")
        message = self.not_opened(other)
        self.assertIn('request "r" is for the reason "OPS-1", not "OPS-2": give that', message)
        self.assertEqual(self.causes(other), ["ApprovalRequired"])
        self.clock.advance(1)
        self.request("waits", reason="OPS-3")
        self.assertEqual(self.not_opened(other), message)
        for reason in ("", "OPS-1"):
            self.assertEqual(self.reason(self.applicant(reason=reason)), "OPS-1")
        self.clock.advance(1)
        self.request("next", reason="OPS-2")
        self.clock.advance(1)
        self.request("third", reason="OPS-3")
        self.decide("third")
        self.assertIn('your request "next" waits', self.not_opened(other))
        self.decide("next")
        self.assertEqual(self.reason(other), "OPS-2")

    def test_any_reason(self) -> None:
        """An approval for no reason is for each."""
        self.request()
        self.decide()
        for reason in ("", "OPS-1"):
            self.assertEqual(self.reason(self.applicant(reason=reason)), reason)

    @skipUnless(patterns.SUPPORTED, patterns.UNSUPPORTED)
    def test_later_pattern(self) -> None:
        """Of several approvals the session has that whose reason the policies accept."""
        self.request("old", reason="because", right="takeover")
        self.request(reason="OPS-1")
        for name in ("old", "r"):
            self.decide(name)
        self.assertEqual(self.reason(self.applicant()), "because")
        self.make_policy("later", reason="Required", reasonPattern="OPS-[0-9]+")
        self.assertEqual(self.reason(self.applicant()), "OPS-1")
        self.decide("r", denied=True)
        self.assertIn('matches OPS-[0-9]+, such as OPS-0, not "because": use', self.not_opened())

    def test_forged_status(self) -> None:
        """Approval cannot set when it ends or who decided."""
        self.request(seconds=60)
        status = self.decide(approved=True, decidedBy="carol", expirationTime=timestamp(EPOCH * 2))
        self.assertEqual(status["status"]["decidedBy"], "bob")
        self.assertEqual(status["status"]["expirationTime"], timestamp(EPOCH + 60))

    def test_changed_meanwhile(self) -> None:
        """An approver who names the UID does not approve another request."""
        self.request()
        patch = {"metadata": {"uid": "other"}, "status": {"approved": True}}
        path = f"{REQUESTS}/r/approval"
        self.refused(422, "PATCH", path, patch, user="bob", content_type=MERGE)


class OnceTests(PolicyTestCase):
    """Approvals for one session."""

    def setUp(self) -> None:
        super().setUp()
        self.make_policy(approval="Once")
        self.request()
        self.decide()

    def test_used(self) -> None:
        """The first session uses the approval, and a second one needs another."""
        self.opened()
        self.reviewed()
        message = self.not_opened(self.applicant(session="s-2"))
        self.assertIn("its approval was for one session, which has begun", message)

    def test_withdrawn(self) -> None:
        """
        A session ends with the name of the approval that it has used, not of a request that waits or
        of another session's approval, also after it was resumed.
        """
        self.opened()
        self.opened(self.resuming("s-2", "s-1"))
        for name in ("waits", "more"):
            self.clock.advance(1)
            self.request(name)
        self.decide("more")
        self.opened(self.applicant(session="s-9"))
        self.decide(denied=True)
        self.clock.advance(1)
        self.decide("more", denied=True)
        expected = 'your request "r" does not count, bob withdrew the approval; request again with'
        for session in (self.applicant(), self.resuming("s-2", "s-1")):
            self.assertIn(expected, self.ended(session))

    def test_expired(self) -> None:
        """A session whose approval ends reads so, not that the approval is used."""
        self.opened()
        self.clock.advance(3600)
        self.assertIn('your request "r" does not count, it has expired', self.ended())

    def test_same_session(self) -> None:
        """
        The id of the first session opens no second one: a caller who impersonates users may bring
        the id of a session that is over.
        """
        self.opened()
        self.assertIn("its approval was for one session", self.not_opened())

    def resuming(self, session: str, resumes: str) -> Applicant:
        return self.applicant(session=session, resumes=resumes)

    def test_resumed(self) -> None:
        """A session that is resumed goes on with its approval, and needs no other."""
        self.opened()
        self.request("more")
        self.decide("more")
        for session, resumes in (("s-2", "s-1"), ("s-3", "s-2")):
            self.opened(self.resuming(session, resumes))
            self.reviewed(self.resuming(session, resumes))
        stored = self.successResultOf(self.storage.list(CONSOLEREQUESTS.resource)).items
        sessions = {each["metadata"]["name"]: each["status"].get("session") for each in stored}
        self.assertEqual(sessions, {"r": "s-3", "more": None})

    def test_resumed_by_a_stranger(self) -> None:
        """Only the session that has used the approval can be resumed with it."""
        self.opened()
        message = self.not_opened(self.resuming("s-2", "x"))
        self.assertIn("its approval was for one session, which has begun", message)

    def test_resumed_later(self) -> None:
        """An attempt to resume that a hop refuses ends neither the session nor the next attempt."""
        self.opened()
        self.opened(self.resuming("s-2", "s-1"))
        self.reviewed()
        self.opened(self.resuming("s-3", "s-1"))
        self.reviewed(self.resuming("s-3", "s-1"))

    def test_resumed_for_longer(self) -> None:
        """The longest time of a session counts from its beginning."""
        self.make_policy("short", approval="Once", maxSeconds=600)
        until = self.opened().until
        self.clock.advance(400)
        resumed = self.resuming("s-2", "s-1")
        self.assertEqual(self.opened(resumed).until, until)
        self.assertEqual(self.reviewed(resumed).until, until)
        self.clock.advance(200)
        self.assertIn("at most 600 seconds", self.not_opened(self.resuming("s-3", "s-2")))

    def test_race(self) -> None:
        """Of two sessions at the same moment, at two servers, one gets the approval."""
        write = self.storage.update
        racing: list[Deferred[Terms]] = []
        replica = self.replica()

        def update(resource: Any, obj: Any) -> Any:
            self.storage.update = write  # type: ignore[method-assign]
            other = self.open(self.applicant(session="s-2"), policies=replica)
            racing.append(Deferred.fromCoroutine(other))
            return write(resource, obj)

        self.storage.update = update  # type: ignore[method-assign]
        self.assertIn("its approval was for one session", self.not_opened())
        self.assertEqual(self.successResultOf(racing[0]).right, Right.DRIVE)

    def test_replica(self) -> None:
        """A server that has not heard of the first session yet lets no second one in."""
        other = self.replica()
        other.stopService()  # it hears nothing from now on
        self.opened()
        made = Deferred.fromCoroutine(self.open(self.applicant(session="s-2"), policies=other))
        message = self.failureResultOf(made, Forbidden).value.message
        self.assertIn("its approval was for one session, which has begun", message)

    def replica(self) -> ConsolePolicies:
        """The policies of another server at the same store."""
        other = ConsolePolicies(self.storage, [DEFAULT.workload], self.clock, self.clock.seconds)
        other.startService()
        self.addCleanup(lambda: other.running and other.stopService())
        return other

    def reserved(self, session: str) -> Deferred[Any]:
        """Begin to open a session; fires with what it has reserved."""
        opening = self.policies.open(self.applicant(session=session), self.machine, Right.DRIVE)
        return opening.addCallback(lambda admitted: admitted.reservation)

    def user_of_approval(self, name: str = "r") -> str | None:
        """Return the session that has used an approval."""
        key = (CONSOLEREQUESTS.resource, "default", name)
        session: str | None = self.successResultOf(self.storage.get(*key))["status"].get("session")
        return session

    def test_not_opened(self) -> None:
        """
        A session that is not opened uses nothing, and the next one opens: it has waited, and so has one that
        is refused then.
        """
        first = self.successResultOf(self.reserved("s-1"))
        second, third = self.reserved("s-2"), self.reserved("s-3")
        self.assertNoResult(second)
        self.reviewed(self.applicant(session="s-1"))
        first.not_opened(GatewayTimeout("no answer"))
        self.assertIsNone(self.user_of_approval())
        reservation = self.successResultOf(second)
        self.assertNoResult(third)
        self.successResultOf(reservation.use())
        reservation.opened()
        self.assertEqual(self.user_of_approval(), "s-2")
        message = self.failureResultOf(third, Forbidden).value.message
        self.assertIn("its approval was for one session, which has begun", message)

    def test_left_while_written(self) -> None:
        """A user who leaves while the approval is written gives it back, and the next session opens."""
        first = self.successResultOf(self.reserved("s-1"))
        second = self.reserved("s-2")
        write = self.storage.update
        waiting: Deferred[None] = Deferred()

        def slow(resource: Any, obj: Any) -> Any:
            self.storage.update = write  # type: ignore[method-assign]
            return waiting.addCallback(lambda _: write(resource, obj))

        self.storage.update = slow  # type: ignore[method-assign]
        use = first.use()
        use.cancel()
        problem = self.failureResultOf(use, CancelledError).value
        first.not_opened(problem)
        self.assertNoResult(second)
        waiting.callback(None)
        self.assertIsNone(self.user_of_approval())
        self.assertNotIn("useTime", self.answer("GET", f"{REQUESTS}/r")["status"])
        self.successResultOf(self.successResultOf(second).use())
        self.assertEqual(self.user_of_approval(), "s-2")

    def test_not_opened_after_use(self) -> None:
        """A session that is not opened although it has used its approval, gives it back."""
        first = self.successResultOf(self.reserved("s-1"))
        self.successResultOf(first.use())
        self.assertEqual(self.user_of_approval(), "s-1")
        first.not_opened(CancelledError())
        self.assertIsNone(self.user_of_approval())
        self.opened(self.applicant(session="s-2"))

    def test_not_resumed_after_use(self) -> None:
        """An attempt to resume that fails late leaves the approval to the session and its next attempt."""
        self.opened()
        opening = self.policies.open(self.resuming("s-2", "s-1"), self.machine, Right.DRIVE)
        reservation = self.successResultOf(opening).reservation
        self.reviewed(self.resuming("s-2", "s-1"))
        self.successResultOf(reservation.use())
        reservation.not_opened(CancelledError())
        self.reviewed()
        self.opened(self.resuming("s-3", "s-1"))
        self.assertIn("was for one session", self.not_opened(self.applicant(session="s-4")))

    def test_resumed_while_it_resumes(self) -> None:
        """A session that is resumed waits for no attempt before it, which may never end."""
        self.opened()
        for session in ("s-2", "s-3"):
            opening = self.policies.open(self.resuming(session, "s-1"), self.machine, Right.DRIVE)
            reservation = self.successResultOf(opening).reservation
        self.successResultOf(reservation.use())

    def test_waits_for_long(self) -> None:
        """A session waits ten seconds for another one, and is told why."""
        first = self.successResultOf(self.reserved("s-1"))
        second = self.reserved("s-2")
        self.clock.advance(10)
        message = self.failureResultOf(second, ServiceUnavailable).value.message
        self.assertEqual(
            message,
            'another session of yours at machine "vm-1" is being opened with the approval for one '
            "session: try again",
        )
        first.not_opened(GatewayTimeout("no answer"))
        self.opened(self.applicant(session="s-3"))

    def test_second_approval_meanwhile(self) -> None:
        """A session does not wait for another one if there is an approval for each."""
        self.request("more")
        self.decide("more")
        for session in ("s-1", "s-2"):
            self.successResultOf(self.successResultOf(self.reserved(session)).use())
        used = {self.user_of_approval(name) for name in ("r", "more")}
        self.assertEqual(used, {"s-1", "s-2"})

    def test_withdrawn_while_opened(self) -> None:
        """An approval that is withdrawn or deleted while the next hop opens the session does not count."""
        reservation = self.successResultOf(self.reserved("s-1"))
        self.decide(denied=True)
        message = self.failureResultOf(reservation.use(), Forbidden).value.message
        self.assertIn("bob withdrew the approval", message)
        reservation.not_opened(Forbidden(message))
        self.request("more")
        self.decide("more")
        reservation = self.successResultOf(self.reserved("s-2"))
        self.answer("DELETE", f"{REQUESTS}/more", user="jane")
        message = self.failureResultOf(reservation.use(), Forbidden).value.message
        self.assertIn("it is being deleted", message)

    def test_withdrawn_meanwhile(self) -> None:
        """An approval that is withdrawn just before its use does not count."""
        write = self.storage.update

        def update(resource: Any, obj: Any) -> Any:
            self.storage.update = write  # type: ignore[method-assign]
            self.decide(denied=True)
            return write(resource, obj)

        self.storage.update = update  # type: ignore[method-assign]
        self.assertIn("bob withdrew the approval", self.not_opened())

    def test_second_approval(self) -> None:
        """Another approval is for another session."""
        self.opened()
        self.request("more")
        self.decide("more")
        self.opened(self.applicant(session="s-2"))
        stored = self.successResultOf(self.storage.list(CONSOLEREQUESTS.resource)).items
        sessions = {each["metadata"]["name"]: each["status"]["session"] for each in stored}
        self.assertEqual(sessions, {"r": "s-1", "more": "s-2"})


class EventTests(PolicyTestCase):
    """Events about requests, and their end."""

    def events(self) -> list[tuple[str, str, str]]:
        several = self.answer("GET", EVENTS)["items"]
        return sorted((e["reason"], e["involvedObject"]["kind"], e["message"]) for e in several)

    def test_events(self) -> None:
        """Request, approval, withdrawal and denial are Events of the request and of the machine."""
        self.request(reason="OPS-1")
        self.decide()
        self.decide(denied=True)
        events = self.events()
        until = timestamp(EPOCH + 3600)
        messages = {
            "ConsoleRequested": 'user "jane" asks for approval to drive the console, request "r": OPS-1',
            "ConsoleApproved": 'user "bob" approved that user "jane" may drive the console until '
            f'{until}, request "r": OPS-1',
            "ConsoleApprovalWithdrawn": 'user "bob" withdrew the approval of request "r" of user "jane"',
        }
        expected = [(r, k, m) for r, m in messages.items() for k in ("ConsoleRequest", "Machine")]
        self.assertEqual(events, sorted(expected))
        self.request("s")
        self.decide("s", denied=True)
        denied = ("ConsoleDenied", "Machine", 'user "bob" denied request "s" of user "jane"')
        self.assertIn(denied, self.events())

    def test_machine_unreadable(self) -> None:
        """An Event of the machine is recorded later if the store does not answer at first."""
        get, broken = self.storage.get, [True]

        def breaking(resource: Resource, *key: str, **more: Any) -> Deferred[Object]:
            if broken and resource == kinds.MACHINES.resource:
                return fail(ServiceUnavailable("the store is away"))
            return get(resource, *key, **more)

        self.request()
        before = len(self.events())
        status = {"approved": True, "decidedBy": "bob"}
        approved = {**self.stored(CONSOLEREQUESTS, "r"), "status": status}
        self.storage.get = breaking  # type: ignore[method-assign]
        self.successResultOf(self.storage.update(CONSOLEREQUESTS.resource, approved))
        self.assertEqual(len(self.events()), before)
        broken.clear()
        self.clock.advance(FIRST_PAUSE_SECONDS)
        self.assertEqual(
            [kind for reason, kind, _ in self.events() if reason == "ConsoleApproved"],
            ["ConsoleRequest", "Machine"],
        )

    def test_removed(self) -> None:
        """Requests are deleted a week after their end."""
        self.request("old", seconds=60)
        self.decide("old")
        self.request("pending")
        for _ in range(7 * 24):
            self.clock.advance(3600)
        self.assertEqual(len(self.answer("GET", REQUESTS)["items"]), 2)
        for _ in range(3):
            self.clock.advance(3600)
        names = [each["metadata"]["name"] for each in self.answer("GET", REQUESTS)["items"]]
        self.assertEqual(names, ["pending"])
