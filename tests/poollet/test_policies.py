"""Tests for :mod:`twisted_exec.poollet.policies`."""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote_plus

from twisted.internet.defer import Deferred
from twisted.logger import LogLevel, formatEvent, globalLogPublisher

from tests.chain import until
from tests.poollet.chain import JANE, USERS, PoolletCase, status
from twisted_exec.api.kinds import CONSOLEPOLICIES, MACHINES
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused

POLICIES = CONSOLEPOLICIES.resource
IRONCORE = USERS.issue_client("ironcore")


class PolicyTests(PoolletCase):
    """Users who connect without an API server, which would evaluate the ConsolePolicies."""

    more: ClassVar[dict[str, Any]] = {}

    async def setUp(self) -> None:
        await super().setUp()
        self.allowed |= {(user, "machinepools/proxy", "pool-a") for user in ("jane", "ironcore")}
        await self.start(**self.more)

    def direct(self) -> dict[str, Any]:
        """Return who connects without an API server."""
        return {"user": b"", "identity": JANE}

    async def policy(self, name: str, **labels: str) -> None:
        """Create a policy for machines with labels."""
        spec = {"selector": {"matchLabels": labels}, "people": 2}
        await self.client.create(POLICIES, {"metadata": {"name": name}, "spec": spec}, "lab")

    async def refused(self) -> tuple[int, str]:
        with self.assertRaises(UpgradeRefused) as caught:
            await self.open(**self.direct())
        return caught.exception.code, status(caught.exception.body)["message"]

    async def ended(self) -> str:
        """Wait until the runtime ends a session, and return the request for it."""
        await until(lambda: self.lines.heads and self.lines.heads[-1].startswith(b"DELETE"))
        return unquote_plus(self.lines.heads[-1].split(b" ")[1].decode())

    async def test_selected(self) -> None:
        """They are refused where a policy applies; users of API servers are not."""
        await self.policy("others", tier="gold")
        await self.view(**self.direct())
        await self.policy("all")
        code, message = await self.refused()
        self.assertEqual(code, 403)
        self.assertIn('is under ConsolePolicy "lab/all": open its console ', message)
        await self.view()

    async def test_unusable_selector(self) -> None:
        """They are refused if a policy of another release has a selector that is refused now."""
        expressions = [{"key": "tier", "operator": "In"}]
        spec = {"selector": {"matchExpressions": expressions}, "people": 2}
        await self.client.create(POLICIES, {"metadata": {"name": "old"}, "spec": spec}, "lab")
        code, message = await self.refused()
        self.assertEqual(code, 403)
        self.assertIn('is under ConsolePolicy "lab/old": open its console ', message)

    async def test_appears(self) -> None:
        """A policy that appears, or that selects other machines from now on, ends their sessions."""
        await self.policy("others", tier="gold")
        await self.view()
        await self.view(**self.direct())
        subjects = self.poollet.consoles.sessions.subjects()
        self.assertEqual(len(subjects), 2)
        direct = [each.session for each in subjects if not each.caller]
        await until(lambda: self.poollet.consoles.policies.is_current)
        spec = {"spec": {"selector": {"matchLabels": None}}}
        await self.client.patch(POLICIES, "others", spec, "lab")
        request = await self.ended()
        self.assertIn("reason=AuthorizationWithdrawn", request)
        self.assertIn('is under ConsolePolicy "lab/others": open its console ', request)
        self.assertEqual(parse_qs(request.partition("?")[2])["session"], direct)

    async def test_labelled(self) -> None:
        """A machine that gets the label of a policy loses their sessions."""
        await self.policy("gold", tier="gold")
        await self.view(**self.direct())
        await until(lambda: self.poollet.consoles.policies.is_current)
        labels = {"metadata": {"labels": {"tier": "gold"}}}
        await self.client.patch(MACHINES.resource, "vm", labels, "lab")
        self.assertIn('is under ConsolePolicy "lab/gold"', await self.ended())

    async def test_while_opening(self) -> None:
        """A policy that appears after the check and before there is a session counts, too."""
        exec_ = self.runtime.exec
        held: Deferred[None] = Deferred()

        async def exec_later(*arguments: Any, **more: Any) -> Any:
            await held
            return await exec_(*arguments, **more)

        self.patch(self.runtime, "exec", exec_later)
        self.give_time()
        viewing = Deferred.fromCoroutine(self.view(**self.direct()))
        await until(lambda: self.poollet.consoles.policies.is_current)
        await self.policy("all")
        held.callback(None)
        self.assertIn('is under ConsolePolicy "lab/all"', await self.ended())
        viewing.addErrback(lambda _: None)
        await viewing

    async def test_unknown(self) -> None:
        """They are refused if the poollet may not read policies."""
        self.cluster.forbidden.add(POLICIES)
        code, message = await self.refused()
        self.assertEqual(code, 503)
        self.assertIn("needs list and watch on consolepolicies.console.twisted-exec.dev", message)

    async def test_no_policies(self) -> None:
        """They are not refused where no API server has policies, whatever the poollet may read."""
        for resource in [each for each in self.cluster.kinds if each.group == POLICIES.group]:
            del self.cluster.kinds[resource]
        await self.view(**self.direct())
        self.cluster.forbidden.add(POLICIES)
        await self.view(**self.direct())


class ForeignServerTests(PoolletCase):
    """An API server of another make, such as ironcore's, which has none of our groups."""

    async def setUp(self) -> None:
        await super().setUp()
        self.allowed.add(("jane", "machinepools/proxy", "pool-a"))
        for resource in [each for each in self.cluster.kinds if each.group == POLICIES.group]:
            del self.cluster.kinds[resource]
            self.cluster.forbidden.add(resource)

    async def test_console(self) -> None:
        """Consoles open, and the poollet warns of nothing, although its role does not name our groups."""
        warnings: list[str] = []

        def observe(event: Any) -> None:
            if event["log_level"] >= LogLevel.warn:
                warnings.append(formatEvent(event))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        await self.start()
        await self.view(user=b"", identity=JANE)
        asked = {plural for verb, plural, *_ in self.cluster.requests if verb == "list"}
        self.assertLessEqual({"consolealerts", "consolerecordings"}, asked)
        self.assertEqual([each for each in warnings if "console.twisted-exec.dev" in each], [])


class ServerPolicyTests(PolicyTests):
    """An API server that names no user, and so evaluates no policies for one."""

    more: ClassVar[dict[str, Any]] = {"pool_proxy_suffices": ["ironcore"]}

    def direct(self) -> dict[str, Any]:
        """As :meth:`PolicyTests.direct`."""
        return {"user": b"", "identity": IRONCORE}

    async def test_server(self) -> None:
        """The refusal names the server, whose user has connected to no other one."""
        await self.view(**self.direct())
        await self.policy("all")
        _, message = await self.refused()
        self.assertIn("through exec-apiserver: 'ironcore' does not evaluate the policy", message)
