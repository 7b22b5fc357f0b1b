"""
Options that name a machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from twisted_exec.api.dialects import DIALECTS, Dialect
from twisted_exec.api.names import path_segment


def add_machine_options(parser: argparse.ArgumentParser, *, is_optional: bool = False) -> None:
    """Add the options that name a machine, see :func:`possible_dialects`."""
    parser.add_argument(
        "machine",
        metavar="MACHINE",
        nargs="?" if is_optional else None,
        type=machine_name,
        help="the machine, or KIND/NAME as for kubectl console",
    )
    add_namespace_option(parser)
    parser.add_argument(
        "--dialect",
        choices=[dialect.name for dialect in DIALECTS],
        help="the API of the machine, if there are several machines of that name",
    )


def add_namespace_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--namespace``."""
    parser.add_argument(
        "-n", "--namespace", type=object_name, help="a namespace, instead of the context's"
    )


def possible_dialects(options: argparse.Namespace) -> Sequence[Dialect]:
    """
    Return the dialects that the machine can have.

    :raises ValueError: there is none; the message is for the user.
    """
    among: Sequence[Dialect] = options.machine.among if options.machine else DIALECTS
    if not options.dialect:
        return among
    among = [dialect for dialect in among if dialect.name == options.dialect]
    if not among:
        raise ValueError(
            f"dialect {options.dialect} has no {options.machine.kind}: leave out --dialect, or the kind before "
            "the name"
        )
    return among


@dataclass(frozen=True)
class MachineName:
    """A machine on a command line; ``among`` are its possible dialects."""

    name: str
    kind: str = ""
    among: Sequence[Dialect] = DIALECTS


def machine_name(text: str) -> MachineName:
    """
    Parse a name, alone or with kind and group as in ``kubectl get -o name``.

    :raises argparse.ArgumentTypeError: it is no name.
    """
    kind, _, name = text.partition("/")
    among = [dialect for dialect in DIALECTS if _is_kind(kind.lower(), dialect)] if name else []
    if among:
        return MachineName(object_name(name), kind, among)
    if kind and name and "/" not in name:
        kinds = ", ".join(dict.fromkeys(dialect.noun for dialect in DIALECTS))
        is_name = not (path_segment(kind) or path_segment(name))
        namespace = f'; if "{kind}" is a namespace: -n {kind} {name}' if is_name else ""
        raise argparse.ArgumentTypeError(
            f'"{text}": there is no kind "{kind}"; there are pod, {kinds}{namespace}'
        )
    if kind and text == f"{kind}/":
        raise argparse.ArgumentTypeError(
            f'"{text}" is no name; if "{kind}" is a namespace: -n {kind} NAME'
        )
    return MachineName(object_name(text))


def kind_and_name(options: argparse.Namespace, unknown: Sequence[str]) -> str:
    """
    Return the end of a message for a user who typed kind and name as two words; empty for other mistakes.

    :param unknown: the arguments that the parser does not know.
    """
    machine: object = getattr(options, "machine", None)  # not all commands have a machine
    if not isinstance(machine, MachineName) or machine.kind or len(unknown) != 1:
        return ""
    word, name = machine.name, unknown[0]
    is_kind = any(_is_kind(word.lower(), dialect) for dialect in DIALECTS)
    return f"; did you mean {word}/{name}?" if is_kind and not path_segment(name) else ""


def _is_kind(kind: str, dialect: Dialect) -> bool:
    """Return whether ``kind`` names the dialect, as for kubectl, or is ``pod``."""
    if kind in ("pod", "pods"):
        return True
    word, _, group = kind.partition(".")
    if word not in (dialect.noun, dialect.workload.plural):
        return False
    return group in ("", dialect.group, f"{dialect.version}.{dialect.group}")


def object_name(text: str) -> str:
    """
    Check the name of an object.

    :raises argparse.ArgumentTypeError: it is no name.
    """
    wrong = path_segment(text) if text else ["it is empty"]
    if "\\" in text:
        wrong.append("may not contain '\\'")  # no server of ours takes it in a path
    if wrong:
        raise argparse.ArgumentTypeError(f'"{text}" is no name: {wrong[0]}')
    return text
