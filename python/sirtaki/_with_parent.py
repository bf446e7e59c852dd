"""A script that becomes another program, which is asked to end when its parent is gone.

Usage: ``_with_parent.py PARENT PROGRAM [ARGUMENT]...`` with the process id of the parent and the
path of the program.

The launcher ends its ranks, but nothing would end the launcher if a notebook's kernel was killed.
The operating system's kernel does if it is asked to between fork and exec. ``preexec_fn`` could
ask it, but runs Python in a process that was forked while other threads were running, and may wait
forever for their locks; a separate script does not have this problem.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

SET_PARENT_DEATH_SIGNAL = 1


def main(parent: int, command: list[str]) -> None:
    ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, int(signal.SIGTERM))
    if os.getppid() != parent:
        sys.exit("the process that wanted this job is gone")
    # Python ignores these two signals, and a program inherits that.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
