"""
A user's program on the Python client that openapi-generator makes of our OpenAPI document.

``generated_client.py SERVER CA CERTIFICATE KEY VERSION``; VERSION is that of the document.  Its package,
``machines``, is on ``PYTHONPATH``.
"""

from __future__ import annotations

import json
import sys

import machines
from machines.exceptions import ApiException

server, ca, certificate, key, version = sys.argv[1:]
configuration = machines.Configuration(host=server, ssl_ca_cert=ca)
configuration.cert_file, configuration.key_file = certificate, key
api = machines.ComputeIroncoreDevV1alpha1Api(machines.ApiClient(configuration))
list_machines = api.list_compute_ironcore_dev_v1alpha1_namespaced_machine
delete = api.delete_compute_ironcore_dev_v1alpha1_namespaced_machine


def machine(name: str, app: str, *finalizers: str) -> dict[str, object]:
    return {
        "metadata": {"name": name, "labels": {"app": app}, "finalizers": list(finalizers)},
        # Nothing else writes objects that have a pool.
        "spec": {"machineClassRef": {"name": "small"}, "machinePoolRef": {"name": "pool-a"}},
    }


def create(*arguments: str) -> machines.DevIroncoreComputeV1alpha1Machine:
    body = machines.DevIroncoreComputeV1alpha1Machine.from_dict(machine(*arguments))
    return api.create_compute_ironcore_dev_v1alpha1_namespaced_machine("default", body)


def names(items: list[machines.DevIroncoreComputeV1alpha1Machine]) -> list[str]:
    return [item.metadata.name for item in items]


created = create("web-1", "web")
assert created.metadata.uid, created
create("web-2", "web")
create("db-1", "db", "example.org/backup")

selected = list_machines("default", label_selector="app=web")
assert names(selected.items) == ["web-1", "web-2"], selected
first = list_machines("default", limit=1)
assert names(first.items) == ["db-1"], first
rest = list_machines("default", limit=5, var_continue=first.metadata.var_continue)
assert names(rest.items) == ["web-1", "web-2"], rest
everywhere = api.list_compute_ironcore_dev_v1alpha1_machine_for_all_namespaces()
assert len(everywhere.items) == 3, everywhere

changed = api.patch_compute_ironcore_dev_v1alpha1_namespaced_machine(
    "web-1", "default", {"spec": {"power": "Off"}}
)
assert changed.spec.power == "Off", changed
read = api.read_compute_ironcore_dev_v1alpha1_namespaced_machine("web-1", "default")
assert read.metadata.resource_version == changed.metadata.resource_version, read
read.metadata.annotations = {"owner": "jane"}
replaced = api.replace_compute_ironcore_dev_v1alpha1_namespaced_machine("web-1", "default", read)
assert replaced.metadata.annotations == {"owner": "jane"}, replaced

watch = api.list_compute_ironcore_dev_v1alpha1_namespaced_machine_without_preload_content(
    "default",
    label_selector="app=web",
    watch=True,
    resource_version=selected.metadata.resource_version,
)
event = json.loads(next(iter(watch)))
assert (event["type"], event["object"]["metadata"]["name"]) == ("MODIFIED", "web-1"), event
assert event["object"]["spec"]["power"] == "Off", event
watch.close()

deleted = delete("web-1", "default", propagation_policy="Background")
status = deleted if version == "2" else deleted.actual_instance
assert (status.kind, status.status) == ("Status", "Success"), status
if version == "3":
    # A finalizer keeps the object, and the answer is the object itself.
    kept = delete("db-1", "default").actual_instance
    assert (kept.kind, kept.metadata.name) == ("Machine", "db-1"), kept
    assert kept.metadata.deletion_timestamp, kept
api.patch_compute_ironcore_dev_v1alpha1_namespaced_machine(
    "db-1", "default", {"metadata": {"finalizers": None}}
)
api.delete_compute_ironcore_dev_v1alpha1_collection_namespaced_machine(
    "default", label_selector="app in (web, db)"
)
assert list_machines("default").items == []
try:
    delete("web-1", "default")
except ApiException as error:
    assert error.status == 404, error
else:
    raise AssertionError("deleted twice")
print("done")
