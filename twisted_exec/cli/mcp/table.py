"""
The tools: names, descriptions and parameters; nothing here comes from a machine or a server.

The hints are those of the specification. They are for the agent's program, and the API server decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from twisted_exec.api import schema
from twisted_exec.api.declared_reasons import LONGEST_REASON
from twisted_exec.api.patterns import MOST_BYTES
from twisted_exec.api.schema import Schema, boolean, integer, string
from twisted_exec.cli.mcp.keys import KEYS
from twisted_exec.wire.shell_run import MOST_COMMAND_BYTES

MOST_SECONDS = 300
"""The longest time that a call waits."""
MOST_TEXT = 4096
MOST_KEYS = 64
MOST_OFFSET = 2**63 - 1
MOST_LISTED = 2000
DEFAULT_TAIL = 50
ACCESS_SECONDS = 900
"""How long an approval is valid if the agent does not say."""

_MACHINE = string("Name of the machine.", minLength=1, maxLength=253)
_NAMESPACE = string("Namespace of the machine; by default the one of the connection.", maxLength=63)
_REASON = string("Why you need this, such as the number of a ticket.", maxLength=LONGEST_REASON)
_PATTERN = string(
    "Regular expression (RE2) to find in a line. The line is searched without its colours and other escape sequences.",
    minLength=1,
    maxLength=MOST_BYTES,
)
_OFFSET = integer(
    "Offset of the first byte, such as next_offset of an earlier answer.",
    minimum=0,
    maximum=MOST_OFFSET,
)
_EPOCH = string(
    "epoch of the answer with the offset. If the log has begun anew since, the answer says so in missing, and begins with "
    "the new log.",
    pattern="^[0-9a-f]{16}$",
)
_TIME = "RFC 3339 time, or a duration before now such as 10m or 2h."


def _seconds(default: int) -> Schema:
    return integer(
        "How long to wait, in seconds.", minimum=1, maximum=MOST_SECONDS, default=default
    )


@dataclass(frozen=True)
class Tool:
    """
    A tool.

    :param acts: it changes something; an agent's own identity is needed.
    :param destructive: what it changes may be lost.
    :param idempotent: a second call with the same arguments changes nothing more.
    :param waits: it may wait for a machine or a person, for as long as the agent says.
    """

    name: str
    title: str
    description: str
    properties: Mapping[str, Schema] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    acts: bool = False
    destructive: bool = False
    idempotent: bool = False
    waits: bool = False

    @property
    def schema(self) -> Schema:
        return schema.struct(self.properties, required=self.required)

    def describe(self) -> Mapping[str, Any]:
        """Return the tool as ``tools/list`` does."""
        properties = {
            name: {key: value for key, value in each.items() if not key.startswith("x-")}
            for name, each in self.properties.items()
        }
        parameters: dict[str, Any] = {
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
        }
        if self.required:
            parameters["required"] = list(self.required)
        hints = {
            "title": self.title,
            "readOnlyHint": not self.acts,
            "destructiveHint": self.destructive,
            "idempotentHint": self.idempotent or not self.acts,
            "openWorldHint": False,
        }
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": parameters,
            "annotations": hints,
        }


def _of_machine(
    properties: Mapping[str, Schema] | None = None, *required: str
) -> tuple[Mapping[str, Schema], tuple[str, ...]]:
    both = {"machine": _MACHINE, "namespace": _NAMESPACE, **(properties or {})}
    return both, ("machine", *required)


TOOLS: tuple[Tool, ...] = (
    Tool(
        "list_machines",
        "List machines",
        "List the machines of a namespace with their state and power.",
        {
            "namespace": _NAMESPACE,
            "all_namespaces": boolean("List those of all namespaces."),
            "label_selector": string("Only machines with these labels.", maxLength=1024),
            "offset": integer(
                "How many machines to skip: next_offset of an earlier answer.",
                minimum=0,
                maximum=MOST_LISTED,
            ),
        },
    ),
    Tool(
        "get_screen",
        "Screen of a machine",
        "Return what a terminal shows of the machine's console, as text, now or at an earlier time. "
        "read_log goes on at next_offset.",
        *_of_machine({"at": string(f"When: {_TIME}", maxLength=64)}),
    ),
    Tool(
        "read_log",
        "Log of a machine",
        "Return what the machine printed, from an offset, a time or the last lines on, and next_offset for the next "
        "call. missing lists output that was lost.",
        *_of_machine(
            {
                "offset": _OFFSET,
                "epoch": _EPOCH,
                "since": string(f"Only output since then: {_TIME}", maxLength=64),
                "until": string(f"Only output until then: {_TIME}", maxLength=64),
                "tail_lines": integer(
                    f"Only the last lines; {DEFAULT_TAIL} without offset and since.",
                    minimum=1,
                    maximum=10_000,
                ),
                "pattern": _PATTERN,
            }
        ),
    ),
    Tool(
        "wait_for",
        "Wait for output",
        "Wait until the machine prints a line that matches, from an offset or from now on; return it with the lines "
        "before it. Without a match the answer says matched: false.",
        *_of_machine(
            {
                "pattern": _PATTERN,
                "offset": _OFFSET,
                "epoch": _EPOCH,
                "timeout_seconds": _seconds(30),
            },
            "pattern",
        ),
        waits=True,
    ),
    Tool(
        "who_is_watching",
        "People at a console",
        "List the sessions at the machine's console: people and programs that read what is printed and typed.",
        *_of_machine(),
    ),
    Tool(
        "request_access",
        "Ask for access",
        "Ask a person to approve your use of the machine's console, or see what became of an earlier request. The "
        "person reads the reason. The answer says pending, approved, denied, withdrawn, used or expired: call it again "
        "later with the same arguments, or with request. Another right, reason or time makes another request; other is one "
        "of yours that is approved or pending, too.",
        *_of_machine(
            {
                "reason": _REASON,
                "right": string(
                    "observe, to read; drive, to type.", enum=["observe", "drive"], default="drive"
                ),
                "seconds": integer(
                    "How long you need it.", minimum=60, maximum=86_400, default=ACCESS_SECONDS
                ),
                "request": string("An earlier request, by name.", maxLength=253),
                "again": boolean(
                    "Ask again with the same arguments, after a request was denied, withdrawn or has expired."
                ),
            }
        ),
        acts=True,
    ),
    Tool(
        "send",
        "Type at a console",
        "Type a text, and keys behind it, at the machine's console; a newline in the text is the key enter. Returns "
        "what was printed then: until the pattern wait_for matches, or until the machine is quiet for a moment.",
        *_of_machine(
            {
                "text": string("The text to type.", maxLength=MOST_TEXT),
                "keys": schema.array(
                    string(enum=list(KEYS)), "Keys to press behind the text.", maxItems=MOST_KEYS
                ),
                "wait_for": _PATTERN,
                "timeout_seconds": _seconds(30),
                "reason": _REASON,
            }
        ),
        acts=True,
        destructive=True,
        waits=True,
    ),
    Tool(
        "run",
        "Run a command",
        "Run a command in the shell at the machine's console, and return its output and exit code. The command is "
        "typed only if a shell answers a probe: the keys ctrl-u and enter, and a line with printf. A login, a boot loader, "
        "a question and a full-screen program get no probe. The command runs in a subshell: what cd, export and umask "
        "set, and its jobs, do not last until the next call.",
        *_of_machine(
            {
                "command": string(
                    "The command, for a POSIX shell.", minLength=1, maxLength=MOST_COMMAND_BYTES
                ),
                "timeout_seconds": _seconds(60),
                "reason": _REASON,
            },
            "command",
        ),
        acts=True,
        destructive=True,
        waits=True,
    ),
    Tool(
        "send_break",
        "Send BREAK",
        "Send BREAK on the machine's line, for example for SysRq or the monitor of a switch.",
        *_of_machine({"reason": _REASON}),
        acts=True,
        destructive=True,
    ),
    Tool(
        "power",
        "Power of a machine",
        "Power a machine on or off. Off ends its programs at once.",
        *_of_machine({"state": string("The power.", enum=["On", "Off"])}, "state"),
        acts=True,
        destructive=True,
        idempotent=True,
    ),
    Tool(
        "leave_console",
        "Leave a console",
        "End your session at the machine's console, so that others may type. A session ends by itself after "
        "two minutes without send, run and send_break.",
        *_of_machine(),
        acts=True,
        idempotent=True,
    ),
    Tool(
        "start_recording",
        "Start a recording",
        "Begin a recording of what the machine prints, and of what is typed if the machine echoes it.",
        *_of_machine({"reason": _REASON}),
        acts=True,
    ),
    Tool(
        "end_recording",
        "End a recording",
        "End a recording of the machine: the one with this name, or the only one that goes on.",
        *_of_machine({"recording": string("Name of the recording.", maxLength=253)}),
        acts=True,
        idempotent=True,
    ),
)

BY_NAME: Mapping[str, Tool] = {each.name: each for each in TOOLS}


def faults(tool: Tool, arguments: Mapping[str, Any]) -> Iterator[str]:
    """Iterate over what is wrong with the arguments of a call, for the agent."""
    for name in schema.unknown_fields(tool.schema, arguments):
        yield f"{name[:64]}: the tool has no such parameter"
    for cause in schema.check(tool.schema, arguments):
        field, message = cause["field"], cause["message"]
        yield message if field in message else f"{field}: {message}"


def with_defaults(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with the defaults of others."""
    complete = dict(arguments)
    schema.set_defaults(tool.schema, complete)
    return complete
