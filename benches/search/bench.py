"""What `cargo xtask bench search` measures with the wheel, beside Optuna in the same run.

Usage: bench.py durable [FINISHED]... | bench.py idle SIRTAKI [TRIALS] | bench.py lenet SEEDS [IMAGES]
"""

import gzip
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FLOATS = [f"x{i}" for i in range(8)]
SPACE = {
    **{name: {"float": [0, 1]} for name in FLOATS},
    "lr": {"log": [1e-6, 1]},
    "w": {"logint": [8, 1024]},
    "act": ["relu", "tanh", "gelu"],
}
REPEATS = 31


def flush_time(folder):
    """Milliseconds in which this disk takes one more line, as a journal's lines are written."""
    times = []
    with open(os.path.join(folder, "lines"), "ab") as file:
        for _ in range(REPEATS):
            begin = time.perf_counter()
            file.write(b"x" * 800)
            file.flush()
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def durable(counts):
    """Ask and tell with a journal on this disk."""
    import sirtaki

    print(f"{'finished':>9} {'both ms':>9} {'processor':>10} {'one flush':>10}")
    for count in counts:
        with tempfile.TemporaryDirectory(dir=".") as folder:
            path = os.path.join(folder, "journal.log")
            study = sirtaki.Study(SPACE, sampler="random", path=path)
            for _ in range(count):
                trial = study.ask()
                study._native.tell(
                    trial.number, "finished", [sum(trial[x] ** 2 for x in FLOATS)], ""
                )
            lines = Path(path).read_text().replace('sampler":"random', 'sampler":"auto')
            Path(path).write_text(lines)
            study = sirtaki.Study(path=path)
            times, spent = [], []
            for _ in range(REPEATS):
                begin, used = time.perf_counter(), time.process_time()
                trial = study.ask()
                study.tell(trial, sum(trial[x] ** 2 for x in FLOATS))
                times.append((time.perf_counter() - begin) * 1e3)
                spent.append((time.process_time() - used) * 1e3)
            both, used = statistics.median(times[2:]), statistics.median(spent[2:])
            print(f"{count:9} {both:9.2f} {used:10.2f} {flush_time(folder):10.2f}", flush=True)


def idle(sirtaki, trials):
    """How long slots stand empty between trials of 2 s, eight at a time, beside `xargs -P 8`."""
    script = "sleep 2; echo '{\"v\": 1}'"
    with tempfile.TemporaryDirectory(dir=".") as folder:
        words = ["sh", "-c", script.replace("{", "{{").replace("}", "}}"), "{x}", "{y}"]
        study = f'command = {json.dumps(words)}\nobjective = "minimize v"\ntrials = {trials}\n'
        Path(folder, "study.toml").write_text(
            study + "[space]\nx = { float = [0, 1] }\ny = { log = [1e-3, 1] }\n"
        )
        ours = [os.path.abspath(sirtaki), "search", "study.toml", "-n", "8", "-q"]
        begin, used = time.perf_counter(), children()
        subprocess.run(ours, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        rows = [("sirtaki search", time.perf_counter() - begin, children() - used)]
        begin, used = time.perf_counter(), children()
        numbers = "\n".join(map(str, range(trials)))
        words = ["xargs", "-P", "8", "-I{}", "sh", "-c", script]
        subprocess.run(words, input=numbers, text=True, check=True, stdout=subprocess.DEVNULL)
        rows.append(("xargs", time.perf_counter() - begin, children() - used))
    print(f"{'':16} {'seconds':>8} {'idle':>7} {'processor ms per trial':>23}")
    for name, wall, used in rows:
        share = 1 - trials * 2 / (8 * wall)
        print(f"{name:16} {wall:8.2f} {share:7.2%} {used * 1e3 / trials:23.1f}")


def children():
    """Seconds of processors that finished children took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


MOST_EPOCHS = 9
RANDOM_TRIALS = 10
DOMAINS = {
    "lr": {"log": [1e-4, 1]},
    "momentum": {"float": [0, 0.99]},
    "decay": {"log": [1e-6, 1e-1]},
    "batch": [16, 32, 64, 128],
    "dropout": {"float": [0, 0.6]},
}


def images(count):
    """So many images of MNIST to train with, and 2,000 others."""
    import torch

    folder = Path(__file__).parents[2] / "data/mnist"

    def read(name, header):
        return gzip.open(folder / name).read()[header:]

    pixels = torch.frombuffer(bytearray(read("train-images-idx3-ubyte.gz", 16)), dtype=torch.uint8)
    labels = torch.frombuffer(bytearray(read("train-labels-idx1-ubyte.gz", 8)), dtype=torch.uint8)
    pixels = (pixels.reshape(-1, 1, 28, 28).float() - 33.3) / 78.6
    parts = slice(0, count), slice(-2000, None)
    return [(pixels[part], labels[part].long()) for part in parts]


class LeNet:
    """A network that is trained epoch by epoch; the same parameters give the same network."""

    def __init__(self, parameters, seed):
        import torch
        from torch import nn

        torch.manual_seed(seed)
        self.parameters = parameters
        self.network = nn.Sequential(
            *(nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2)),
            *(nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten()),
            *(nn.Linear(400, 120), nn.Tanh(), nn.Dropout(parameters["dropout"])),
            *(nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)),
        )
        self.optimizer = torch.optim.SGD(
            self.network.parameters(),
            lr=parameters["lr"],
            momentum=parameters["momentum"],
            weight_decay=parameters["decay"],
        )

    def epoch(self, training, validation):
        """Trains for one epoch; the share of other images that are told right."""
        import torch
        from torch.nn.functional import cross_entropy

        pixels, labels = training
        self.network.train()
        for chosen in torch.randperm(len(pixels)).split(int(self.parameters["batch"])):
            self.optimizer.zero_grad()
            cross_entropy(self.network(pixels[chosen]), labels[chosen]).backward()
            self.optimizer.step()
        self.network.eval()
        with torch.no_grad():
            right = self.network(validation[0]).argmax(1) == validation[1]
        return right.float().mean().item()


class Course:
    """What one search has spent when, and how good the best network was."""

    def __init__(self, target, most):
        self.target, self.most = target, most
        self.epochs, self.best, self.begin = 0, 0.0, time.process_time()
        self.reached = None

    def take(self, accuracy):
        self.epochs += 1
        if accuracy > self.best:
            self.best = accuracy
            if self.target is None or (self.reached is None and accuracy >= self.target):
                self.reached = (self.epochs, time.process_time() - self.begin)

    def over(self):
        return self.epochs >= self.most or (self.target is not None and self.reached is not None)

    def cost(self):
        """Epochs and seconds to the target, or all that were spent without reaching it."""
        return self.reached or (self.epochs, time.process_time() - self.begin)


def with_optuna(sampler, pruner, seed, data, course):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        direction="maximize", sampler=getattr(optuna.samplers, sampler)(seed=seed), pruner=pruner
    )
    while not course.over():
        trial = study.ask()
        parameters = {
            "lr": trial.suggest_float("lr", 1e-4, 1, log=True),
            "momentum": trial.suggest_float("momentum", 0, 0.99),
            "decay": trial.suggest_float("decay", 1e-6, 1e-1, log=True),
            "batch": trial.suggest_categorical("batch", DOMAINS["batch"]),
            "dropout": trial.suggest_float("dropout", 0, 0.6),
        }
        network, state, accuracy = LeNet(parameters, seed), None, 0.0
        for step in range(1, MOST_EPOCHS + 1):
            accuracy = network.epoch(*data)
            course.take(accuracy)
            trial.report(accuracy, step)
            if course.over():
                break
            if trial.should_prune():
                state = optuna.trial.TrialState.PRUNED
                break
        study.tell(trial, None if state else accuracy, state=state)


def with_sirtaki(seed, data, course):
    import sirtaki

    stop = {"method": "asha", "min": 1, "max": MOST_EPOCHS, "factor": 3, "promote": True}
    study = sirtaki.Study(DOMAINS, "maximize accuracy", stop=stop, seed=seed)
    kept = {}
    while not course.over():
        trial = study.ask()
        # One that is promoted goes on with the network that it had when it was stopped.
        network, steps = kept.pop(trial.origin, None) or (LeNet(trial.parameters, seed), 0)
        for step in range(steps + 1, MOST_EPOCHS + 1):
            accuracy = network.epoch(*data)
            course.take(accuracy)
            if course.over():
                return
            if trial.report(step, accuracy):
                kept[trial.origin] = (network, step)
                study.stopped(trial)
                break
        else:
            study.tell(trial, accuracy)


def one_seed(seed, count):
    """What each of the searches spends until it is as good as random search with its whole budget."""
    import optuna
    import torch

    torch.set_num_threads(1)
    data, most = images(count), RANDOM_TRIALS * MOST_EPOCHS
    random = Course(None, most)
    with_optuna("RandomSampler", optuna.pruners.NopPruner(), seed, data, random)
    theirs = Course(random.best, most)
    halving = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
    with_optuna("TPESampler", halving, seed, data, theirs)
    ours = Course(random.best, most)
    with_sirtaki(seed, data, ours)
    courses = [random, theirs, ours]
    marks = ["" if course.reached else " not reached" for course in courses]
    return random.best, [course.cost() for course in courses], marks


def lenet(seeds, count):
    """Epochs and processor time to the accuracy that random search reaches with its whole budget."""
    budget = RANDOM_TRIALS * MOST_EPOCHS
    print(f"{count} images; random search: {RANDOM_TRIALS} trials of {MOST_EPOCHS} epochs")
    print(
        f"{'seed':>4} {'accuracy':>9}   random, Optuna TPE + ASHA, Sirtaki: epochs (processor s)"
    )
    ratios = []
    with multiprocessing.Pool(2) as pool:
        runs = pool.starmap(one_seed, [(seed, count) for seed in range(seeds)], chunksize=1)
    for seed, (best, costs, marks) in enumerate(runs):
        shown = ", ".join(f"{e} ({s:.0f}){mark}" for (e, s), mark in zip(costs, marks))
        print(f"{seed:4} {best:9.4f}   {shown}", flush=True)
        (random, _), (theirs, _), (ours, _) = costs
        ratios.append((random / ours, theirs / ours, budget / ours))
    names = ["random until it is there", "Optuna TPE + ASHA", "random's whole budget"]
    for index, name in enumerate(names):
        ratio = statistics.median(ratio[index] for ratio in ratios)
        print(f"{ratio:.2f} x fewer epochs than {name} (median)")


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "durable":
        durable([int(word) for word in words] or [1000, 10_000])
    elif what == "idle":
        idle(words[0], int(words[1]) if len(words) > 1 else 40)
    else:
        lenet(
            *(int(word) for word in words[:1] or ["5"]),
            int(words[1]) if len(words) > 1 else 10_000,
        )
