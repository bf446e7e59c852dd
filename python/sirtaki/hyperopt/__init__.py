"""Hyperopt's interface to Sirtaki's studies: scripts written for Hyperopt run unchanged.

Where Hyperopt shares work through MongoDB, ranks of a job share it through a journal: under
``sirtaki run -n 8`` a call of ``fmin`` has eight workers, and ``MongoTrials`` needs no database.

>>> from sirtaki.hyperopt import fmin, hp, tpe
>>> best = fmin(lambda x: (x - 3) ** 2, hp.uniform("x", -5, 5), algo=tpe.suggest, max_evals=20,
...             rstate=1, show_progressbar=False)
>>> abs(best["x"] - 3) < 2
True
"""

from __future__ import annotations

from sirtaki.hyperopt import anneal, hp, rand, tpe
from sirtaki.hyperopt._fmin import fmin
from sirtaki.hyperopt._trials import (
    JOB_STATE_DONE,
    JOB_STATE_ERROR,
    JOB_STATE_NEW,
    JOB_STATE_RUNNING,
    STATUS_FAIL,
    STATUS_NEW,
    STATUS_OK,
    STATUS_RUNNING,
    MongoTrials,
    SparkTrials,
    Trials,
)
from sirtaki.hyperopt.hp import space_eval

__all__ = [
    "JOB_STATE_DONE",
    "JOB_STATE_ERROR",
    "JOB_STATE_NEW",
    "JOB_STATE_RUNNING",
    "STATUS_FAIL",
    "STATUS_NEW",
    "STATUS_OK",
    "STATUS_RUNNING",
    "MongoTrials",
    "SparkTrials",
    "Trials",
    "anneal",
    "fmin",
    "hp",
    "rand",
    "space_eval",
    "tpe",
]
