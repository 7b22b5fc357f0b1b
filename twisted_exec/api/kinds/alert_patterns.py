"""
Patterns that console alerts look for in what machines print, and the shipped sets of patterns.

All texts of the shipped sets are literal, so that the sets work everywhere.  Several entries may have one
name: they are one pattern with several texts.

Sources of the shipped sets: Linux ``kernel/panic.c``, ``arch/*/kernel/traps.c``, ``arch/*/mm/fault.c``,
``mm/oom_kill.c``, ``kernel/hung_task.c``, ``kernel/watchdog.c``, ``arch/x86/kernel/cpu/mce``,
``init/do_mounts.c``; systemd ``src/shared`` and ``units/emergency.service.in``; Debian
initramfs-tools ``scripts/functions`` and ``scripts/local``; dracut ``modules.d``; GRUB
``grub-core/normal`` and ``grub-core/kern/rescue_*``; SeaBIOS ``src/boot.c``; EDK II ``BdsDxe``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from twisted_exec.api.patterns import Pattern

INFO, WARNING, CRITICAL = SEVERITIES = ("Info", "Warning", "Critical")

THROTTLE_SECONDS = 300


@dataclass(frozen=True)
class AlertPattern:
    """
    One text to look for.

    :param condition: reason of the machine's condition ConsoleHealthy; empty leaves the condition
        alone.
    """

    name: str
    pattern: Pattern
    severity: str = WARNING
    condition: str = ""
    throttle_seconds: int = THROTTLE_SECONDS


def _several(
    name: str, *texts: str, severity: str = CRITICAL, condition: str = ""
) -> Iterator[AlertPattern]:
    for text in texts:
        yield AlertPattern(name, Pattern(text), severity, condition)


_LINUX = (
    *_several("kernel-panic", "Kernel panic - not syncing", condition="KernelPanic"),
    *_several(
        "kernel-oops",
        "Oops: ",
        "BUG: unable to handle ",
        "BUG: kernel NULL pointer dereference",
        "general protection fault, ",
        "Unable to handle kernel ",
        "kernel BUG at ",
        condition="KernelOops",
    ),
    *_several(
        "kernel-lockup", "BUG: soft lockup - ", "hard LOCKUP on cpu", condition="KernelLockup"
    ),
    *_several("oom-kill", "ut of memory: Kill", severity=WARNING),
    *_several("hung-task", " blocked for more than ", severity=WARNING),
    *_several(
        "machine-check",
        "[Hardware Error]: ",
        "Machine check events logged",
        severity=WARNING,  # most are corrected; a fatal one leads to a panic
    ),
    *_several(
        "emergency-shell",
        "You are in emergency mode",
        "You are in rescue mode",
        "Give root password for maintenance",
        "Press Enter for emergency shell",
        "Entering emergency mode",
        "(initramfs) ",
        condition="EmergencyShell",
    ),
    *_several(
        "no-root-device",
        "VFS: Cannot open root device",
        "VFS: Unable to mount root fs",
        "Gave up waiting for root",
        "Dropping to a shell!",
        "dracut-initqueue: Warning: Could not boot",
        condition="NoRootDevice",
    ),
    *_several(
        "boot-loader-rescue",
        "grub rescue>",
        "Entering rescue mode...",
        "No bootable device",
        "BdsDxe: No bootable option",
        condition="BootLoaderRescue",
    ),
)

PRESETS: Mapping[str, tuple[AlertPattern, ...]] = {"linux": _LINUX}
"""The shipped sets, by the word in ``spec.presets``."""


def patterns_of(spec: Mapping[str, Any]) -> tuple[AlertPattern, ...]:
    """Return the patterns of a ConsoleAlert's valid spec."""
    patterns = [each for preset in spec.get("presets", ()) for each in PRESETS.get(preset, ())]
    for each in spec.get("patterns", ()):
        is_regex = "regex" in each
        patterns.append(
            AlertPattern(
                each["name"],
                Pattern(each["regex" if is_regex else "literal"], is_regex),
                each.get("severity", WARNING),
                each.get("condition", ""),
                each.get("throttleSeconds", THROTTLE_SECONDS),
            )
        )
    return tuple(patterns)
