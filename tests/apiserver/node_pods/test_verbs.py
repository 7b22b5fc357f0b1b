"""
Tests for :mod:`twisted_exec.apiserver.node_pods.verbs`, and for such Pods as objects.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock

from tests.apiserver.support import EPOCH, MERGE, PODS, APITestCase
from twisted_exec.api.kinds import NODE_PODS, Object
from twisted_exec.api.times import timestamp
from twisted_exec.apiserver.node_pods.kubelets import Kubelets

TABLE = (("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"),)


def pod(name: str = "web", node: str = "", **spec: Any) -> Object:
    """A Pod as a user writes it."""
    bound = {"nodeName": node} if node else {}
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "busybox"}], **bound, **spec},
    }


class NodePodsTestCase(APITestCase):
    """A server whose Pods are those of Nodes."""

    node_pods = True

    def more(self) -> dict[str, Any]:
        return {"kubelets": Kubelets(self.forwarding())}

    def make(self, name: str = "web", node: str = "", **spec: Any) -> Object:
        """A Pod, stored."""
        made: Object = self.answer("POST", PODS, pod(name, node, **spec), code=201)
        return made

    def status(self, name: str, **status: Any) -> Object:
        """A Pod with another status."""
        patch = {"status": status}
        found: Object = self.answer(
            "PATCH", f"{PODS}/{name}/status", patch, content_type=MERGE, code=200
        )
        return found

    def cells(self, path: str = PODS) -> list[list[str]]:
        """The rows that ``kubectl get`` would show, without the ages."""
        rows = self.answer("GET", path, headers=TABLE)["rows"]
        return [[*row["cells"][:4], *row["cells"][5:]] for row in rows]


class ObjectTests(NodePodsTestCase):
    """Validation on create and update."""

    def test_defaults(self) -> None:
        """Missing fields get Kubernetes' defaults."""
        made = self.make()
        self.assertEqual(made["status"]["phase"], "Pending")
        self.assertEqual(made["spec"]["restartPolicy"], "Always")
        self.assertEqual(made["spec"]["terminationGracePeriodSeconds"], 30)
        self.assertEqual(made["spec"]["containers"][0]["imagePullPolicy"], "Always")

    def test_tagged_image(self) -> None:
        """An image of one version is not pulled again."""
        image = "registry.example:5000/busybox:1.36"
        made = self.make(containers=[{"name": "main", "image": image}])
        self.assertEqual(made["spec"]["containers"][0]["imagePullPolicy"], "IfNotPresent")

    def test_any_form(self) -> None:
        """Fields without effect here are kept."""
        volumes = [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}]
        probe = {"httpGet": {"port": "http"}}
        container = {"name": "main", "image": "x:1", "readinessProbe": probe}
        made = self.make(volumes=volumes, containers=[container])
        self.assertEqual(made["spec"]["volumes"], volumes)
        self.assertEqual(made["spec"]["containers"][0]["readinessProbe"], probe)

    def test_no_containers(self) -> None:
        """There must be one."""
        told = self.refused(422, "POST", PODS, pod(containers=[]))
        self.assertIn("spec.containers: Required value", told)

    def test_names_of_containers(self) -> None:
        """Container names are unique among all kinds of containers, and valid labels."""
        main = {"name": "main", "image": "x"}
        told = self.refused(422, "POST", PODS, pod(initContainers=[main]))
        self.assertIn('spec.initContainers[0].name: Duplicate value: "main"', told)
        told = self.refused(422, "POST", PODS, pod(containers=[{"name": "a_b", "image": "x"}]))
        self.assertIn("spec.containers[0].name: Invalid value", told)
        told = self.refused(422, "POST", PODS, pod(containers=[{"name": "a"}]))
        self.assertIn("spec.containers[0].image: Required value", told)

    def test_restart_policy(self) -> None:
        """Only three are known."""
        told = self.refused(422, "POST", PODS, pod(restartPolicy="Sometimes"))
        self.assertIn("spec.restartPolicy: Unsupported value", told)

    def test_unknown_field(self) -> None:
        """Unknown fields are reported if requested."""
        body = pod(nodename="a")
        told = self.refused(400, "POST", f"{PODS}?fieldValidation=Strict", body)
        self.assertIn('unknown field "spec.nodename"', told)

    def test_immutable(self) -> None:
        """A Pod stays what it was made as."""
        self.make()
        patch = {"spec": {"containers": [{"name": "main", "image": "x", "command": ["sh"]}]}}
        told = self.refused(422, "PATCH", f"{PODS}/web", patch, content_type=MERGE)
        self.assertIn("pod updates may not change fields other than", told)
        patch = {"spec": {"nodeName": "elsewhere"}}
        self.refused(422, "PATCH", f"{PODS}/web", patch, content_type=MERGE)

    def test_what_may_change(self) -> None:
        """Images, a deadline and further tolerations may be changed."""
        made = self.make()
        container = {**made["spec"]["containers"][0], "image": "busybox:2"}
        spec = {
            "containers": [container],
            "activeDeadlineSeconds": 60,
            "tolerations": [{"operator": "Exists"}],
        }
        new = self.answer("PATCH", f"{PODS}/web", {"spec": spec}, content_type=MERGE)
        self.assertEqual(new["spec"]["containers"][0]["image"], "busybox:2")
        patch = {"spec": {"tolerations": []}}
        told = self.refused(422, "PATCH", f"{PODS}/web", patch, content_type=MERGE)
        self.assertIn("existing toleration can not be modified", told)
        patch = {"spec": {"activeDeadlineSeconds": 61}}
        self.refused(422, "PATCH", f"{PODS}/web", patch, content_type=MERGE)

    def test_as_kubectl_patches(self) -> None:
        """A patch that names one container leaves the others as they are."""
        two = [{"name": "a", "image": "x:1", "command": ["sh"]}, {"name": "b", "image": "y:1"}]
        self.make(containers=two)
        patch = {"spec": {"containers": [{"name": "b", "image": "y:2"}]}}
        kind = "application/strategic-merge-patch+json"
        new = self.answer("PATCH", f"{PODS}/web", patch, content_type=kind)
        told = [(each["image"], each.get("command")) for each in new["spec"]["containers"]]
        self.assertEqual(told, [("x:1", ["sh"]), ("y:2", None)])

    def test_more_containers(self) -> None:
        """Containers cannot be added."""
        made = self.make()
        several = [*made["spec"]["containers"], {"name": "more", "image": "x"}]
        patch = {"spec": {"containers": several}}
        told = self.refused(422, "PATCH", f"{PODS}/web", patch, content_type=MERGE)
        self.assertIn("may not add or remove containers", told)

    def test_labels_change(self) -> None:
        """Metadata may be changed by any writer."""
        self.make()
        patch = {"metadata": {"labels": {"a": "b"}}}
        new = self.answer("PATCH", f"{PODS}/web", patch, content_type=MERGE)
        self.assertEqual(new["metadata"]["labels"], {"a": "b"})

    def test_status_apart(self) -> None:
        """The status is written by its subresource alone."""
        self.make()
        patch = {"status": {"phase": "Running"}}
        self.answer("PATCH", f"{PODS}/web", patch, content_type=MERGE)
        self.assertEqual(self.stored(NODE_PODS, "web")["status"]["phase"], "Pending")
        self.assertEqual(self.status("web", phase="Running")["status"]["phase"], "Running")

    def test_selectors(self) -> None:
        """By Node, phase and name, as kubelets, schedulers and people select them."""
        self.make("a", "node-1")
        self.make("b", "node-2")
        self.status("b", phase="Running")

        def names(selector: str) -> list[str]:
            found = self.answer("GET", f"{PODS}?fieldSelector={selector}")
            return [each["metadata"]["name"] for each in found["items"]]

        self.assertEqual(names("spec.nodeName%3Dnode-1"), ["a"])
        self.assertEqual(names("spec.nodeName%3D"), [])
        self.assertEqual(names("status.phase%3DRunning"), ["b"])
        self.assertEqual(names("status.phase!%3DRunning"), ["a"])
        self.assertEqual(names("metadata.name%3Db"), ["b"])

    def test_no_view(self) -> None:
        """Machines are machines only, and their consoles are where they were."""
        self.make_pool("pool-a")
        self.make_machine("vm")
        self.assertEqual(self.answer("GET", PODS)["items"], [])
        exec_path = "/apis/compute.ironcore.dev/v1alpha1/namespaces/default/machines/vm/exec"
        self.assertIn("no usable address", self.refused(503, "POST", exec_path))


class ColumnTests(NodePodsTestCase):
    """Columns of kubectl."""

    def test_new(self) -> None:
        """Nothing runs yet."""
        self.make()
        expected = ["web", "0/1", "Pending", "0", "<none>", "<none>", "<none>", "<none>"]
        self.assertEqual(self.cells(), [expected])

    def test_running(self) -> None:
        """The state as reported by the kubelet."""
        self.make(node="node-1")
        running = {"name": "main", "ready": True, "restartCount": 2, "state": {"running": {}}}
        self.status("web", phase="Running", podIP="10.0.0.1", containerStatuses=[running])
        (row,) = self.cells()
        self.assertEqual(row[:6], ["web", "1/1", "Running", "2", "10.0.0.1", "node-1"])

    def test_why_not(self) -> None:
        """The word that explains most stands for the status."""
        told = (
            ({"waiting": {"reason": "ImagePullBackOff"}}, "ImagePullBackOff"),
            ({"terminated": {"reason": "OOMKilled", "exitCode": 137}}, "OOMKilled"),
            ({"terminated": {"exitCode": 3}}, "ExitCode:3"),
            ({"terminated": {"exitCode": 0, "signal": 9}}, "Signal:9"),
        )
        self.make()
        for state, expected in told:
            status = {"name": "main", "ready": False, "restartCount": 0, "state": state}
            self.status("web", phase="Running", containerStatuses=[status])
            self.assertEqual(self.cells()[0][2], expected)

    def test_init_containers(self) -> None:
        """Progress of init containers."""
        inits = [{"name": "one", "image": "x"}, {"name": "two", "image": "x"}]
        self.make(initContainers=inits)
        done = {"name": "one", "state": {"terminated": {"exitCode": 0}}}
        now = {"name": "two", "state": {"running": {}}}
        self.status("web", initContainerStatuses=[done, now])
        self.assertEqual(self.cells()[0][2], "Init:1/2")
        failed = {"name": "two", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
        self.status("web", initContainerStatuses=[done, failed])
        self.assertEqual(self.cells()[0][2], "Init:Error")

    def test_nonsense(self) -> None:
        """Values in columns are validated: lists are read by everyone."""
        self.make()
        for told in (
            {"containerStatuses": [{"name": "main", "state": {"terminated": "never"}}]},
            {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": [1]}}}]},
            {"containerStatuses": [{"name": "main", "restartCount": "2"}]},
            {"initContainerStatuses": [{"name": ["x"]}]},
            {"conditions": [{"type": {}, "status": "True"}]},
            {"podIP": 5},
        ):
            patch = {"status": told}
            self.refused(422, "PATCH", f"{PODS}/web/status", patch, content_type=MERGE)
        odd = pod("odd", readinessGates=[{"conditionType": ["x"]}])
        self.refused(422, "POST", PODS, odd)
        self.make("least", readinessGates=[{}])
        least = {"containerStatuses": [{"name": "a", "state": {"terminated": {}}}, {"name": "b"}]}
        self.status("least", initContainerStatuses=[{"name": "c"}], **least)
        self.assertEqual([row[0] for row in self.cells()], ["least", "web"])


class DeletionTests(NodePodsTestCase):
    """A Pod goes when its kubelet says so."""

    def test_unbound(self) -> None:
        """A Pod without a Node is deleted at once."""
        self.make()
        self.answer("DELETE", f"{PODS}/web")
        self.refused(404, "GET", f"{PODS}/web")

    def test_bound(self) -> None:
        """A bound Pod is marked, with its grace period."""
        self.make(node="node-1")
        marked = self.answer("DELETE", f"{PODS}/web")
        self.assertEqual(marked["kind"], "Pod")
        metadata = self.stored(NODE_PODS, "web")["metadata"]
        self.assertEqual(metadata["deletionGracePeriodSeconds"], 30)
        self.assertEqual(metadata["deletionTimestamp"], timestamp(EPOCH + 30))
        self.assertEqual(self.cells()[0][2], "Terminating")

    def test_kubelet_confirms(self) -> None:
        """A grace of 0 says that nothing is left of it."""
        self.make(node="node-1")
        self.answer("DELETE", f"{PODS}/web")
        self.answer("DELETE", f"{PODS}/web", {"gracePeriodSeconds": 0})
        self.refused(404, "GET", f"{PODS}/web")

    def test_status_while_it_ends(self) -> None:
        """Writing its status does not take it away before its time."""
        self.make(node="node-1")
        self.answer("DELETE", f"{PODS}/web")
        self.status("web", phase="Running")
        self.assertEqual(self.stored(NODE_PODS, "web")["status"]["phase"], "Running")

    def test_own_time(self) -> None:
        """The Pod says how long it takes, unless who deletes it does; later only less counts."""
        self.make(node="node-1", terminationGracePeriodSeconds=7)
        self.answer("DELETE", f"{PODS}/web")
        self.assertEqual(self.stored(NODE_PODS, "web")["metadata"]["deletionGracePeriodSeconds"], 7)
        self.answer("DELETE", f"{PODS}/web?gracePeriodSeconds=20")
        self.answer("DELETE", f"{PODS}/web", {"gracePeriodSeconds": 3})
        metadata = self.stored(NODE_PODS, "web")["metadata"]
        self.assertEqual(metadata["deletionGracePeriodSeconds"], 3)

    def test_odd_times(self) -> None:
        """A negative period is one second; the longest fits a timestamp."""
        self.make(node="node-1")
        self.refused(400, "DELETE", f"{PODS}/web", {"gracePeriodSeconds": 1 << 31})
        self.refused(400, "DELETE", f"{PODS}/web", {"gracePeriodSeconds": 10**40})
        self.refused(400, "DELETE", f"{PODS}/web", {"gracePeriodSeconds": "1"})
        self.answer("DELETE", f"{PODS}/web", {"gracePeriodSeconds": -5})
        metadata = self.stored(NODE_PODS, "web")["metadata"]
        self.assertEqual(metadata["deletionGracePeriodSeconds"], 1)
        long = pod("long", terminationGracePeriodSeconds=1 << 31)
        self.refused(422, "POST", PODS, long)

    def test_over(self) -> None:
        """A Pod that has ended need not be waited for."""
        self.make(node="node-1")
        self.status("web", phase="Succeeded")
        self.answer("DELETE", f"{PODS}/web")
        self.refused(404, "GET", f"{PODS}/web")

    def test_finalizers(self) -> None:
        """Finalizers delay the deletion, whatever the kubelet reports."""
        body = pod(node="node-1")
        body["metadata"]["finalizers"] = ["example.com/mine"]
        self.answer("POST", PODS, body, code=201)
        self.answer("DELETE", f"{PODS}/web", {"gracePeriodSeconds": 0})
        self.assertIn("deletionTimestamp", self.stored(NODE_PODS, "web")["metadata"])
        patch = {"metadata": {"finalizers": None}}
        self.answer("PATCH", f"{PODS}/web", patch, content_type=MERGE)
        self.refused(404, "GET", f"{PODS}/web")

    def test_another_uid(self) -> None:
        """A kubelet that is late takes no other Pod of that name away."""
        self.make(node="node-1")
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": "another"}}
        self.refused(409, "DELETE", f"{PODS}/web", options)
        self.assertEqual(self.stored(NODE_PODS, "web")["metadata"]["name"], "web")

    def test_dry_run(self) -> None:
        """Nothing becomes of it."""
        before = self.make(node="node-1")
        self.answer("DELETE", f"{PODS}/web?dryRun=All")
        self.assertEqual(self.stored(NODE_PODS, "web"), before)


class BindingTests(NodePodsTestCase):
    """Scheduling by Bindings."""

    path = f"{PODS}/web/binding"

    def binding(self, node: str = "node-1", **metadata: Any) -> Object:
        return {"metadata": metadata, "target": {"kind": "Node", "name": node}}

    def test_bound(self) -> None:
        """The Pod has a Node, and a condition that says since when."""
        self.make()
        told = self.answer("POST", self.path, self.binding(name="web"), code=201)
        self.assertEqual(told["status"], "Success")
        found = self.stored(NODE_PODS, "web")
        self.assertEqual(found["spec"]["nodeName"], "node-1")
        (condition,) = found["status"]["conditions"]
        self.assertEqual((condition["type"], condition["status"]), ("PodScheduled", "True"))

    def test_twice(self) -> None:
        """Only once."""
        self.make(node="node-2")
        told = self.refused(409, "POST", self.path, self.binding())
        self.assertIn('pod web is already assigned to node "node-2"', told)

    def test_nonsense(self) -> None:
        """A binding to nothing, or of another Pod, is none."""
        self.make()
        self.refused(422, "POST", self.path, {"metadata": {}})
        self.refused(422, "POST", self.path, self.binding(""))
        self.refused(422, "POST", self.path, self.binding(name="other"))
        other = {"target": {"kind": "Machine", "name": "x"}}
        self.assertIn("target.kind", self.refused(422, "POST", self.path, other))
        self.refused(404, "POST", f"{PODS}/none/binding", self.binding())

    def test_rights(self) -> None:
        """It is a right of its own."""
        self.make()
        self.bind("jane", "edit")
        self.refused(403, "POST", self.path, self.binding(), user="jane")

    def test_dry_run(self) -> None:
        """Nothing becomes of it."""
        self.make()
        self.answer("POST", f"{self.path}?dryRun=All", self.binding(), code=201)
        self.assertNotIn("nodeName", self.stored(NODE_PODS, "web")["spec"])


class RightsTests(NodePodsTestCase):
    """The roles of everyday know such Pods."""

    def test_edit(self) -> None:
        """``edit`` creates Pods and opens their streams."""
        self.bind("jane", "edit")
        self.answer("POST", PODS, pod(), code=201, user="jane")
        told = self.refused(400, "POST", f"{PODS}/web/exec?command=sh&stdout=1", user="jane")
        self.assertIn("pod web does not have a host assigned", told)

    def test_view(self) -> None:
        """``view`` reads logs, and opens nothing, whatever the method."""
        self.bind("bob", "view")
        self.make()
        self.answer("GET", f"{PODS}/web", user="bob")
        told = self.refused(400, "GET", f"{PODS}/web/log", user="bob")
        self.assertIn("pod web does not have a host assigned", told)
        for subresource in ("exec", "attach", "portforward"):
            for method in ("GET", "POST"):
                told = self.refused(403, method, f"{PODS}/web/{subresource}", user="bob")
                self.assertIn('cannot create resource "pods/', told)

    def test_get_is_not_enough(self) -> None:
        """A WebSocket is a GET, and still opens a stream."""
        rule = {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get"]}
        role = {"metadata": {"name": "looker"}, "rules": [rule]}
        self.answer("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", role, code=201)
        self.bind("bob", "looker")
        self.make()
        self.refused(403, "GET", f"{PODS}/web/exec?command=sh&stdout=1", user="bob")


class KubeletTests(NodePodsTestCase):
    """The kubelets of Nodes."""

    def test_slow_kubelet(self) -> None:
        """A connection to a kubelet has no limit of its own that a slow host would meet: its user has one."""
        address = {"type": "InternalIP", "address": "192.0.2.1"}
        node = {"metadata": {"name": "n"}, "status": {"addresses": [address]}}
        clock, storage = MemoryReactorClock(), SimpleNamespace(get=lambda *which: succeed(node))
        kubelets = Kubelets(self.forwarding())
        finding = Deferred.fromCoroutine(kubelets.of("n", storage, clock))
        connecting = self.successResultOf(finding).endpoint.connect(Factory.forProtocol(Protocol))
        clock.advance(10 * kubelets.seconds)
        self.assertNoResult(connecting)
