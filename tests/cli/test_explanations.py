"""
Tests for :mod:`twisted_exec.cli.explanations`.
"""

from __future__ import annotations

from dataclasses import replace

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.missing_right import MAY_OBSERVE, NEVER_ALLOWED, MissingRight
from twisted_exec.api.obstacles import Obstacle, because
from twisted_exec.api.spaces import SPACES
from twisted_exec.api.status import (
    BadGateway,
    Forbidden,
    GatewayTimeout,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from twisted_exec.cli.explanations import ask_for_role, doctor_hint, explain, not_allowed
from twisted_exec.cli.refusal_texts import with_next_request
from twisted_exec.kube.kubeconfig.client_config import (
    ClientConfig,
    ExecPlugin,
    KubeConfigError,
    Material,
)

_COMPUTE = "compute.ironcore.dev"


class ExplainTests(SynchronousTestCase):
    """Tests for :func:`explain`."""

    def test_refusals(self) -> None:
        """Errors of an API server are explained in the user's terms."""
        self.assertEqual(explain(NotFound("machines", "vm")), 'machine "vm" not found')
        for plural, group in (
            ("machines", "compute.ironcore.dev"),
            ("instances", "core.spheric.cloud"),
        ):
            self.assertEqual(
                explain(NotFound(plural, "vm", group), "lab"),
                f'{plural[:-1]} "vm" not found in namespace "lab"',
            )
        space = NotFound(SPACES.plural, "lab", SPACES.group, 'there is no space "lab"')
        self.assertEqual(
            explain(space, "x"), 'there is no space "lab"; kubectl get spaces -A lists all spaces'
        )
        pool = NotFound("machinepools", "p", "compute.ironcore.dev")
        self.assertEqual(explain(pool, "lab"), 'machinepool "p" not found')
        lost = NotFound("pools", "p", "x.y", 'pools.x.y "p" not found: machine vm was in it')
        self.assertEqual(explain(lost), 'pool "p" not found: machine vm was in it')
        self.assertEqual(explain(Forbidden("user ann may not")), "forbidden: user ann may not")
        missing = 'secrets "a" is forbidden: user "ann" cannot get secrets'
        self.assertEqual(explain(Forbidden(missing)), missing)
        self.assertEqual(
            explain(Unauthorized()),
            "the server does not accept these credentials: Unauthorized; get new credentials, or check "
            "--context and --user",
        )
        self.assertEqual(
            explain(TooManyRequests("runtime full", 3)), "runtime full; try again in 3 s"
        )
        self.assertEqual(explain(BadGateway("poollet down")), "poollet down")

    def test_unknown_credentials(self) -> None:
        """The message for a 401 names the server, the credentials and where they are from."""
        config = ClientConfig("https://api", credentials_source='user "ann" in f (context "c")')
        remedy = "; get new credentials, or check --context and --user"
        refusal = Unauthorized('machine "vm": Unauthorized (the token ended on 2020-01-01)')
        source = 'of user "ann" in f (context "c")'
        self.assertEqual(
            explain(refusal, config=replace(config, token="t")),
            f"https://api does not accept the bearer token {source}: Unauthorized (the token ended on "
            f"2020-01-01){remedy}",
        )
        plugin = ExecPlugin("login", "v1")
        for kind, own in (
            ("bearer token", replace(config, token_file="/run/token")),
            ("user name and password", replace(config, username="ann", password="x")),
            ("client certificate", replace(config, certificate=Material(path="/ann.crt"))),
            ("credential of the plugin login", replace(config, plugin=plugin)),
        ):
            told = f"https://api does not accept the {kind} {source}: Unauthorized{remedy}"
            self.assertEqual(explain(Unauthorized(), config=own), told)
        self.assertEqual(
            explain(Unauthorized(), config=config),
            f'https://api needs credentials, and user "ann" in f (context "c") has none: Unauthorized{remedy}',
        )
        own_users = Unauthorized('machine "vm": Unauthorized; the API server has users of its own')
        self.assertTrue(explain(own_users, config=config).endswith("has users of its own"))

    def test_out_of_reach(self) -> None:
        """The message for a server that cannot be reached ends with the next step."""
        config = ClientConfig("https://api")
        unreachable = Obstacle.SERVER_UNREACHABLE
        for obstacle, remedy in (
            (
                Obstacle.CONNECTION_REFUSED,
                "start that API server, or choose another cluster with --context",
            ),
            (
                Obstacle.NAME_UNKNOWN,
                "correct the server in the kubeconfig, or this host's DNS settings",
            ),
            (
                Obstacle.NO_ANSWER,
                "see that the API server runs, and is neither stopped nor overloaded (its log)",
            ),
            (Obstacle.CONNECT_TIMEOUT, "twisted-exec doctor checks each step to it"),
            (None, "twisted-exec doctor checks each step to it"),
        ):
            told = "cannot reach the API server https://api: why"
            error = because(unreachable, because(obstacle, BadGateway(told)))
            self.assertEqual(explain(error, config=config), f"{told}; {remedy}")
        elsewhere = "cannot reach https://other: connection refused"
        error = because(unreachable, BadGateway(elsewhere))
        self.assertEqual(explain(error, config=config), elsewhere)

    def test_behind_the_server(self) -> None:
        """
        A pool or a runtime that cannot be reached has a next step; a refusal that has a remedy, or is about the machine,
        has none.
        """
        told = 'machine "vm": cannot connect to pool "p" at h:1: connection refused'
        remedy = "twisted-exec doctor vm -n lab says what to do"
        for error, hint in (
            (because(Obstacle.POOLLET_FAILED, BadGateway(told)), remedy),
            (because(Obstacle.RUNTIME_FAILED, ServiceUnavailable(told)), remedy),
            (because(Obstacle.RUNTIME_FAILED, GatewayTimeout(told)), remedy),
            (because(Obstacle.NO_ADDRESS, ServiceUnavailable(told)), remedy),
            (because(Obstacle.RUNTIME_FAILED, TooManyRequests(told)), ""),
            (because(Obstacle.RUNTIME_FAILED, ServiceUnavailable(told, retry_after_seconds=1)), ""),
            (because(Obstacle.CANNOT_START, ServiceUnavailable(told)), ""),
            (ServiceUnavailable(told), ""),
            (KubeConfigError(told), ""),
        ):
            self.assertEqual(doctor_hint(error, "vm", "lab"), hint)

    def test_namespace(self) -> None:
        """A user without rights in a namespace may have mistyped it: nobody else tells them."""
        words = 'User "ann" cannot drive resource "machines/console" in API group '
        words += '"compute.ironcore.dev" in the namespace "kube-sytem"'
        refusal = Forbidden(f"x is forbidden: {words}")
        self.assertIn(
            f'{words}; is the namespace "kube-sytem" right? If so, ask an administrator for the role '
            "console-user (console-observer suffices for --read-only): kubectl create rolebinding ",
            explain(refusal, "kube-sytem"),
        )
        self.assertNotIn("right?", explain(refusal))
        requests = (
            'x is forbidden: User "ann" cannot create resource "consolerequests" in API group '
        )
        requests += (
            '"console.twisted-exec.dev" in the namespace "lab"'  # after rights at the machine
        )
        self.assertNotIn("right?", explain(Forbidden(requests), "lab"))
        takeover = Forbidden(str(refusal.message).replace("drive", "takeover"))  # has rights there
        self.assertNotIn("right?", explain(takeover, "kube-sytem"))

    def test_several_rights(self) -> None:
        """The message for a 403 names all roles that the command needs, and as few as possible."""
        role = "kubectl create rolebinding ann-{0} --clusterrole={0} --user=ann -n lab"
        for verb, subresource, roles in (
            ("list", "", ["console-log-reader", "view"]),
            ("get", "log", ["console-log-reader"]),
        ):
            refusal = Forbidden(
                f'x is forbidden: User "ann" cannot {verb} resource "machines{"/" * bool(subresource)}'
                f'{subresource}" in API group "{_COMPUTE}" in the namespace "lab"'
            )
            told = explain(with_next_request(refusal, "get", "log"))
            self.assertTrue(told.endswith(": " + " && ".join(role.format(each) for each in roles)))
            self.assertIn(f" role{'s' * (len(roles) > 1)} {' and '.join(roles)}: ", told)

    def test_missing_right(self) -> None:
        """The message for a 403 names the smallest role to ask for, and the command that grants it."""
        compute, own = "compute.ironcore.dev", "console.twisted-exec.dev"

        def told(
            verb: str, resource: str, where: str = ' in the namespace "lab"', group: str = ""
        ) -> str:
            group = group or (compute if resource.startswith("machine") else own)
            words = (
                f'User "ann@x" cannot {verb} resource "{resource}" in API group "{group}"{where}'
            )
            line = explain(Forbidden(f"x is forbidden: {words}"))
            self.assertIn(f"{words}; ", line)
            return line.partition("ask an administrator for ")[2]

        for verb, resource, role in (
            ("observe", "machines/console", "console-observer"),
            ("get", "machines/console", "console-observer"),  # a host's words for the same
            ("get", "machines/log", "console-log-reader"),
            ("list", "machines", "view"),
            ("patch", "machines", "edit"),
            ("takeover", "machines/console", "console-operator"),
            ("list", "consolesessions", "console-session-reader"),
            ("delete", "consolesessions", "admin"),
            ("list", "consolerecordings", "console-session-reader"),
            ("get", "consolerecordings/content", "console-recording-reader"),
            ("get", "deletedconsoles/log", "admin"),
            ("list", "consolerequests", "console-session-reader"),
            ("patch", "consolerequests/approval", "console-approver"),
            ("create", "consolerequests", "console-observer"),
            ("get", "consolerequests", "console-session-reader"),
            ("create", "consolepolicies", "console-policy-editor"),
            ("list", "consolealerts", "view"),
        ):
            self.assertEqual(
                told(verb, resource),
                f"the role {role}: kubectl create rolebinding ann-x-{role} --clusterrole={role} "
                "--user=ann@x -n lab",
            )
        for verb, resource in (
            ("create", "machines/exec"),
            ("get", "machines/exec"),  # a host's words for a WebSocket
            ("drive", "machines/console"),
        ):
            self.assertEqual(
                told(verb, resource),
                "the role console-user (console-observer suffices for --read-only): kubectl create "
                "rolebinding ann-x-console-user --clusterrole=console-user --user=ann@x -n lab",
            )
        self.assertEqual(
            told("list", "machines", ""),
            "the role view: kubectl create clusterrolebinding ann-x-view --clusterrole=view --user=ann@x",
        )
        self.assertEqual(told("delete", "widgets", group="x"), "a role with delete on widgets")

    def test_agents(self) -> None:
        """For one right of editors, an agent gets a role of its own, and never the role of editors."""
        for verb, group, resource, name in (
            ("patch", _COMPUTE, "machines", "patch-machines"),
            ("create", "console.twisted-exec.dev", "consolerecordings", "create-consolerecordings"),
        ):
            right = MissingRight("agent:ann:bot", verb, group, resource, "", "lab")
            self.assertEqual(
                ask_for_role(right),
                f"ask an administrator for this right: kubectl create clusterrole {name} --verb={verb} "
                f"--resource={resource}.{group}, and kubectl create rolebinding agent-ann-bot-{name} "
                f"--clusterrole={name} --user=agent:ann:bot -n lab",
            )
        observing = MissingRight("agent:ann:bot", "observe", _COMPUTE, "machines", "console", "lab")
        self.assertIn("the role console-observer: ", ask_for_role(observing))

    def test_never(self) -> None:
        """A refusal that no role helps against gets no remedy."""
        words = 'x is forbidden: User "agent:ann:bot" cannot create resource "certificatesigningrequests" in API '
        words += 'group "certificates.k8s.io" at the cluster scope: an agent may not approve'
        causes = [{"reason": NEVER_ALLOWED, "message": words}]
        self.assertEqual(explain(Forbidden(words, details={"causes": causes})), words)

    def test_servers_remedy(self) -> None:
        """The command takes the place of the server's own remedy."""
        words = 'x is forbidden: User "ann" cannot get resource "machines/log" in API group '
        words += '"compute.ironcore.dev" in the namespace "lab"'
        remedy = 'ask an administrator for the role console-log-reader in the namespace "lab"'
        causes = [
            MissingRight("ann", "get", _COMPUTE, "machines", "log", "lab").cause(words, remedy)
        ]
        line = explain(Forbidden(f"{words}: {remedy}", details={"causes": causes}))
        self.assertEqual(line, explain(Forbidden(words)))
        self.assertTrue(line.endswith("--user=ann -n lab"), line)

    def test_right_to_observe(self) -> None:
        """A 403 that names a smaller request gets no other remedy, unless the user wants to take over."""
        words = 'is forbidden: User "ann" cannot create resource "machines/exec" in API group "g" in the '
        words += 'namespace "lab": you may observe it: open it with --read-only'
        causes = [{"reason": MAY_OBSERVE, "message": "you may observe it"}]
        self.assertEqual(explain(Forbidden(words, details={"causes": causes})), words)
        words = 'is forbidden: User "ann" cannot takeover resource "machines/console" in API group '
        words += '"compute.ironcore.dev" in the namespace "lab": you may drive it: open it without --force'
        self.assertEqual(
            explain(Forbidden(words)),
            f"{words}; to take over, ask an administrator for the role console-operator: kubectl create "
            "rolebinding ann-console-operator --clusterrole=console-operator --user=ann -n lab",
        )

    def test_point_first(self) -> None:
        """The long refusal of a role begins with what the user may not do; other lines stay as they are."""
        words = 'x is forbidden: User "ann" cannot {} in API group "compute.ironcore.dev" in the namespace "lab"'
        for right, point in (
            ('get resource "machines/log"', "you may not read the log of vm: "),
            ('takeover resource "machines/console"', "you may not take over vm: "),
        ):
            refusal = Forbidden(words.format(right))
            line = explain(refusal, "lab")
            told = not_allowed(refusal, line, "vm", "read the log of")
            self.assertEqual(told, f"{point}{line}")
        self.assertEqual(not_allowed(BadGateway("no"), "no route", "vm", "open"), "no route")

    def test_cause(self) -> None:
        """The cause of a refusal names the right, whatever the message says."""
        right = MissingRight("ann", "get", _COMPUTE, "machines", "log", "lab")
        refusal = Forbidden("you may not", details={"causes": [right.cause("no")]})
        line = explain(refusal, "lab")
        self.assertIn(
            'is the namespace "lab" right? If so, ask an administrator for the role ', line
        )
        self.assertTrue(line.endswith("--clusterrole=console-log-reader --user=ann -n lab"), line)
        self.assertTrue(
            not_allowed(refusal, line, "vm", "read").startswith("you may not read vm: ")
        )

    def test_others(self) -> None:
        """A kubeconfig error is shown as it is; an unexpected exception is an internal error."""
        self.assertEqual(explain(KubeConfigError("f: not YAML")), "f: not YAML")
        self.assertEqual(explain(ValueError("x")), "internal error: ValueError: x")
