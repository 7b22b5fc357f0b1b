"""
The disk that stands for the image of a machine, in revisions in which a machine has an image.
"""

from __future__ import annotations

from collections.abc import Iterable

from twisted_exec.api.status import BadRequest
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.revision import Lose

IMAGE_DISK = "machine-image"
"""Name of the disk that stands for the image of a machine."""


def image_disk(image: str) -> pb.Volume:
    return pb.Volume(name=IMAGE_DISK, local_disk=pb.LocalDisk(image=pb.ImageSpec(image=image)))


def split_image(volumes: Iterable[pb.Volume], lose: Lose) -> tuple[str, list[pb.Volume]]:
    """
    Return the image of the machine (may be empty), and its other disks.

    If :class:`~twisted_exec.iri.revision.Lose` permits, another disk's image becomes the machine's,
    and that disk loses it.
    """
    image, rest = "", []
    for volume in volumes:
        image_name = volume.local_disk.image.image
        if volume.name == IMAGE_DISK and image_name:
            if volume.local_disk.size_bytes:
                lose(f"a size of the disk {IMAGE_DISK!r}: it is as large as the image")
            image = image_name
            continue
        if image_name:
            lose(f"an image of the disk {volume.name!r}: only that of a disk {IMAGE_DISK!r}")
            image = image or image_name
        rest.append(volume)
    return image, rest


def join_image(image: str, volumes: Iterable[pb.Volume]) -> list[pb.Volume]:
    """
    Return the disks of a machine that has an image (may be empty).

    :raises BadRequest: a disk has the reserved name :data:`IMAGE_DISK`.
    """
    volumes_left = list(volumes)
    if not image:
        return volumes_left
    if any(volume.name == IMAGE_DISK for volume in volumes_left):
        raise BadRequest(f"a disk is named {IMAGE_DISK!r}, which stands for the machine's image")
    return [image_disk(image), *volumes_left]
