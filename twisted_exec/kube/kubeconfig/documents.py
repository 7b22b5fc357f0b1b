"""Rules for the YAML of kubeconfigs."""

from __future__ import annotations

from twisted_exec.api.yaml_reader import MAX_VALUES, Rules, text_scalar

OWN = Rules(MAX_VALUES, aliases=True, whole=False)
"""Rules for files of this user.  As in kubectl, the first document counts."""

OTHERS = Rules(5_000, 32, text_scalar, tags=False, whole=False)
"""Rules for kubeconfigs from another party, which are parsed in the reactor."""
