"""Keras `model.fit` on TensorFlow: sirtaki beside MultiWorkerMirroredStrategy and two processes that do not communicate.

Processes *in step* wait for each other after every batch and exchange nothing else: no ranks that train together can be
faster. Two ranks with one thread each. The processes of all systems are started once and take turns, so that all see the same
conditions; shown are medians of the rounds, and medians of the ratios of each round. Called by
`cargo xtask bench tensorflow` with the `sirtaki` command of an environment that has TensorFlow and tf_keras; then come the
number of rounds and the works, all by default.
"""

import json
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
RANKS = 2
GOALS = {("cnn", "strategy"): 1.2, ("mlp", "strategy"): 1.5, ("cnn", "strangers"): 0.95, ("mlp", "strangers"): 0.8}
STEPS = {"cnn": 20, "mlp": 8}
BATCH = {"cnn": 64, "mlp": 32}
ABOUT = {"cnn": "CNN of tutorials, batch 64", "mlp": "MLP of 17 M parameters, batch 32"}
SYSTEMS = ("sirtaki", "strategy", "strangers", "in step")


class System:
    """The ranks of one system, waiting for orders."""

    def __init__(self, name, command, folder):
        path = folder / name
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(str(path))
            door.listen(RANKS)
            door.settimeout(300)
            python = command.parent / "python"
            start = [command, "run", "-n", str(RANKS), "--quiet", "--progress", "off", "--", python]
            self.process = subprocess.Popen([*start, HERE / "peer.py", name, path])
            self.lines = [door.accept()[0].makefile("rw") for _ in range(RANKS)]

    def perform(self, work, steps=0):
        """What each rank answers."""
        for lines in self.lines:
            print(json.dumps({"work": work, "steps": steps}), file=lines, flush=True)
        answers = [lines.readline() for lines in self.lines]
        if not all(answers):
            sys.exit(f"error: a rank has ended; its last words are above ({self.process.args[-2]})")
        return [json.loads(answer) for answer in answers]

    def end(self):
        for lines in self.lines:
            lines.close()
        self.process.wait(60)


def verdict(ratio, goal):
    return f"{ratio:6.2f}   {goal:5.2f}   {'reached' if round(ratio, 2) >= goal else 'MISSED'}"


def train(work, rounds, systems):
    """Samples per second of all ranks, by system and round."""
    rates = {name: [] for name in systems}
    for _ in range(rounds):
        for name, system in systems.items():
            times = [answer[0] for answer in system.perform(work, STEPS[work])]
            rates[name].append(sum(BATCH[work] * STEPS[work] / seconds for seconds in times))
    print(f"\n{ABOUT[work]}, {RANKS} ranks x 1 thread, {rounds} rounds of {STEPS[work]} steps")
    for name in SYSTEMS:
        print(f"  {name:10} {statistics.median(rates[name]):8.0f} samples/s")
    for other in SYSTEMS[1:]:
        ratio = statistics.median(own / its for own, its in zip(rates["sirtaki"], rates[other]))
        goal = GOALS.get((work, other))
        print(f"  sirtaki over {other:10} {verdict(ratio, goal) if goal else f'{ratio:6.2f}'}")


def cost_of_op(system):
    """One op beside an identity, the best of both ranks."""
    ours, identity = (min(times) for times in zip(*system.perform("op")))
    print(f"\none op in a graph of 100: {ours * 1e6:.2f} us, an identity {identity * 1e6:.2f} us")
    cost = ours / identity
    print(f"  cost over identity   {cost:6.2f}    2.00   {'reached' if cost <= 2 else 'MISSED'} (at most)")


def main():
    command, rounds = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 7
    works = sys.argv[3:] or [*STEPS, "op"]
    with tempfile.TemporaryDirectory() as folder:
        systems = {name: System(name, command, pathlib.Path(folder)) for name in SYSTEMS}
        print("                            ratio    goal")
        for work in works:
            if work in STEPS:
                train(work, rounds, systems)
        if "op" in works:
            cost_of_op(systems["sirtaki"])
        for system in systems.values():
            system.end()


if __name__ == "__main__":
    main()
