"""The script that a rank runs: calls the function it was given and passes back the outcome.

Usage: ``_call.py PROCESS FILE`` with the caller's process id and the number of its open file with
the call.

It is started by its path and not with ``-m``, which would put the current folder before the
standard library: a file ``random.py`` there must not matter here if it did not matter to the
caller. Until the caller's ``sys.path`` is in place, nothing but the standard library is imported.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
import traceback
from typing import Any, Callable


def main(process: str, file: str) -> int:
    with open(f"/proc/{process}/fd/{file}", "rb") as call:
        frame = pickle.load(call)
        sys.path[:] = frame["path"]
        reply = perform(lambda: pickle.load(call))
    where = frame["replies"][int(os.environ["SIRTAKI_RANK"])]
    with open(f"/proc/{process}/fd/{where}", "wb") as file_of_rank:
        # The reader notices a missing end, so no other mark of completeness is needed.
        pickle.dump(reply, file_of_rank)
    return 0 if "result" in reply else 1


def perform(load: Callable[[], Any]) -> dict[str, Any]:
    """Loads the call, makes it, and describes the result or the exception."""
    try:
        function, args, kwargs = load()
        result = function(*args, **kwargs)
        return {"result": pickled(result)}
    except BaseException as error:
        return failure(error)


def failure(error: BaseException) -> dict[str, Any]:
    """An exception for the caller; its time tells which rank failed first."""
    moment = time.monotonic()
    summary = traceback.format_exception_only(type(error), error)[-1].strip()
    # The first frame is this script's.
    inside = error.__traceback__.tb_next if error.__traceback__ else None
    text = "".join(traceback.format_exception(type(error), error, inside))
    try:
        packed = pickled(error)
        pickle.loads(packed)
    except Exception:
        packed = None
    return {"error": packed, "summary": summary, "traceback": text, "moment": moment}


def pickled(value: Any) -> bytes:
    """By value if cloudpickle is installed, as the caller did with the function."""
    try:
        import cloudpickle
    except ImportError:
        return pickle.dumps(value)
    return cloudpickle.dumps(value)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
