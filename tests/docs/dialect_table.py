"""
Generate the table of ``docs/reference/dialects.rst``: ``python -m tests.docs.dialect_table``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from twisted_exec.api import kinds
from twisted_exec.api.dialects import DIALECTS, Dialect

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "dialects-table.inc"


def _kind(which: Callable[[Dialect], object]) -> Callable[[Dialect], str]:
    def read(dialect: Dialect) -> str:
        resource = which(dialect)
        return f"{resource.kind}, ``{resource.plural}``"  # type: ignore[attr-defined]

    return read


def _columns(dialect: Dialect) -> str:
    return ", ".join(column.name for column in kinds.machine_kind(dialect).columns)


def _spec(dialect: Dialect) -> str:
    schema = kinds.machine_kind(dialect).schema["spec"]
    return ", ".join(f"``{key}``" for key in sorted(schema["properties"]))


def _groups(dialect: Dialect) -> str:
    if not dialect.domain:
        return "none"
    groups = [f"``{group}.{dialect.domain}``" for group in ("storage", "networking", "ipam")]
    return ", ".join(groups) + (" (with routings)" if dialect.routings else "")


def _literal(read: Callable[[Dialect], str]) -> Callable[[Dialect], str]:
    return lambda dialect: f"``{value}``" if (value := read(dialect)) else "none"


ROWS: tuple[tuple[str, Callable[[Dialect], str]], ...] = (
    ("API group and version", _literal(lambda each: each.workload.api_version)),
    ("further API groups", _groups),
    ("kind with a console", _kind(lambda each: each.workload)),
    ("kind of pool", _kind(lambda each: each.pool)),
    ("kind of class", _kind(lambda each: each.workload_class)),
    ("columns of ``kubectl get``", _columns),
    ("fields of ``spec``", _spec),
    ("machine states", lambda each: ", ".join(each.states)),
    ("conditions in the status", lambda each: "yes" if each.conditions else "no"),
    ("field of the status with its id", _literal(lambda each: each.id_field)),
    ("options kind of ``exec``", _literal(lambda each: each.exec_options)),
    ("field selector for a pool", _literal(lambda each: each.pool_field)),
    ("classes in a pool's status", _literal(lambda each: each.classes_field)),
    (
        "port in a pool's status",
        _literal(lambda each: f"daemonEndpoints.{each.endpoint_field}.port"),
    ),
    ("capacity for a class", _literal(lambda each: f"{each.capacity_prefix}CLASS")),
    ("name of the poollet", _literal(lambda each: each.poollet)),
    ("path at the poollet", _literal(lambda each: each.poollet_path("NS", "NAME"))),
    ("a poollet's user name", _literal(lambda each: each.pool_identity("POOL"))),
    ("the group of poollets", _literal(lambda each: each.pool_identity_group)),
    (
        "permission to reach a poollet",
        _literal(lambda each: f"create {each.pool.plural}/{each.proxy_subresource}"),
    ),
    ("finalizer", _literal(lambda each: each.finalizer)),
    ("label in the runtime", _literal(lambda each: f"{each.runtime_prefix}{each.noun}-uid")),
    ("labels passed to the runtime", _literal(lambda each: f"{each.downward_prefix}KEY")),
    ("namespace of poollets' leases", _literal(lambda each: each.lease_namespace)),
    ("revision of the runtime interface", _literal(lambda each: each.iri_revision)),
)


def table() -> str:
    """Return the table as reStructuredText, with a row for each name that differs."""
    lines = [".. list-table::", "   :header-rows: 1", "   :stub-columns: 1", ""]
    rows = [("", *(f"``{each.name}``" for each in DIALECTS))]
    rows += [(title, *(read(each) for each in DIALECTS)) for title, read in ROWS]
    for row in rows:
        for index, cell in enumerate(row):
            lines.append(f"   {'*' if not index else ' '} - {cell}".rstrip())
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(table(), encoding="utf-8")
