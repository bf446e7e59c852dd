"""Run by Python at its start under ``sirtaki run --tf1``, before a user's ``sitecustomize``."""

import importlib.util
import os
import sys
from importlib.machinery import PathFinder

_here = os.path.dirname(os.path.abspath(__file__))

if _here in os.environ.get("PYTHONPATH", "").split(os.pathsep):
    import sirtaki_tf1

    sirtaki_tf1.install()
    _others = [place for place in sys.path if os.path.abspath(place) != _here]
    _own = PathFinder.find_spec(__name__, _others)
    if _own is not None and _own.loader is not None:
        # What Python would have found without this folder takes this module's place.
        _module = importlib.util.module_from_spec(_own)
        sys.modules[__name__] = _module
        _own.loader.exec_module(_module)
