"""Conversion between ConsoleRecordings and messages of the machine runtime, and the Events about them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping

from twisted_exec.api import times
from twisted_exec.api.kinds.consolerecordings import (
    CLOSED,
    FAILED,
    INCOMPLETE,
    INTERRUPTED,
    LONGEST_STATUS_REASON,
    NOT_STARTED,
    PHASES,
    PROBLEMS,
    RECORDING,
)
from twisted_exec.api.status import one_line
from twisted_exec.iri.protos import console_pb2 as pb
from twisted_exec.kube.interfaces import Object
from twisted_exec.program.turns import ShortTurns

NORMAL, WARNING = "Normal", "Warning"
_MOST_MESSAGE = 1024
_MOST_HEAD = 4096
_NANOSECONDS = 10**9
_USUAL_PROBLEMS = {RECORDING: INTERRUPTED, CLOSED: INCOMPLETE}
"""By phase."""


def desired(recording: Object) -> pb.DesiredRecording:
    """Return the message about one recording."""
    metadata, spec = recording["metadata"], recording["spec"]
    return pb.DesiredRecording(
        uid=metadata["uid"],
        machine_uid=spec.get("machineUID", ""),
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        machine_name=spec["machine"],
        input=spec.get("input", "masked"),
        since=_nanoseconds(metadata.get("creationTimestamp")),
        ended=bool(spec.get("ended")) or "deletionTimestamp" in metadata,
        user=spec.get("user", ""),
        policies=[f"{metadata.get('namespace', '')}/{each}" for each in spec.get("policies", ())],
    )


async def request(
    owner: str, recordings: Iterable[Object], released: Mapping[str, str], turns: ShortTurns
) -> pb.SetRecordingsRequest:
    """
    Return the message with the current recordings of a pool.

    :param released: UIDs of recordings whose objects are deleted, with those of their machines.
    """
    message = pb.SetRecordingsRequest(owner=owner)
    for each in sorted(recordings, key=lambda each: str(each["metadata"]["uid"])):
        await turns.breathe()
        if not is_over(each):
            message.recordings.append(desired(each))
    message.recordings.extend(
        pb.DesiredRecording(uid=uid, machine_uid=machine, input="none", released=True)
        for uid, machine in sorted(released.items())
    )
    digest = hashlib.sha256(message.SerializeToString(deterministic=True))
    message.generation = digest.hexdigest()[:32]
    return message


def is_over(recording: Object) -> bool:
    """Return whether a recording is closed or has failed; a closed recording may still be stored."""
    return recording.get("status", {}).get("phase") in (CLOSED, FAILED)


def status_of(reported: pb.RecordingStatus, now: float) -> Object:
    """
    Return the new fields of an object's status, as a merge patch.

    :param now: in seconds since the epoch.
    """
    status: Object = {
        "reason": one_line(reported.reason)[:LONGEST_STATUS_REASON] or None,
        "message": one_line(reported.message)[:_MOST_MESSAGE] or None,
    }
    if reported.state in PHASES:
        status["phase"] = reported.state
    if reported.epoch:
        status |= {
            "epoch": reported.epoch,
            "firstOffset": reported.first,
            "endOffset": reported.end,
            "head": reported.head[:_MOST_HEAD],
        }
        if reported.location:
            status["location"] = one_line(reported.location)[:_MOST_MESSAGE]
        if reported.start_time:
            status["startTime"] = times.timestamp(reported.start_time / _NANOSECONDS)
    if reported.state in (CLOSED, FAILED):
        end = reported.end_time / _NANOSECONDS if reported.end_time else now
        status["endTime"] = times.timestamp(end)
    return status


def events_of(before: Object, after: Object) -> Iterator[tuple[str, str, str]]:
    """Yield the type, reason and message of the Events about a change of a status."""
    was, phase = before.get("phase"), after.get("phase", "")
    message = after.get("message", "")
    if phase != was and phase == FAILED:
        yield WARNING, "RecordingFailed", message or "the runtime could not make the recording"
        return
    if phase and not was:
        yield (
            NORMAL,
            "RecordingStarted",
            f"the output is recorded from offset {after.get('firstOffset', 0)} on",
        )
    if phase != was and phase == CLOSED:
        size = after.get("endOffset", 0) - after.get("firstOffset", 0)
        yield NORMAL, "RecordingClosed", f"the recording is complete: {size} bytes of output"
    location = after.get("location", "")
    if location and location != before.get("location"):
        yield NORMAL, "RecordingStored", f"the recording is at {location}"
    if message and message != before.get("message"):
        reason = after.get("reason")
        if reason not in PROBLEMS:  # of another release
            reason = _USUAL_PROBLEMS.get(phase, NOT_STARTED)
        yield WARNING, f"Recording{reason}", message


def _nanoseconds(timestamp: str | None) -> int:
    try:
        return times.nanoseconds(timestamp or "")
    except ValueError:
        return 0
