"""Makes TensorFlow know Sirtaki's ops, which are part of the package's compiled file.

TensorFlow learns of ops that are registered while it loads a library, and refuses one that Python
has loaded before. So it gets a library that is made here: a file without any code, whose list of
initialisers has one entry, the address of the function that registers the ops. It is the same for
all versions of TensorFlow, and nothing has to be compiled for it.
"""

from __future__ import annotations

import os
import platform
import struct
import tempfile
import threading
from typing import Any

import tensorflow as tf

from sirtaki import _native

_MACHINES = {"x86_64": 62, "aarch64": 183}

_PAGE = 0x10000
"""At least the size of a page of memory on all machines."""


def _empty_library(initialiser: int) -> bytes:
    """A shared library in the ELF format that has nothing but this initialiser."""
    header, program, programs = 64, 56, 3
    dynamic = header + programs * program
    entries = 7
    initialisers = dynamic + 16 * entries
    symbols = initialisers + 8
    strings = symbols + 24
    end = strings + 1
    # DT_INIT_ARRAY, its size, DT_STRTAB, its size, DT_SYMTAB, the size of a symbol, the end.
    tags = ((25, initialisers), (27, 8), (5, strings), (10, 1), (6, symbols), (11, 24), (0, 0))
    machine = _MACHINES[platform.machine()]
    parts = [b"\x7fELF\x02\x01\x01".ljust(16, b"\0")]
    sizes = (header, program, programs, 64, 0, 0)
    parts.append(struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, header, 0, 0, *sizes))
    # PT_LOAD, PT_DYNAMIC and PT_GNU_STACK: memory to read and write, and no code.
    parts.append(struct.pack("<IIQQQQQQ", 1, 6, 0, 0, 0, end, end, _PAGE))
    size = 16 * entries
    parts.append(struct.pack("<IIQQQQQQ", 2, 6, dynamic, dynamic, dynamic, size, size, 8))
    parts.append(struct.pack("<IIQQQQQQ", 0x6474E551, 6, 0, 0, 0, 0, 0, 16))
    parts.extend(struct.pack("<QQ", *tag) for tag in tags)
    parts.append(struct.pack("<Q", initialiser))
    return b"".join(parts).ljust(end, b"\0")


def _framework() -> str:
    """The library with TensorFlow's C interface."""
    folder, name = tf.sysconfig.get_lib(), ""
    for flag in tf.sysconfig.get_link_flags():
        if flag.startswith("-l:"):
            name = flag[3:]
    return os.path.join(folder, name or "libtensorflow_framework.so.2")


def _load() -> Any:
    initialiser = _native.tensorflow_ops(_framework())
    with tempfile.NamedTemporaryFile(prefix="sirtaki-", suffix=".so") as file:
        file.write(_empty_library(initialiser))
        file.flush()
        loaded = tf.load_op_library(file.name)
    _native.tensorflow_ready(threading.current_thread() is threading.main_thread())
    return loaded


ops = _load()
"""The ops as functions."""
