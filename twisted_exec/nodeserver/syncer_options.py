"""
What the command line of a node server says about the syncer.
"""

from __future__ import annotations

from twisted.python.usage import UsageError

from twisted_exec.observe.program import ProgramOptions


class SyncOptions(ProgramOptions):
    """Options of the syncer, to be joined with others."""

    optFlags = [["sync-pods", None, "Make the root's Pods in their leaves: Kosmos does it itself."]]

    def postOptions(self) -> None:
        """
        :raises UsageError: somebody else does that.
        """
        super().postOptions()
        if self["sync-pods"] and self.get("kosmos"):
            raise UsageError(
                "--sync-pods and --kosmos exclude each other: Kosmos makes the Pods of its leaves"
                " itself"
            )
