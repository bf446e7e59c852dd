"""Horovod's environment variables: those with a meaning here, and a warning about the others."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping

SAME = {
    "HOROVOD_FUSION_THRESHOLD": "SIRTAKI_FUSION",
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "SIRTAKI_WARN_AFTER",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "SIRTAKI_HANG_TIMEOUT",
    "HOROVOD_GLOO_IFACE": "SIRTAKI_INTERFACE",
    "HOROVOD_GLOO_TIMEOUT_SECONDS": "SIRTAKI_START_TIMEOUT",
}
"""Variables that mean the same as one of Sirtaki's."""

UNDERSTOOD = {
    *SAME,
    "HOROVOD_CROSS_RANK",
    "HOROVOD_CROSS_SIZE",
    "HOROVOD_DYNAMIC_PROCESS_SETS",
    "HOROVOD_ELASTIC",
    "HOROVOD_HOSTNAME",
    "HOROVOD_LOCAL_RANK",
    "HOROVOD_LOCAL_SIZE",
    "HOROVOD_RANK",
    "HOROVOD_SIZE",
    "HOROVOD_STALL_CHECK_DISABLE",
    "HOROVOD_TIMELINE",
    "HOROVOD_TIMELINE_MARK_CYCLES",
}
"""Includes those that a launcher sets, and one that is always on here."""


def translated(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Sirtaki's variables, translated from Horovod's.

    >>> translated({"HOROVOD_FUSION_THRESHOLD": "1048576", "HOROVOD_STALL_CHECK_DISABLE": "1"})
    {'SIRTAKI_FUSION': '1048576', 'SIRTAKI_WARN_AFTER': 'off'}
    """
    ours = {SAME[name]: environment[name] for name in SAME if environment.get(name)}
    if environment.get("HOROVOD_STALL_CHECK_DISABLE") == "1":
        ours["SIRTAKI_WARN_AFTER"] = "off"
    return ours


def warn_about_others(environment: Mapping[str, str] = os.environ) -> None:
    """Warns once, naming those of Horovod's variables that have no effect."""
    others = sorted(
        name for name in environment if name.startswith("HOROVOD_") and name not in UNDERSTOOD
    )
    if others:
        warnings.warn(f"these variables have no effect here: {', '.join(others)}", stacklevel=3)
