"""The table of figures on a GPU: sirtaki's beside those of torch.distributed's NCCL in the same
run, with goals, met or missed.

Every line comes from a separate job, whose ranks measure both in turns (measure.py). Ranks may
share one GPU: then each has a different host id, without which NCCL refuses them, and the
multi-process service should run.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIMIT = 240
JOBS = [
    ("allreduce", 2, "nccl"),
    ("allreduce", 4, "nccl"),
    ("allreduce", 2, "shared"),
    ("submitting", 2, "nccl"),
    ("timing", 2, "shared"),
    ("training", 2, "nccl"),
    ("training", 2, "shared"),
    ("alone", 1, "auto"),
]
MIB = 1 << 20


def measured(section, ranks, way, folder, *options):
    """What a job with these options of the launcher has measured, or why it has not."""
    file = Path(folder, f"{section}-{ranks}-{way}.json")
    command = [
        str(Path(sys.executable).with_name("sirtaki")),
        "run",
        "-n",
        str(ranks),
        "--oversubscribe",
    ]
    command += [
        "--gpus",
        "none",
        *options,
        "--",
        "sh",
        str(HERE.parent / "rank.sh"),
        sys.executable,
    ]
    command += [str(HERE / "measure.py"), section, str(file)]
    job = subprocess.Popen(
        command,
        env={**os.environ, "SIRTAKI_GPU": way},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        text, _ = job.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        job.terminate()
        text, _ = job.communicate()
        return None, f"not done after {LIMIT} s\n{text[-3000:]}"
    if job.returncode or not file.exists():
        return None, text[-3000:]
    return json.loads(file.read_text()), text


def size_name(size):
    for unit, name in ((MIB, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def duration(micros):
    return f"{micros / 1000:.2f} ms" if micros >= 1000 else f"{micros:.0f} µs"


class Table:
    def __init__(self):
        self.rows = []
        print(
            "\n| what | ours | PyTorch | ratio | goal | |\n|---|---|---|---|---|---|",
            flush=True,
        )

    def add(self, what, ours, theirs, ratio, goal, met):
        word = "" if met is None else "met" if met else "MISSED"
        row = [
            what,
            ours,
            theirs,
            f"{ratio:.2f}" if ratio is not None else "",
            goal,
            word,
        ]
        self.rows.append(row)
        print("|", " | ".join(row), "|", flush=True)


def all_reduce_rows(table, ranks, way, found):
    place = f"{ranks} ranks, {way}"
    for size, times in (
        (int(size), times) for size, times in found["blocking"].items()
    ):
        ours, both = times["ours"], (times["theirs"], times["theirs again"])
        theirs = sum(both) / 2
        shown = duration(ours), " and ".join(map(duration, both)), ours / theirs
        what = f"all-reduce {size_name(size)}, {place} (beside two groups)"
        if way == "shared":
            goal = ("≤ 0.25 ms", ours <= 250) if size == 64 * MIB else ("", None)
        elif size >= MIB:
            goal = "≤ 1.05", ours / theirs <= 1.05
        else:
            goal = "at most 20 µs more", ours - theirs <= 20
        table.add(what, *shown, *goal)
    for size, times in (
        (int(size), times) for size, times in found["in flight"].items()
    ):
        ours, theirs = times["ours"], times["theirs"]
        goal = ("≤ 1.05", ours / theirs <= 1.05) if way == "nccl" else ("", None)
        table.add(
            f"100 × {size_name(size)} in flight, {place}",
            duration(ours),
            duration(theirs),
            ours / theirs,
            *goal,
        )
    share = found["waiting"]
    table.add(
        f"our threads while the GPU works, {place}",
        f"{share:.1%} of a core",
        "",
        None,
        "≤ 2 %",
        share <= 0.02,
    )


def submitting_rows(table, ranks, way, found):
    theirs = found["theirs"]
    for system in ("hvd", "torch.distributed"):
        what, ours = (
            f"submitting to a busy GPU, {system}, {ranks} ranks, {way}",
            found[system],
        )
        table.add(
            what, duration(ours), duration(theirs), ours / theirs, "≤ 50 µs", ours <= 50
        )


def timing_rows(table, ranks, way, found):
    """Without and with the events that time collectives for a profile."""
    for what, plain in found["without"].items():
        timed = found["with"][what]
        name = f"4 B, {what}, {ranks} ranks, {way}, with a profile (beside without)"
        table.add(name, duration(timed), duration(plain), timed / plain, "", None)


def training_rows(table, ranks, way, found):
    for model, steps in found.items():
        exchange = {system: micros - steps["plain"] for system, micros in steps.items()}
        dominated = exchange["DDP"] > steps["DDP"] / 2
        for system in ("hvd", "data_parallel"):
            what, ratio = (
                f"{model}, {system}, {ranks} ranks, {way}: step",
                steps["DDP"] / steps[system],
            )
            least = 1.0 if way == "nccl" else 1.5 if dominated else None
            goal = (
                (f"≥ {least:.2f} × samples/s", round(ratio, 2) >= least)
                if least
                else ("", None)
            )
            table.add(
                what, duration(steps[system]), duration(steps["DDP"]), ratio, *goal
            )
            if way == "shared":
                share = exchange[system] / exchange["DDP"]
                shown = duration(exchange[system]), duration(exchange["DDP"]), share
                table.add(
                    f"{model}, {system}, {ranks} ranks, {way}: exchange",
                    *shown,
                    "≤ 0.20",
                    share <= 0.2,
                )
        table.add(
            f"{model}, no exchange, {ranks} ranks",
            duration(steps["plain"]),
            "",
            None,
            "",
            None,
        )


def alone_rows(table, found):
    for model, steps in found["training"].items():
        both = steps["plain"], steps["plain again"]
        for system in ("hvd", "data_parallel"):
            ratio = sum(both) / 2 / steps[system]
            shown = duration(steps[system]), " and ".join(map(duration, both)), ratio
            table.add(
                f"{model}, {system}, 1 rank: step (beside plain, twice)",
                *shown,
                "≥ 0.99 × samples/s",
                ratio >= 0.985,
            )
    times = found["allreduce"]
    for name, base in (("in place", "nothing"), ("new", "clone")):
        ours, theirs = times[name], times[base]
        what = f"all-reduce 64 MiB {name}, 1 rank (beside {base})"
        table.add(
            what,
            duration(ours),
            duration(theirs),
            None,
            "at most 50 µs more",
            ours - theirs <= 50,
        )


def say_about(result, mps):
    libraries = ", ".join(result["libraries"]) or "none"
    print(
        f"{result['gpu']}, PyTorch {result['torch']} with NCCL {result['nccl']}, ours says {result['ours']}"
    )
    print(f"NCCL libraries in the process: {libraries}")
    print(f"multi-process service: {mps}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--output", default="figures.json", help="where to write all figures"
    )
    parser.add_argument(
        "--only",
        default="",
        help="jobs whose names contain this, such as training-2-shared",
    )
    options = parser.parse_args()
    mps = "on" if os.environ.get("CUDA_MPS_PIPE_DIRECTORY") else "off"
    begin, results, failures, table = time.monotonic(), {}, [], None
    with tempfile.TemporaryDirectory() as folder:
        for section, ranks, way in JOBS:
            name = f"{section}-{ranks}-{way}"
            if options.only not in name:
                continue
            result, text = measured(section, ranks, way, folder)
            if section == "timing" and result is not None:
                profile = f"--profile={Path(folder, 'profile.json')}"
                timed, text = measured(section, ranks, way, folder, profile)
                result = timed and {
                    **result,
                    "found": {"without": result["found"], "with": timed["found"]},
                }
            if result is None:
                failures.append(name)
                print(f"\n{name} FAILED:\n{text}\n", flush=True)
                continue
            if table is None:
                say_about(result, mps)
                table = Table()
            results[name] = result
            if section == "allreduce":
                all_reduce_rows(table, ranks, way, result["found"])
            elif section == "submitting":
                submitting_rows(table, ranks, way, result["found"])
            elif section == "timing":
                timing_rows(table, ranks, way, result["found"])
            elif section == "training":
                training_rows(table, ranks, way, result["found"])
            else:
                alone_rows(table, result["found"])
    Path(options.output).write_text(
        json.dumps(
            {"mps": mps, "results": results, "rows": table.rows if table else []}
        )
    )
    missed = sum(row[-1] == "MISSED" for row in table.rows) if table else 0
    met = sum(row[-1] == "met" for row in table.rows) if table else 0
    print(
        f"\n{met} goals met, {missed} missed, {len(failures)} jobs failed; {time.monotonic() - begin:.0f} s"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
