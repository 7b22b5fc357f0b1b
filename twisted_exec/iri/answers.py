"""
What a runtime may answer.

A runtime is another program, perhaps of another make, perhaps in other hands.  What it
sends is read here before anybody acts on it: bytes that are no answer, and lists without end, are
a bad gateway, with the cause that is likely; a state that nobody defined is told as a pending
machine with a condition that says so, because the other machines of the list are none the worse.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError, Message

from twisted_exec.api.status import APIError, BadGateway
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.revision import Call

MOST_MACHINES = 20_000
"""In one list; ten times what one poollet is made for."""

MOST_EVENTS = 100_000
MOST_CLASSES = 2_000

STATE_KNOWN = "StateKnown"
"""The condition of a machine whose state nobody knows; ``False``."""

_LIMITS = {
    "machines": MOST_MACHINES,
    "events": MOST_EVENTS,
    "machine_class_status": MOST_CLASSES,
}
_STATES = frozenset(pb.MachineState.values())


def read_answer(call: Call, raw: bytes) -> Message:
    """
    An answer, in the vocabulary inside.

    :raises BadGateway: it is none, or holds more than can be meant.
    """
    try:
        answer = call.decode_response(raw)
    except (DecodeError, APIError):
        raise BadGateway(
            f"the machine runtime's answer to {call.path} cannot be read: does it speak "
            f"another revision of the interface than {call.revision}?"
        ) from None
    for field, most in _LIMITS.items():
        found = len(getattr(answer, field, ()))
        if found > most:
            raise BadGateway(f"the machine runtime lists {found} {field}, more than {most}")
    _check_states(answer)
    return answer


def _check_states(answer: Message) -> None:
    if isinstance(answer, pb.ListMachinesResponse):
        for machine in answer.machines:
            _check_state(machine)
    elif isinstance(answer, pb.CreateMachineResponse):
        _check_state(answer.machine)


def _check_state(machine: pb.Machine) -> None:
    state = machine.status.state
    if state in _STATES:
        return
    machine.status.state = pb.MACHINE_PENDING
    machine.status.machine_conditions.add(
        type=STATE_KNOWN,
        status="False",
        reason="UnknownState",
        message=f"the machine runtime says that the machine is in state {int(state)}, "
        "which nobody defined",
    )
