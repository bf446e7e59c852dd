"""``fmin``: a function of parameters made small, by one process or by all ranks of a job."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sirtaki._native import NativeStudy
from sirtaki.hyperopt import hp, tpe
from sirtaki.hyperopt._trials import (
    JOB_STATE_DONE,
    JOB_STATE_ERROR,
    STATUS_FAIL,
    STATUS_OK,
    Algorithm,
    Trials,
)

_RESULT = "hyperopt:result"
_PAUSE = 0.05
"""Seconds between looks at what other ranks still do."""


def fmin(
    fn: Callable[[Any], Any],
    space: Any,
    algo: Algorithm = tpe.suggest,
    max_evals: int | None = None,
    timeout: float | None = None,
    loss_threshold: float | None = None,
    trials: Trials | None = None,
    rstate: Any = None,
    allow_trials_fmin: bool = True,
    pass_expr_memo_ctrl: Any = None,
    catch_eval_exceptions: bool = False,
    verbose: bool = True,
    return_argmin: bool = True,
    points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
    max_queue_len: int = 1,
    show_progressbar: bool = True,
    early_stop_fn: Callable[..., tuple[bool, list[Any]]] | None = None,
    trials_save_file: str = "",
) -> Any:
    """Find the parameters for which ``fn`` is smallest.

    ``fn`` returns a loss, or a dict with ``loss`` and ``status``. Ranks of a job do ``max_evals``
    together. Returns the best value of each parameter by its label, for a choice its index.

    >>> from sirtaki.hyperopt import STATUS_OK, Trials, fmin, hp, rand
    >>> space = hp.choice("kind", [{"n": hp.randint("n", 9)}, {"x": hp.normal("x", 0, 1)}])
    >>> trials = Trials()
    >>> best = fmin(lambda at: {"loss": len(at), "status": STATUS_OK}, space, algo=rand.suggest,
    ...             max_evals=5, trials=trials, rstate=3, show_progressbar=False)
    >>> len(trials), trials.losses()
    (5, [1.0, 1.0, 1.0, 1.0, 1.0])
    """
    known = Trials() if trials is None else trials
    size, job = int(os.environ.get("SIRTAKI_SIZE", "1")), os.environ.get("SIRTAKI_JOB")
    together = size > 1 and job is not None
    path = known.path
    if path is None and together:
        path = os.path.join("runs", f"hyperopt-{job}", "journal.log")
    about = {"name": known.exp_key or "fmin", "sampler": algo.name, "seed": _seed(rstate)}
    study = NativeStudy(json.dumps(about), path, "any")
    for point in points_to_evaluate or ():
        study.enqueue(json.dumps(dict(point)))
    begin = time.monotonic()
    if max_evals is not None:
        study.limit(max_evals)
    early: list[Any] = []
    while timeout is None or time.monotonic() - begin < timeout:
        number = study.ask_open()
        if number is None:
            break
        loss = _evaluate(study, number, fn, space, catch_eval_exceptions)
        if loss is not None and loss_threshold is not None and loss <= loss_threshold:
            break
        if early_stop_fn is not None:
            known.trials = _found(study, space)
            stops, early = early_stop_fn(known, *early)
            if stops:
                break
    known.trials = _found(study, space)
    while together and any(trial["result"]["status"] == "running" for trial in known.trials):
        time.sleep(_PAUSE)
        known.trials = _found(study, space)
    return known.argmin if return_argmin else None


def _evaluate(
    study: NativeStudy, number: int, fn: Callable[[Any], Any], space: Any, catch: bool
) -> float | None:
    try:
        point = hp.sample(
            space, hp.asker(lambda name, domain: study.suggest(number, name, domain))
        )
        value = fn(point)
        result = (
            dict(value) if isinstance(value, Mapping) else {"loss": value, "status": STATUS_OK}
        )
        result.setdefault("status", STATUS_OK)
        loss = float(result["loss"]) if result["status"] == STATUS_OK else math.nan
    except Exception as error:
        study.tell(number, "failed", [], f"{type(error).__name__}: {error}")
        if not catch:
            raise
        return None
    kept = {key: one for key, one in result.items() if isinstance(one, (str, int, float, bool))}
    study.attribute(number, _RESULT, json.dumps(kept))
    if result["status"] != STATUS_OK:
        study.tell(number, "failed", [], str(result.get("status")))
        return None
    study.tell(number, "finished", [loss], "")
    return loss


def _found(study: NativeStudy, space: Any) -> list[dict[str, Any]]:
    """All trials in Hyperopt's words."""
    return [_in_its_words(trial, space) for trial in json.loads(study.trials())]


def _in_its_words(trial: Mapping[str, Any], space: Any) -> dict[str, Any]:
    attributes = {key: value for _, key, value in trial["attributes"]}
    result = json.loads(attributes.get(_RESULT, "{}"))
    state = trial["state"]
    if state == "finished":
        result.update(loss=float(next(iter(trial["values"].values()))), status=STATUS_OK)
    else:
        result.setdefault("status", "running" if state == "running" else STATUS_FAIL)
    try:
        values = hp.labelled(space, trial["parameters"])
    except KeyError:
        # It failed before it had asked for all of them.
        values = dict(trial["parameters"])
    return {
        "tid": trial["number"],
        "state": JOB_STATE_DONE if result["status"] == STATUS_OK else JOB_STATE_ERROR,
        "result": result,
        "misc": {
            "tid": trial["number"],
            "vals": {label: [value] for label, value in values.items()},
            "idxs": {label: [trial["number"]] for label in values},
        },
    }


def _seed(rstate: Any) -> int:
    """A seed from whatever Hyperopt takes: nothing, a number, or a generator of NumPy.

    Of ranks that share a study, the seed of the first one counts.
    """
    if rstate is None:
        return int.from_bytes(os.urandom(4), "big")
    if isinstance(rstate, int):
        return rstate
    draw = getattr(rstate, "integers", None) or rstate.randint
    return int(draw(2**31 - 1))
