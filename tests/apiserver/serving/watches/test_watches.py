"""
Tests for :mod:`twisted_exec.apiserver.serving.watches.watches`.
"""

from __future__ import annotations

import base64
import gc
import json
import weakref

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.support import MACHINES, MERGE, APITestCase, Watching
from twisted_exec.api.kinds import MACHINES as MACHINE
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.apiserver.serving.query import ListOptions
from twisted_exec.apiserver.serving.request_limits import RequestLimits
from twisted_exec.apiserver.serving.selection import is_selected
from twisted_exec.apiserver.serving.watches import converter
from twisted_exec.apiserver.serving.watches.converter import WatchConverter
from twisted_exec.apiserver.serving.watches.streams import LineStream
from twisted_exec.program.turns import TURN_SECONDS
from twisted_exec.streaming.http.responses import Dispatcher
from twisted_exec.streaming.http.site import Request
from twisted_exec.testing.network import MemoryServer

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
INITIAL = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
USERS = ("admin", "admin", "admin", "jane", "jane")
POOL_A = "fieldSelector=spec.machinePoolRef.name%3Dpool-a"


class WatchTests(APITestCase):
    """Watches over HTTP."""

    def label(self, name: str, **labels: str) -> None:
        patch = {"metadata": {"labels": labels}}
        self.answer("PATCH", f"{MACHINES}/{name}", patch, content_type=MERGE)

    def test_live(self) -> None:
        """Every change after the version is sent."""
        version = self.storage.version()
        watch = self.watch(f"{MACHINES}?watch=true&resourceVersion={version}")
        self.assertEqual(watch.events(), [])
        made = self.make_machine("a")
        self.label("a", x="y")
        self.answer("DELETE", f"{MACHINES}/a")
        events = watch.events()
        self.assertEqual([event["type"] for event in events], ["ADDED", "MODIFIED", "DELETED"])
        self.assertEqual(events[0]["object"], made)
        versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
        self.assertEqual(versions, [version + 1, version + 2, version + 3])

    def test_missed(self) -> None:
        """A store that missed changes ends its watches with 410, after what it told before."""
        watch = self.watch(f"{MACHINES}?watch=1&resourceVersion={self.storage.version()}")
        self.make_machine("a")
        self.storage.lose()
        made, over = watch.events()
        self.assertEqual((made["type"], over["type"]), ("ADDED", "ERROR"))
        self.assertEqual((over["object"]["code"], over["object"]["reason"]), (410, "Expired"))
        self.make_machine("b")
        self.assertEqual(watch.events(), [])
        self.assertEqual(
            self.watch(f"{MACHINES}?watch=1").names(), [("ADDED", "a"), ("ADDED", "b")]
        )

    def test_from_now(self) -> None:
        """Without a version, or with 0, a watch begins with what there is."""
        self.make_machine("a")
        for query in ("watch=1", "watch&resourceVersion=0", "watch=&resourceVersion="):
            watch = self.watch(f"{MACHINES}?{query}")
            self.assertEqual(watch.names(), [("ADDED", "a")])

    def test_replay(self) -> None:
        """Changes since the version come first."""
        version = self.storage.version()
        self.make_machine("a")
        watch = self.watch(f"{MACHINES}?watch=1&resourceVersion={version}")
        self.make_machine("b")
        self.assertEqual(watch.names(), [("ADDED", "a"), ("ADDED", "b")])

    def test_selector(self) -> None:
        """
        For this watcher, objects that begin to match are added, and those that cease to are
        deleted.
        """
        self.make_machine("a", "")
        self.make_machine("b", "pool-b")
        version = self.storage.version()
        watch = self.watch(f"{MACHINES}?watch=1&{POOL_A}&resourceVersion={version}")
        labelled = self.watch(f"{MACHINES}?watch=1&labelSelector=x&resourceVersion={version}")
        bind = {"spec": {"machinePoolRef": {"name": "pool-a"}}}
        self.answer("PATCH", f"{MACHINES}/a", bind, content_type=MERGE)
        self.label("a", x="1")
        self.label("a", x="2")
        self.answer("PATCH", f"{MACHINES}/a", {"metadata": {"labels": None}}, content_type=MERGE)
        self.assertEqual(
            watch.names(), [("ADDED", "a"), ("MODIFIED", "a"), ("MODIFIED", "a"), ("MODIFIED", "a")]
        )
        events = labelled.events()
        self.assertEqual([event["type"] for event in events], ["ADDED", "MODIFIED", "DELETED"])
        last = events[-1]["object"]["metadata"]
        self.assertEqual(last["labels"], {"x": "2"})
        self.assertEqual(int(last["resourceVersion"]), self.storage.version())

    def test_one_name(self) -> None:
        """A watch of one object."""
        watch = self.watch(f"{MACHINES}?watch=1&fieldSelector=metadata.name%3Da")
        self.make_machine("b")
        self.make_machine("a")
        self.assertEqual(watch.names(), [("ADDED", "a")])

    def test_table(self) -> None:
        """One row each; column definitions are sent once."""
        watch = self.watch(f"{MACHINES}?watch=1", accept=TABLE)
        self.make_machine("a")
        self.make_machine("b")
        first, second = [event["object"] for event in watch.events()]
        self.assertEqual(first["rows"][0]["cells"][0], "a")
        self.assertEqual(len(first["columnDefinitions"]), len(first["rows"][0]["cells"]))
        self.assertEqual(second["columnDefinitions"], [])

    def test_expired(self) -> None:
        """A client that comes too late has to list again."""
        self.make_machine("a")
        for turn in range(201):
            self.label("a", turn=str(turn))
        (event,) = self.watch(f"{MACHINES}?watch=1&resourceVersion=1").events()
        self.assertEqual(event["type"], "ERROR")
        self.assertEqual((event["object"]["code"], event["object"]["reason"]), (410, "Expired"))

    def test_bookmarks(self) -> None:
        """Bookmarks are sent once a minute, and at the end, if requested."""
        watch = self.watch(f"{MACHINES}?watch=1&allowWatchBookmarks=true&timeoutSeconds=100")
        self.make_machine("a")
        self.answer("POST", "/api/v1/namespaces", {"metadata": {"name": "n"}}, code=201)
        self.clock.advance(60)
        events = watch.events()
        self.assertEqual([event["type"] for event in events], ["ADDED", "BOOKMARK"])
        bookmark = events[1]["object"]
        self.assertEqual(bookmark["kind"], "Machine")
        self.assertEqual(int(bookmark["metadata"]["resourceVersion"]), self.storage.version())
        self.clock.advance(40)
        self.assertEqual([event["type"] for event in watch.events()], ["BOOKMARK"])

    def test_initial_events(self) -> None:
        """The end of the initial objects is marked if requested."""
        self.make_machine("a")
        query = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true"
        events = self.watch(f"{MACHINES}?{query}&resourceVersionMatch=NotOlderThan").events()
        self.assertEqual([event["type"] for event in events], ["ADDED", "BOOKMARK"])
        annotations = events[1]["object"]["metadata"]["annotations"]
        self.assertEqual(annotations["k8s.io/initial-events-end"], "true")
        blueprint = annotations["kubernetes.io/initial-events-list-blueprint"]
        self.assertEqual(
            json.loads(base64.b64decode(blueprint)),
            {
                "kind": "MachineList",
                "apiVersion": "compute.ironcore.dev/v1alpha1",
                "metadata": {},
                "items": [],
            },
        )

    def test_initial_events_forms(self) -> None:
        """The end of what there is comes in the watch's form; not as a Table, which has no list."""
        self.make_machine("a")
        path = f"{MACHINES}?watch=1&{INITIAL}&allowWatchBookmarks=true"
        partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        first, last = (event["object"] for event in self.watch(path, accept=partial).events())
        self.assertEqual((first["kind"], last["kind"]), ("PartialObjectMetadata",) * 2)
        annotations = last["metadata"]["annotations"]
        blueprint = base64.b64decode(annotations["kubernetes.io/initial-events-list-blueprint"])
        self.assertEqual(json.loads(blueprint)["kind"], "PartialObjectMetadataList")
        first, _ = (event["object"] for event in self.watch(path, accept=TABLE).events())
        self.assertEqual(first["kind"], "Machine")
        table = TABLE.partition(",")[0]
        response = self.ask("GET", path, headers=[("Accept", table)])
        self.assertEqual((response.code, response.json()["reason"]), (406, "NotAcceptable"))
        # Without bookmarks nothing is announced, and a Table will do.
        path = f"{MACHINES}?watch=1&{INITIAL}"
        (only,) = self.watch(path, accept=TABLE).events()
        self.assertEqual((only["type"], only["object"]["kind"]), ("ADDED", "Table"))

    def test_initial_events_of_a_version(self) -> None:
        """
        Initial objects are not older than the requested version; the mark has the current one.
        """
        version = self.storage.version()
        self.make_machine("a")
        for asked in ("", "0", version, version + 1):
            query = f"{INITIAL}&allowWatchBookmarks=1&resourceVersion={asked}"
            added, end = self.watch(f"{MACHINES}?watch=1&{query}").events()
            self.assertEqual(added["type"], "ADDED")
            self.assertEqual(end["object"]["metadata"]["resourceVersion"], str(version + 1))

    def test_no_initial_events(self) -> None:
        """Without initial objects a watch begins at the version, or now."""
        version = self.storage.version()
        self.make_machine("a")
        none = INITIAL.replace("true", "false")
        watches = [
            self.watch(f"{MACHINES}?watch=1&{none}&resourceVersion={asked}")
            for asked in ("", "0", version)
        ]
        self.make_machine("b")
        self.assertEqual(
            [[name for _, name in watch.names()] for watch in watches], [["b"], ["b"], ["a", "b"]]
        )

    def test_version_to_come(self) -> None:
        """A future version is an error at once: the client knows another store."""
        version = self.storage.version() + 10
        for query in ("", f"&{INITIAL}", f"&{INITIAL.replace('true', 'false')}"):
            watch = self.watch(f"{MACHINES}?watch=1&resourceVersion={version}{query}")
            (event,) = watch.events()
            self.assertEqual(event["type"], "ERROR")
            self.assertEqual((event["object"]["code"], event["object"]["reason"]), (504, "Timeout"))
            (cause,) = event["object"]["details"]["causes"]
            self.assertEqual(cause["reason"], "ResourceVersionTooLarge")

    def test_contradictions(self) -> None:
        """Options that cannot be meant together are named, as kube-apiserver names them."""
        match = "resourceVersionMatch"
        for query, told in (
            ("sendInitialEvents=true", ["sendInitialEvents requires setting"]),
            (f"sendInitialEvents=0&{match}=Exact", ["requires setting", "Unsupported value"]),
            (f"{match}=NotOlderThan", ["is forbidden for watch unless sendInitialEvents"]),
            (f"{INITIAL}&continue=x", ["is forbidden when continue is provided"]),
        ):
            status = self.answer("GET", f"{MACHINES}?watch=1&{query}", code=422)
            causes = status["details"]["causes"]
            self.assertEqual({cause["field"] for cause in causes}, {match})
            self.assertEqual(len(causes), len(told))
            for cause, part in zip(causes, told, strict=True):
                self.assertIn(part, cause["message"])

    def test_bad_query(self) -> None:
        """A malformed query is refused before the watch begins."""
        for query in ("resourceVersion=x", "timeoutSeconds=x", "labelSelector=%21%21"):
            self.refused(400, "GET", f"{MACHINES}?watch=1&{query}")

    def test_deleted_at_its_version(self) -> None:
        """A deleted object is sent as it was, at the version of its deletion."""
        made = self.make_machine("a")
        watch = self.watch(f"{MACHINES}?watch=1&resourceVersion={self.storage.version()}")
        self.answer("DELETE", f"{MACHINES}/a")
        (event,) = watch.events()
        metadata = event["object"]["metadata"]
        (console,) = self.answer("GET", "/apis/console.twisted-exec.dev/v1alpha1/deletedconsoles")[
            "items"
        ]
        written = int(console["metadata"]["resourceVersion"])  # by the controller, right behind
        self.assertEqual(int(metadata["resourceVersion"]), written - 1)
        self.assertEqual(event["object"]["spec"], made["spec"])

    def test_partial(self) -> None:
        """A watch of metadata alone, whatever list it belongs to."""
        for kind in ("PartialObjectMetadata", "PartialObjectMetadataList"):
            accept = f"application/json;as={kind};g=meta.k8s.io;v=v1,application/json"
            path = f"{MACHINES}?watch=1&resourceVersion={self.storage.version()}"
            watch = self.watch(path, accept=accept)
            made = self.make_machine(f"of-{kind.lower()}")
            (event,) = watch.events()
            self.assertEqual(
                event["object"],
                {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": made["metadata"],
                },
            )

    def test_leaving_as_table(self) -> None:
        """An object that ceases to match is encoded once per form."""
        self.make_machine("a")
        path = f"{MACHINES}?watch=1&{POOL_A}&resourceVersion={self.storage.version()}"
        plain, tables = self.watch(path), [self.watch(path, accept=TABLE) for _ in range(2)]
        self.answer("DELETE", f"{MACHINES}/a")
        (event,) = plain.events()
        self.assertEqual(event["type"], "DELETED")
        for watch in tables:
            (told,) = watch.events()
            self.assertEqual(told["type"], "DELETED")
            (row,) = told["object"]["rows"]
            self.assertEqual(row["object"]["metadata"], event["object"]["metadata"])

    def test_timeout(self) -> None:
        """A watch ends in good order when its time is over."""
        watch = self.watch(f"{MACHINES}?watch=1&timeoutSeconds=5")
        self.clock.advance(5)
        self.assertTrue(watch.client.received().endswith(b"0\r\n\r\n"))

    def test_client_leaves(self) -> None:
        """Nothing is left of a watch whose client left."""
        watch = self.watch(f"{MACHINES}?watch=1&allowWatchBookmarks=1")
        before = len(self.clock.getDelayedCalls())
        watch.client.lose()
        self.assertEqual(len(self.clock.getDelayedCalls()), before - 2)
        self.make_machine("a")

    def test_server_stops(self) -> None:
        """A server that stops ends its watches."""
        watch = self.watch(f"{MACHINES}?watch=1")
        for watches in self.parts.watches:
            watches.end_all()
        self.assertTrue(watch.client.received().endswith(b"0\r\n\r\n"))
        late = self.watch(f"{MACHINES}?watch=1")  # it was requested before the server stopped
        self.clock.advance(0)
        self.assertTrue(late.client.received().endswith(b"0\r\n\r\n"))

    def test_bad_selector(self) -> None:
        """An unsupported selector is refused before the watch begins."""
        self.refused(400, "GET", f"{MACHINES}?watch=1&fieldSelector=spec.power%3DOn")


class LongSelectorTests(APITestCase):
    """Watches whose selectors take long to compare with an object."""

    limits = RequestLimits(terms=9, terms_per_user=6)
    _COMPARE_SECONDS = 0.75 * TURN_SECONDS

    def setUp(self) -> None:
        super().setUp()
        self.compared = 0

        def slow(kind: Kind, obj: Object, options: ListOptions) -> bool:
            self.compared += 1
            self.clock.rightNow += self._COMPARE_SECONDS
            return is_selected(kind, obj, options)

        self.patch(converter, "is_selected", slow)
        for user in ("jane", "bob"):
            self.bind(user, "edit")

    def labelled(
        self, selector: str, since: int = 0, user: str = "admin", more: str = ""
    ) -> Watching:
        """A watch with a label selector, by default from now on."""
        version = since or self.storage.version()
        path = f"{MACHINES}?watch=1&labelSelector={selector}&resourceVersion={version}{more}"
        return self.watch(path, user=user)

    def turn(self) -> None:
        self.clock.advance(2 * TURN_SECONDS)

    def test_equal(self) -> None:
        """Equal selectors are compared once with each change."""
        watches = [self.labelled("!a") for _ in range(3)]
        self.make_machine("vm")
        self.assertEqual([watch.names() for watch in watches], [[("ADDED", "vm")]] * 3)
        self.assertEqual(self.compared, 1)

    def test_turns(self) -> None:
        """A change reaches watches in short turns, in order."""
        watches = [
            self.labelled(f"!{key}", user=user) for key, user in zip("abcde", USERS, strict=True)
        ]
        self.make_machine("vm-1")
        self.make_machine("vm-2")
        self.assertEqual(self.compared, 2)
        for _ in range(4):
            self.turn()
        self.assertEqual(self.compared, 10)
        for watch in watches:
            self.assertEqual(watch.names(), [("ADDED", "vm-1"), ("ADDED", "vm-2")])

    def test_turns_of_users(self) -> None:
        """A user's watch waits for one step of each other user, however many watches they have."""
        for key in "abcdef":
            self.labelled(f"!{key}", user="jane")
        quiet = self.labelled("!x", user="bob")
        for number in range(3):
            self.make_machine(f"vm-{number}")
        self.assertEqual(self.compared, 2)
        for number in range(3):
            self.turn()
            self.assertEqual(quiet.names(), [("ADDED", f"vm-{number}")])

    def test_lines_of_two_changes(self) -> None:
        """A change is encoded and compared once, though users' turns are at different changes."""
        behind = [self.labelled(f"!{key}", user="jane") for key in "abc"]
        ahead = [self.labelled("!a", user=user) for user in ("bob", "admin")]
        for number in range(2):
            self.make_machine(f"vm-{number}")
        for _ in range(8):
            self.turn()
        for watch in (*behind, *ahead):
            self.assertEqual(watch.names(), [("ADDED", "vm-0"), ("ADDED", "vm-1")])
        self.assertEqual(self.compared, 6)

    def test_past(self) -> None:
        """Past changes are compared in short turns, too; later ones follow in order."""
        since = self.storage.version()
        for number in range(4):
            self.make_machine(f"vm-{number}")
        watch = self.labelled("!a", since)
        self.assertEqual(self.compared, 2)
        self.make_machine("vm-4")
        for _ in range(3):
            self.turn()
        self.assertEqual(watch.names(), [("ADDED", f"vm-{number}") for number in range(5)])

    def test_existing(self) -> None:
        """Initial objects are compared in short turns, also if none matches."""
        for number in range(6):
            self.make_machine(f"vm-{number}")
        watch = self.watch(f"{MACHINES}?watch=1&labelSelector=a")
        self.assertEqual(self.compared, 2)
        self.turn()
        self.assertEqual(self.compared, 4)
        self.turn()
        self.make_machine("vm-6")
        self.assertEqual(watch.events(), [])

    def test_bookmark_waits(self) -> None:
        """A bookmark comes after the changes up to its version."""
        watches = [
            self.labelled(f"!{key}", user=user, more="&allowWatchBookmarks=1")
            for key, user in zip("abc", USERS, strict=False)
        ]
        self.clock.advance(60 - TURN_SECONDS / 4)
        self.make_machine("vm")
        self.clock.advance(TURN_SECONDS)
        self.turn()
        for watch in watches:
            self.assertEqual([each["type"] for each in watch.events()], ["ADDED", "BOOKMARK"])

    def test_ends_waiting(self) -> None:
        """A watch that ends before a change has reached it sends no bookmark of a later version."""
        limit = "&allowWatchBookmarks=1&timeoutSeconds=1"
        watches = [
            self.labelled(f"!{key}", user=user, more=limit)
            for key, user in zip("abc", USERS, strict=False)
        ]
        self.clock.advance(1 - TURN_SECONDS / 4)
        self.make_machine("vm")
        self.clock.advance(TURN_SECONDS / 4)
        self.turn()
        sent = [[each["type"] for each in watch.events()] for watch in watches]
        self.assertEqual(sent, [["ADDED", "BOOKMARK"]] * 2 + [[]])

    def test_many_terms(self) -> None:
        """The terms of all watches of a user are limited, and those of all users."""
        first = self.labelled("!a,!b,!c,!d,!e", user="jane")
        path = f"{MACHINES}?watch=1&labelSelector=!c,!d"
        refused = self.answer("GET", path, user="jane", code=429)
        self.assertIn('this one has 2, and user "jane" has 1 left', refused["message"])
        self.labelled("!a,!b,!c", user="bob")
        self.assertIn('"admin" has 1 left', self.answer("GET", path, code=429)["message"])
        first.client.lose()
        self.assertEqual(self.labelled("!c,!d", user="jane").events(), [])


class CompanyTests(APITestCase):
    """Many watches of the same objects."""

    def begin(self, count: int, accept: str = "application/json") -> list[Watching]:
        path = f"{MACHINES}?watch=1&resourceVersion={self.storage.version()}"
        return [self.watch(path, accept=accept) for _ in range(count)]

    def test_one_pass(self) -> None:
        """A change reaches all of them at once, in each one's form."""
        watches = self.begin(100)
        tables = self.begin(100, TABLE)
        self.make_machine("a")
        for watch in watches:
            self.assertEqual(watch.names(), [("ADDED", "a")])
        for watch in tables:
            (event,) = watch.events()
            self.assertEqual(event["object"]["rows"][0]["cells"][0], "a")

    def test_slow_one(self) -> None:
        """A client that does not read delays no other, and continues where it stopped."""
        slow, *others = self.begin(3)
        slow.client.protocol.pauseProducing()
        self.make_machine("a")
        self.make_machine("b")
        for watch in others:
            self.assertEqual(watch.names(), [("ADDED", "a"), ("ADDED", "b")])
        self.assertEqual(slow.names(), [])
        self.assertGreater(len(self.server.site.unread), 0)
        slow.client.protocol.resumeProducing()
        self.assertEqual(slow.names(), [("ADDED", "a"), ("ADDED", "b")])
        self.assertEqual(len(self.server.site.unread), 0)

    def test_nothing_is_left(self) -> None:
        """Watches that come and go leave no timer, no connection, no count behind."""
        kept, timers = self.kept(), len(self.clock.getDelayedCalls())
        head = f"GET {MACHINES}?watch=1&allowWatchBookmarks=1 HTTP/1.1\r\nHost: server\r\n"
        for _ in range(1100):  # more than one user may have at once
            client = self.server.connect()
            client.send(f"{head}Authorization: Bearer admin\r\n\r\n".encode())
            self.assertIn(b"200 OK", client.received())
            client.lose()
        del client
        self.assertEqual(len(self.clock.getDelayedCalls()), timers)
        self.assertEqual(len(self.server.site.connections), 0)
        self.assertEqual(self.kept(), kept)

    def test_without_the_collector(self) -> None:
        """A watch that its client leaves is gone at once: it holds a connection."""
        client = self.server.connect()
        head = f"GET {MACHINES}?watch=1 HTTP/1.1\r\nHost: server\r\n"
        kept = self.kept()
        gc.disable()
        self.addCleanup(gc.enable)
        client.send(f"{head}Authorization: Bearer admin\r\n\r\n".encode())
        # Of the youngest generation: pytest keeps watches of earlier tests.
        young = gc.get_objects(generation=0)
        (stream,) = (each for each in young if isinstance(each, LineStream))
        gone = weakref.ref(stream)
        del young, stream
        client.lose()
        # A closed socket is forgotten, too.
        client.transport.protocol = client.transport.producer = None
        del client
        self.assertIsNone(gone())
        self.assertEqual(self.kept(), kept)

    def kept(self) -> int:
        """Number of watches in the process: failures that were logged may hold some, for pytest."""
        gc.collect()
        return sum(isinstance(each, LineStream | WatchConverter) for each in gc.get_objects())

    def test_cannot_be_told(self) -> None:
        """A watch that misses a change is cut, since its client would never know; others go on."""
        table = self.watch(f"{MACHINES}?watch=1", accept=TABLE)
        plain = self.watch(f"{MACHINES}?watch=1")
        odd: Object = {"metadata": {"name": "odd", "namespace": "default", "uid": "u"}}
        odd["spec"] = {"machineClassRef": "no reference"}
        self.successResultOf(self.storage.create(MACHINE.resource, odd))
        self.assertEqual(len(self.flushLoggedErrors(AttributeError)), 1)
        self.assertTrue(table.client.closed)
        self.assertFalse(plain.client.closed)
        self.assertEqual([each["type"] for each in plain.events()], ["ADDED"])


class LargeWatchTests(APITestCase):
    """Watches of more than a client's buffers take at once."""

    def make(self) -> None:
        """Ten times 600 KiB."""
        for number in range(10):
            self.make_machine(f"m{number}", efiVars=[{"name": "x", "value": "x" * (600 << 10)}])

    def begin(self, query: str = "") -> Watching:
        """A watch of all that there is whose client reads nothing yet."""
        self.make()
        return self.stopped(query)

    def stopped(self, query: str = "") -> Watching:
        """A watch whose client's buffers are full after each write."""
        client = self.server.connect()
        write = client.transport.writeSequence

        def full(data: list[bytes]) -> None:
            write(data)
            client.protocol.pauseProducing()

        client.transport.writeSequence = full
        self.addCleanup(client.lose)
        head = "GET {} HTTP/1.1\r\nHost: server\r\nAuthorization: Bearer admin\r\n\r\n"
        client.send(head.format(f"{MACHINES}?watch=1&timeoutSeconds=60{query}").encode())
        return Watching(client)

    def read_on(self, watch: Watching, count: int) -> list[str]:
        """So many names, as the client reads on."""
        names: list[str] = []
        while not watch.client.closed and len(names) < count:
            names += [name for _, name in watch.names()]
            watch.client.protocol.resumeProducing()
        return names

    def test_existing_objects(self) -> None:
        """Initial objects are sent at the client's pace, however many; changes follow."""
        watch = self.begin()
        self.make_machine("later")
        names = self.read_on(watch, 11)
        self.assertEqual(names, [*(f"m{number}" for number in range(10)), "later"])
        self.assertEqual(len(self.server.site.unread), 0)

    def test_far_behind(self) -> None:
        """Missed changes are sent at the client's pace, however many."""
        version = self.storage.version()
        self.make()
        watch = self.stopped(f"&resourceVersion={version}")
        self.make_machine("later")
        names = self.read_on(watch, 11)
        self.assertEqual(names, [*(f"m{number}" for number in range(10)), "later"])
        self.assertEqual(len(self.server.site.unread), 0)
        self.make_machine("last")
        self.assertEqual(self.read_on(watch, 1), ["last"])

    def test_over_too_early(self) -> None:
        """A watch that ends before the initial objects are complete sends no end mark."""
        version = self.storage.version()
        self.make()
        query = f"watch=1&resourceVersion={version}&allowWatchBookmarks=1"
        watch = self.watch(f"{MACHINES}?{query}")
        for watches in self.parts.watches:
            watches.end_all()
        names = watch.names()
        self.assertTrue(0 < len(names) < 10)
        self.assertNotIn("BOOKMARK", [change for change, _ in names])

    def test_falling_behind(self) -> None:
        """Changes while a client catches up are limited."""
        version = self.storage.version()
        self.make_machine("a")
        watch = self.stopped(f"&resourceVersion={version}")
        self.make()
        self.assertTrue(watch.client.aborted)
        self.assertEqual(len(self.server.site.unread), 0)

    def test_never_read(self) -> None:
        """A client that reads none of it is gone when the watch's time is over."""
        watch = self.begin()
        self.clock.advance(60)
        self.assertTrue(watch.client.closed)

    def test_left(self) -> None:
        """A client that leaves in the middle of it leaves nothing behind."""
        watch = self.begin()
        watch.client.lose()
        self.assertEqual(len(self.server.site.connections), 0)
        self.make_machine("later")


class _Streaming(Dispatcher):
    stream: LineStream

    async def dispatch(self, request: Request) -> None:
        stream = self.stream = LineStream(request, limit_bytes=1000)
        stream.begin()
        try:
            await stream.done
        finally:
            stream.end()


class SlowReaderTests(SynchronousTestCase):
    """Tests for :class:`LineStream`: a client that does not read."""

    def setUp(self) -> None:
        self.dispatcher = _Streaming()
        self.client = MemoryServer(self.dispatcher, Clock()).connect()
        self.client.send(b"GET / HTTP/1.1\r\nHost: server\r\n\r\n")
        self.producer = self.client.transport.producer
        self.client.received()

    def test_waits(self) -> None:
        """Lines wait while the client does not read, and come in order when it does."""
        self.producer.pauseProducing()
        for number in range(5):
            self.dispatcher.stream.send(b'{"n":%d}\n' % number)
        self.assertEqual(self.client.received(), b"")
        self.producer.resumeProducing()
        self.assertEqual(self.client.received().count(b'{"n":'), 5)
        self.client.lose()

    def test_bounded(self) -> None:
        """A client that is owed too much is cut."""
        self.producer.pauseProducing()
        for number in range(200):
            self.dispatcher.stream.send(b'{"n":%d}\n' % number)
        self.assertTrue(self.client.closed)

    def test_bounded_together(self) -> None:
        """Many that read nothing are bounded together: the longest waiting is cut."""
        self.client.lose()
        server = MemoryServer(self.dispatcher, Clock(), unread_bytes=1000)
        clients, streams = [], []
        for _ in range(3):
            client = server.connect()
            client.send(b"GET / HTTP/1.1\r\nHost: server\r\n\r\n")
            client.transport.producer.pauseProducing()
            clients.append(client)
            streams.append(self.dispatcher.stream)
        for stream in streams:
            stream.send(b"x" * 400)
        self.assertEqual([client.closed for client in clients], [True, False, False])
        clients[1].transport.producer.resumeProducing()
        clients[2].lose()
        self.assertEqual(len(server.site.unread), 0)
        clients[1].lose()

    def test_ends_while_waiting(self) -> None:
        """A stream that ends while lines wait is cut: half would look like all."""
        self.producer.pauseProducing()
        self.dispatcher.stream.send(b'{"n":1}\n')
        self.dispatcher.stream.finish()
        self.assertTrue(self.client.closed)
