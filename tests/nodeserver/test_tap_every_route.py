"""
Every route of the node server, with the permission that it needs; a new route must be added here.
"""

from __future__ import annotations

from twisted_exec.nodeserver.nodes.probe import probe_routes
from twisted_exec.nodeserver.tap import ROUTES

from .chain import JANE, NODE, UPGRADE, ServerCase
from .support import put_leaf_pod, put_pod

VALUES = {"namespace": "default", "pod": "web", "container": "main", "node": NODE}
STREAMS = {"exec", "attach", "portForward", "run"}
READ = {
    "containerLogs": ["proxy"],
    "healthz": ["healthz", "proxy"],
    "metrics": ["metrics"],
    "pods": ["pods", "proxy"],
    "runningpods": ["pods", "proxy"],
    "stats": ["stats"],
}
"""What of a Node each first word is about, where nothing is opened."""


class EveryRouteTests(ServerCase):
    """Every route passes the one gate."""

    async def begin(self) -> None:
        """Start a server with all routes, and a Pod."""
        await self.start(*ROUTES, probe_routes("kube-system/exec-nodeserver"))
        pod = put_pod(self.root, "web", NODE)
        put_leaf_pod(self.leaf, pod)
        self.uid = pod["metadata"]["uid"]

    def routes(self) -> list[tuple[bytes, str]]:
        """Each method and path that is answered at all."""
        # A request shows one route, and these are to be all.
        table = self.server.site.resource._routes
        values = {**VALUES, "uid": self.uid}
        return [
            (method.encode(), pattern.format(**values))
            for method, pattern, _ in table
            if method != "HEAD"
        ]

    async def test_known(self) -> None:
        """All first words are known here, in both forms where a UID may be given."""
        await self.begin()
        paths = {path for _, path in self.routes()}
        self.assertEqual({path.split("/")[1] for path in paths}, STREAMS | set(READ))
        for word in STREAMS | {"containerLogs"}:
            self.assertEqual(len([path for path in paths if path.startswith(f"/{word}/")]), 2)

    async def test_nobody(self) -> None:
        """Without credentials each is 401."""
        await self.begin()
        for method, path in self.routes():
            for headers in ([], UPGRADE):
                answer = await self.ask(path, identity=None, method=method, headers=headers)
                self.assertEqual((answer.code, answer.body), (401, b"Unauthorized"), path)

    async def test_not_allowed(self) -> None:
        """A user without permission gets 403 from every route, without hints at existence or errors."""
        await self.begin()
        for method, path in self.routes():
            for target in (path, path.replace("/web", "/no"), f"{path}?tailLines=x&sinceSeconds=0"):
                answer = await self.ask(target, identity=JANE, method=method, headers=UPGRADE)
                self.assertEqual(answer.code, 403, f"{method!r} {target}")
                self.assertNotIn(b"not found", answer.body)

    async def test_asked(self) -> None:
        """Each route checks its own permission; opening a stream is ``create`` with any method."""
        await self.begin()
        for method, path in self.routes():
            self.asked.clear()
            await self.ask(path, identity=JANE, method=method, headers=UPGRADE)
            word = path.split("/")[1]
            verb = "create" if word in STREAMS or method == b"POST" else "get"
            expected = [("jane", verb, f"nodes/{each}", NODE) for each in READ.get(word, ["proxy"])]
            self.assertEqual(self.asked, expected, f"{method!r} {path}")
