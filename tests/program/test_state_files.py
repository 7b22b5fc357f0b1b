"""
Tests for :mod:`twisted_exec.program.state_files`.
"""

from __future__ import annotations

from dataclasses import MISSING, fields

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.journal.program_run import ProgramRun
from twisted_exec.program.state_files import from_document
from twisted_exec.runtimes.alerts.saved_state import Unhealthy
from twisted_exec.runtimes.recordings.recording import RecordingFacts
from twisted_exec.spacemanager.providers.kind.records import ClusterRecord

RELEASE_0_2_0 = {
    ProgramRun: "number kernel clean cut time_ns front",
    RecordingFacts: "uid key machine input epoch first start_ns columns rows secret until_ns is_ended owner failure "
    "message location is_released user",
    ClusterRecord: "owner state began group uid",
    Unhealthy: "pattern_id reason message epoch boot",
}
"""The fields that release 0.2.0 knows."""
REQUIRED_BY_0_2_0 = {
    ProgramRun: "number kernel clean cut time_ns",
    RecordingFacts: "uid key machine input epoch first start_ns columns rows secret",
    ClusterRecord: "owner state began",
    Unhealthy: "pattern_id reason message epoch boot",
}


class ReleaseTests(SynchronousTestCase):
    """
    State between releases, as promised in docs/howto/upgrade.rst.

    Release 0.2.0 refuses a file with a field that it does not know.  As long as it has to read the state of this
    release, no field may be added; this release and later ones ignore it.
    """

    def test_fields(self) -> None:
        """Release 0.2.0 knows all fields, and gets those that it needs."""
        for kind, names in RELEASE_0_2_0.items():
            written = {each.name for each in fields(kind)}
            self.assertLessEqual(written, {*names.split()}, kind)
            self.assertGreaterEqual(written, {*REQUIRED_BY_0_2_0[kind].split()}, kind)

    def test_required(self) -> None:
        """This release needs no field that release 0.2.0 may leave out."""
        for kind, names in REQUIRED_BY_0_2_0.items():
            required = {each.name for each in fields(kind) if each.default is MISSING}
            self.assertLessEqual(required, {*names.split()}, kind)

    def test_no_object(self) -> None:
        """Anything else than an object with the fields that have no default is refused."""
        for document in ([], None, "text", 7, {"number": 1}):
            self.assertRaises(TypeError, from_document, ProgramRun, document)
