"""
Settings of the sources of leaves, each with the option of ``exec-nodeserver`` that sets it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from twisted_exec.api import spaces
from twisted_exec.api.selectors import LabelSelector
from twisted_exec.nodeserver.ownership import DEFAULT_ROOT, OWNED, POLICIES
from twisted_exec.program.options.declaration import OPTION, ProgramOption, Required


@dataclass(frozen=True)
class SpaceChoice:
    """
    Which Spaces are leaves.

    :param providers: empty selects all, and imported Spaces as well.
    :param viewpoint: one of :data:`~twisted_exec.api.spaces.VIEWPOINTS`.
    :param policy: ownership of Pods where a Space's label does not decide, see
        :class:`~twisted_exec.nodeserver.ownership.OwnershipRule`.
    """

    providers: tuple[str, ...] = field(
        metadata={
            OPTION: ProgramOption(
                "spaces", "Use the Spaces of these providers as leaves; * for all.", default=""
            )
        }
    )
    selector: LabelSelector = field(
        metadata={
            OPTION: ProgramOption(
                "space-selector",
                "Use only Spaces with these labels: a label selector.",
                default="",
            )
        }
    )
    viewpoint: str = field(
        default=spaces.EXTERNAL,
        metadata={
            OPTION: ProgramOption(
                "space-viewpoint", f"Kubeconfig of Spaces: {' or '.join(spaces.VIEWPOINTS)}."
            )
        },
    )
    policy: str = field(
        default=OWNED,
        metadata={
            OPTION: ProgramOption("space-pods", f"Pod ownership in Spaces: {', '.join(POLICIES)}.")
        },
    )


@dataclass(frozen=True)
class RegistrySettings:
    """
    Settings of the registry.

    :param root_name: the root's name in its leaves, a valid label value.
    """

    leaves: str = field(
        default="",
        metadata={
            OPTION: ProgramOption(
                "leaves",
                "YAML file with the leaf clusters.",
                is_path=True,
                required=Required(
                    "the file with the leaf clusters; give --leaves, --kosmos or --spaces",
                    unless=["kosmos", "spaces"],
                ),
            )
        },
    )
    kosmos: bool = field(
        default=False,
        metadata={
            OPTION: ProgramOption(
                "kosmos", "Use the clusters of Kosmos's Cluster objects as leaves."
            )
        },
    )
    root_name: str = field(
        default=DEFAULT_ROOT,
        metadata={OPTION: ProgramOption("root-name", "Name of this root in its leaves.")},
    )
    spaces: SpaceChoice | None = field(default=None, metadata={OPTION: SpaceChoice})
