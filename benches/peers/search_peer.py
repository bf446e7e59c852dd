"""Optuna and Hyperopt on the functions of `sirtaki-search`'s example `regret`, in the same table.

Usage: search_peer.py regret TRIALS SEEDS AT-A-TIME [SAMPLER]... | search_peer.py speed [FINISHED]...
"""

import math
import os
import statistics
import sys
import tempfile
import time
import warnings

warnings.filterwarnings("ignore")

HEIGHTS = [1.0, 1.2, 3.0, 3.2]
WIDTHS = [
    [10.0, 3.0, 17.0, 3.5, 1.7, 8.0],
    [0.05, 10.0, 17.0, 0.1, 8.0, 14.0],
    [3.0, 3.5, 1.7, 10.0, 17.0, 8.0],
    [17.0, 8.0, 0.05, 10.0, 0.1, 14.0],
]
CENTRES = [
    [0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886],
    [0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991],
    [0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650],
    [0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381],
]


def branin(ask):
    x, y = ask.float("x", -5, 10), ask.float("y", 0, 15)
    valley = y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6
    return valley**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def hartmann6(ask):
    x = [ask.float(f"x{i}", 0, 1) for i in range(6)]
    peaks = [sum(w * (a - c) ** 2 for w, a, c in zip(WIDTHS[i], x, CENTRES[i])) for i in range(4)]
    return -sum(h * math.exp(-peak) for h, peak in zip(HEIGHTS, peaks))


def rosenbrock10(ask):
    x = [ask.float(f"x{i}", -2.048, 2.048) for i in range(10)]
    return sum(100 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in zip(x, x[1:]))


def mixed(ask):
    kind = ask.choice("optimizer", ["sgd", "adam"])
    rate = math.log10(ask.log("lr", 1e-6, 1))
    if kind == "sgd":
        loss = 0.1 + (rate + 1.5) ** 2 + 4 * (ask.float("momentum", 0, 0.999) - 0.9) ** 2
    else:
        loss = (rate + 3) ** 2 + 0.5 * (math.log10(ask.log("beta", 1e-4, 0.5)) + 2) ** 2
    layers = ask.int("layers", 1, 6)
    loss += 0.3 * (layers - 3) ** 2
    for layer in range(layers):
        width = ask.log_int(f"width{layer}", 8, 1024)
        loss += 0.5 * (math.log2(width) - (8 - layer)) ** 2 / layers
    return (
        loss
        + {"relu": 0.0, "tanh": 0.3, "gelu": 0.05}[ask.choice("act", ["relu", "tanh", "gelu"])]
    )


FUNCTIONS = {
    "branin": (branin, 0.39788735772973816),
    "hartmann6": (hartmann6, -3.322368011415515),
    "rosenbrock10": (rosenbrock10, 0.0),
    "mixed": (mixed, 0.0),
}


class OptunaAsk:
    def __init__(self, trial):
        self.trial = trial

    def float(self, name, low, high):
        return self.trial.suggest_float(name, low, high)

    def log(self, name, low, high):
        return self.trial.suggest_float(name, low, high, log=True)

    def int(self, name, low, high):
        return self.trial.suggest_int(name, low, high)

    def log_int(self, name, low, high):
        return self.trial.suggest_int(name, low, high, log=True)

    def choice(self, name, options):
        return self.trial.suggest_categorical(name, options)


def with_optuna(make, function, seed, trials, at_a_time):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=make(optuna.samplers, seed))
    best, spent, done = math.inf, 0.0, 0
    while done < trials:
        batch = []
        for _ in range(min(at_a_time, trials - done)):
            begin = time.perf_counter()
            trial = study.ask()
            loss = function(OptunaAsk(trial))
            spent += time.perf_counter() - begin
            batch.append((trial, loss))
        for trial, loss in batch:
            study.tell(trial, loss)
            best = min(best, loss)
        done += len(batch)
    return best, spent


class Places:
    """The space of a function as Hyperopt wants it, found by asking for every branch."""

    def __init__(self, hp):
        self.hp, self.space = hp, {}

    def float(self, name, low, high):
        self.space[name] = self.hp.uniform(name, low, high)
        return (low + high) / 2

    def log(self, name, low, high):
        self.space[name] = self.hp.loguniform(name, math.log(low), math.log(high))
        return low

    def int(self, name, low, high):
        self.space[name] = self.hp.uniformint(name, low, high)
        return high

    def log_int(self, name, low, high):
        self.space[name] = self.hp.qloguniform(name, math.log(low), math.log(high), 1)
        return low

    def choice(self, name, options):
        self.space[name] = self.hp.choice(name, options)
        return options[len(self.space) > 1 and -1 or 0]


class Point:
    def __init__(self, point):
        self.point = point

    def float(self, name, low, high):
        return self.point[name]

    log = int = float

    def log_int(self, name, low, high):
        return max(self.point[name], low)

    def choice(self, name, options):
        return self.point[name]


def with_hyperopt(function, seed, trials):
    import hyperopt
    import numpy

    places = Places(hyperopt.hp)
    for kind in ("sgd", "adam"):
        places.choice = lambda name, options, kind=kind: (
            places.space.__setitem__(name, hyperopt.hp.choice(name, options)),
            kind if kind in options else options[0],
        )[1]
        function(places)
    found = hyperopt.Trials()

    def loss(point):
        value = dict(point)
        if "layers" in value:
            value["layers"] = int(value["layers"])
        return function(_Ints(value))

    begin = time.perf_counter()
    hyperopt.fmin(
        loss,
        places.space,
        algo=hyperopt.tpe.suggest,
        max_evals=trials,
        trials=found,
        rstate=numpy.random.default_rng(seed),
        show_progressbar=False,
        verbose=False,
    )
    return min(found.losses()), time.perf_counter() - begin


class _Ints(Point):
    def int(self, name, low, high):
        return int(self.point[name])


SAMPLERS = {
    "optuna tpe": lambda samplers, seed: samplers.TPESampler(seed=seed),
    "optuna gp": lambda samplers, seed: samplers.GPSampler(seed=seed),
    "optuna random": lambda samplers, seed: samplers.RandomSampler(seed=seed),
}


def regret(trials, seeds, at_a_time, wanted):
    for name, (function, optimum) in FUNCTIONS.items():
        for sampler in [*SAMPLERS, "hyperopt tpe"]:
            if wanted and sampler not in wanted or (sampler == "hyperopt tpe" and at_a_time > 1):
                continue
            runs = []
            for seed in range(seeds):
                if sampler == "hyperopt tpe":
                    runs.append(with_hyperopt(function, seed, trials))
                else:
                    runs.append(with_optuna(SAMPLERS[sampler], function, seed, trials, at_a_time))
            regrets = sorted(best - optimum for best, _ in runs)
            spent = sum(seconds for _, seconds in runs) * 1e3 / (seeds * trials)
            lower, upper = regrets[len(regrets) // 4], regrets[(3 * len(regrets)) // 4]
            row = f"{statistics.median(regrets):11.4e} {lower:11.4e} {upper:11.4e} {spent:10.3f}"
            print(f"{name:14} {sampler:14} {row}", flush=True)


def speed(counts):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    floats = {f"x{i}": optuna.distributions.FloatDistribution(0, 1) for i in range(8)}
    domains = {
        **floats,
        "lr": optuna.distributions.FloatDistribution(1e-6, 1, log=True),
        "w": optuna.distributions.IntDistribution(8, 1024, log=True),
        "act": optuna.distributions.CategoricalDistribution(["relu", "tanh", "gelu"]),
    }
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("memory", "SQLite", "journal"):
            for count in counts:
                if kind == "memory":
                    storage = None
                elif kind == "SQLite":
                    storage = f"sqlite:///{folder}/{count}.db"
                else:
                    path = os.path.join(folder, f"{count}.log")
                    backend = optuna.storages.journal.JournalFileBackend(path)
                    storage = optuna.storages.JournalStorage(backend)
                study = optuna.create_study(
                    storage=storage, sampler=optuna.samplers.TPESampler(seed=1)
                )
                random = optuna.samplers.RandomSampler(seed=1)
                trials = []
                for number in range(count):
                    values = {
                        name: random.sample_independent(None, None, name, domain)
                        for name, domain in domains.items()
                    }
                    loss = sum(values[name] ** 2 for name in floats)
                    trials.append(
                        optuna.trial.create_trial(params=values, distributions=domains, value=loss)
                    )
                study.add_trials(trials)
                times = []
                for _ in range(7):
                    begin = time.perf_counter()
                    trial = study.ask(domains)
                    study.tell(trial, sum(trial.params[name] ** 2 for name in floats))
                    times.append((time.perf_counter() - begin) * 1e3)
                spent = statistics.median(times[2:])
                print(
                    f"{'optuna ' + kind:16} {count:9} {'':>10} {'':>10} {spent:10.3f}", flush=True
                )


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    numbers = [int(word) for word in words if word.isdigit()]
    if what == "regret":
        regret(*numbers[:3], [word for word in words if not word.isdigit()])
    else:
        speed(numbers or [1000])
