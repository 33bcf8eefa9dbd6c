"""What each XID means for a server that runs on the GPU.

Numbers and meanings: docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html; the three classes are ours.
application: a program's own fault, the device is well. contained: one program was hit, the device goes on. fatal: the
device, its link or its firmware failed, and every program on it is in doubt. An unlisted XID counts as trouble, and
people are asked how serious it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Literal, NamedTuple

XidClass = Literal["application", "contained", "fatal"]


class Xid(NamedTuple):
    kind: XidClass
    meaning: str


XIDS: dict[int, Xid] = {
    13: Xid("application", "graphics engine exception"),
    31: Xid("application", "GPU memory page fault"),
    43: Xid("application", "GPU stopped processing"),
    45: Xid("application", "preemptive cleanup after another error"),
    63: Xid("contained", "a memory row is to be remapped"),
    94: Xid("contained", "contained memory error"),
    48: Xid("fatal", "uncorrectable double-bit memory error"),
    64: Xid("fatal", "a memory row could not be remapped"),
    74: Xid("fatal", "NVLink error"),
    79: Xid("fatal", "the GPU has fallen off the bus"),
    95: Xid("fatal", "uncontained memory error"),
    119: Xid("fatal", "GSP firmware timed out"),
    120: Xid("fatal", "GSP firmware error"),
    140: Xid("fatal", "unrecovered memory error"),
}
UNLISTED = Xid("fatal", "not in the bot's table")
RECOVERY_ACTION = 154
"""Logged after another XID, which it overwrites in the register. Only the driver's log says which action is due."""


def xid_of(number: int) -> Xid:
    if number == RECOVERY_ACTION:
        return Xid("fatal", "the driver asks for a reset, a reboot or a drain")
    return XIDS.get(number, UNLISTED)


def class_of(number: int) -> XidClass | None:
    """None if it is not listed: a guess would cordon a node for it."""
    return XIDS[number].kind if number in XIDS else None


def primary_xids(numbers: Iterable[int]) -> list[int]:
    """Returns the XIDs without 154, which only follows another one; 154 if it is the only one."""
    every = list(numbers)
    return [number for number in every if number != RECOVERY_ACTION] or every


def new_xids(readings: Iterable[Mapping[str, float]]) -> list[int]:
    """XIDs that the register took on between two readings, oldest first.

    A later XID overwrites the register, so the ones in between count too.
    """
    seen = [int(values["xid"]) for values in readings if "xid" in values]
    return [later for earlier, later in pairwise(seen) if later not in (earlier, 0)]


def counted_xids(readings: Iterable[Mapping[str, float]]) -> list[int]:
    """XIDs that the exporter itself counted lately (`DCGM_EXP_XID_ERRORS_COUNT`), each once."""
    keys = (key.removeprefix("counted:") for values in readings for key in values if key.startswith("counted:"))
    return list(dict.fromkeys(int(key) for key in keys if key.isdigit()))
