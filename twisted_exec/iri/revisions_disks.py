"""
Disks, as the older revisions of the interface have them.

There a *machine* has an image, and its disks are empty or connected.  Inside, the image is
that of a disk.  So the machine's image is the disk :data:`IMAGE_DISK`, whose name, and nothing else,
tells that it is not the user's own: it has no size, no device, and no status.
"""

from __future__ import annotations

from collections.abc import Iterable

from twisted_exec.api.status import BadRequest
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.revision import Lose

IMAGE_DISK = "machine-image"
"""Name of the disk that stands for the image of a machine."""


def image_disk(image: str) -> pb.Volume:
    """The disk that stands for a machine's image."""
    return pb.Volume(name=IMAGE_DISK, local_disk=pb.LocalDisk(image=pb.ImageSpec(image=image)))


def split_image(volumes: Iterable[pb.Volume], lose: Lose) -> tuple[str, list[pb.Volume]]:
    """
    The image of the machine (may be empty), and its other disks.

    Where :class:`~.revision.Lose` lets it, a disk with an image that is not the machine's
    gives the machine its image all the same, and is a disk without one.
    """
    image, rest = "", []
    for volume in volumes:
        told = volume.local_disk.image.image
        if volume.name == IMAGE_DISK and told:
            if volume.local_disk.size_bytes:
                lose(f"a size of the disk {IMAGE_DISK!r}: it is as large as the image")
            image = told
            continue
        if told:
            lose(f"an image of the disk {volume.name!r}: only that of a disk {IMAGE_DISK!r}")
            image = image or told
        rest.append(volume)
    return image, rest


def join_image(image: str, volumes: Iterable[pb.Volume]) -> list[pb.Volume]:
    """
    The disks of a machine that has an image (may be empty).

    :raises BadRequest: one of them has the name that stands for the image.
    """
    found = list(volumes)
    if not image:
        return found
    if any(volume.name == IMAGE_DISK for volume in found):
        raise BadRequest(f"a disk is named {IMAGE_DISK!r}, which stands for the machine's image")
    return [image_disk(image), *found]
