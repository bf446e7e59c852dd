"""Optuna's interface to Sirtaki's studies: scripts written for Optuna run unchanged.

``import sirtaki.optuna as optuna`` is all that changes. Studies without a storage are in memory;
under ``sirtaki run -n 8`` the ranks are eight workers of one study, which they share through a
journal in ``runs``, without a database, and ``n_trials`` is what they do together:

>>> import sirtaki.optuna as optuna
>>> def objective(trial):
...     x = trial.suggest_float("x", -5, 5)
...     return (x - 3) ** 2
>>> study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1))
>>> study.optimize(objective, n_trials=20)
>>> len(study.trials), study.best_value < 4
(20, True)
"""

from __future__ import annotations

from sirtaki.optuna import distributions, exceptions, logging, pruners, samplers, storages, trial
from sirtaki.optuna.exceptions import TrialPruned
from sirtaki.optuna.study import (
    Study,
    create_study,
    delete_study,
    get_all_study_names,
    load_study,
)
from sirtaki.optuna.trial import FrozenTrial, Trial, create_trial

__all__ = [
    "FrozenTrial",
    "Study",
    "Trial",
    "TrialPruned",
    "create_study",
    "create_trial",
    "delete_study",
    "distributions",
    "exceptions",
    "get_all_study_names",
    "load_study",
    "logging",
    "pruners",
    "samplers",
    "storages",
    "trial",
]
