"""
Services, which this server lists as none.
"""

from __future__ import annotations

from twisted_exec.api.kinds.kind import Kind
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import anything

SERVICES = Kind(
    resource=Resource("", "v1", "services", "Service"),
    singular="service",
    short_names=("svc",),
    # kubectl cluster-info lists services before it prints the server's address.
    description="Service is not supported: there are no services, and none can be created.",
    schema={"spec": anything("spec is not used."), "status": anything("status is not used.")},
    read_only=True,
)
