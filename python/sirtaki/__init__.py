"""Sirtaki for Python: run a function on several ranks, from a notebook, a test or a script.

>>> import math, sirtaki
>>> sirtaki.run(math.sqrt, (16,), ranks=2)
[4.0, 4.0]
"""

from sirtaki._errors import LaunchError, RankError
from sirtaki._run import run

__all__ = ["LaunchError", "RankError", "run"]
