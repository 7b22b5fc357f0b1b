"""
The recorder's certificate of a runtime: :mod:`twisted_exec.recording.signer_files`.
"""

from __future__ import annotations

from twisted_exec.recording.signer_files import SignerFiles

__all__ = ["SignerFiles"]
