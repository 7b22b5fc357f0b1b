"""
A disk that boots GRUB with a menu at the serial line.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests import needs

CONFIG = """\
serial --unit=0 --speed=115200
terminal_input serial
terminal_output serial
set menu_color_normal=white/blue
set menu_color_highlight=yellow/red
menuentry "Debian GNU/Linux" { echo "no kernel"; sleep 3 }
submenu "Advanced options for Debian GNU/Linux" { menuentry "recovery mode" { true } }
menuentry "An entry with a name that is longer than the frame of the menu, so that it is cut at its right side" { true }
menuentry "UEFI firmware settings" { reboot }
"""
_BUILT_IN = "serial terminal normal biosdisk"
_MODULES = f"{_BUILT_IN} ls echo help sleep cat test minicmd reboot true"
_SECTOR = 512


def disk(directory: str) -> str:
    """Make the disk; return its path."""
    os.makedirs(directory)
    modules, path = needs.grub_modules(), Path(directory)
    (path / "grub.cfg").write_text(CONFIG)
    subprocess.run(
        [
            "grub-mkstandalone",
            f"--directory={modules}",
            "--format=i386-pc",
            *("--fonts=", "--themes=", "--locales="),
            f"--modules={_BUILT_IN}",
            f"--install-modules={_MODULES}",
            f"--output={path / 'core.img'}",
            f"boot/grub/grub.cfg={path / 'grub.cfg'}",
        ],
        check=True,
        capture_output=True,
    )
    # The first sector loads the second one, which loads the others.
    content = Path(modules, "boot.img").read_bytes() + (path / "core.img").read_bytes()
    made = path / "disk.img"
    made.write_bytes(content.ljust(-(-len(content) // _SECTOR) * _SECTOR, b"\0") + bytes(1 << 20))
    return str(made.resolve())
