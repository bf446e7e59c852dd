"""What the program is doing, for warnings about a rank that is late."""

from __future__ import annotations

import os
import sys
import threading
from types import FrameType

_FRAMES = 4
"""How many calls are shown, the innermost first."""


def describe() -> str | None:
    """The main thread's innermost calls: ``evaluate (train.py:41) < main (train.py:80)``."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return " < ".join(_calls(frame)) or None


def _calls(frame: FrameType | None) -> list[str]:
    calls: list[str] = []
    while frame is not None and len(calls) < _FRAMES:
        code = frame.f_code
        calls.append(f"{code.co_name} ({os.path.basename(code.co_filename)}:{frame.f_lineno})")
        frame = frame.f_back
    return calls
