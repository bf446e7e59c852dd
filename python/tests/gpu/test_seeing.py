"""What timeline and profile say about collectives on a GPU, and what a job gives back."""

import ctypes
import json
import os
from collections import defaultdict

from jobs import Job

WAY = os.environ.get("SIRTAKI_GPU")
ROUNDS = 10


def has_nvml():
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def spans_by_tensor(trace):
    """Microseconds on the GPU and those exposed, of each tensor's collectives on rank 0."""
    slices = [one for one in trace["traceEvents"] if one["ph"] == "X" and one["pid"] == 0]
    slices = [one for one in slices if "args" in one]
    names = {
        one["args"]["collective"]: one["name"] for one in slices if "collective" in one["args"]
    }
    spans = defaultdict(list)
    for one in slices:
        if "exposed_us" in one["args"]:
            name = names[one["args"]["number"]].removeprefix("allreduce.")
            spans[name].append((one["dur"], one["args"]["exposed_us"]))
    return spans


def test_device_time_and_overlap(tmp_path):
    code, text = Job(
        tmp_path,
        f"""
        for number in range({ROUNDS}):
            handle = hvd.allreduce_async_(large, op=hvd.Average, name="hidden")
            torch.cuda._sleep(500_000_000)
            hvd.synchronize(handle)
            torch.cuda.synchronize()
        for number in range({ROUNDS}):
            hvd.allreduce_(large, op=hvd.Average, name="exposed")
            torch.cuda.synchronize()
        """,
        options=["--timeline", str(tmp_path / "trace.json"), f"--profile={tmp_path / 'p.json'}"],
    ).end()
    assert code == 0, text
    spans = spans_by_tensor(json.loads((tmp_path / "trace.json").read_text()))
    assert {name: len(each) for name, each in spans.items()} == {
        "first": 1,
        "hidden": ROUNDS,
        "exposed": ROUNDS,
    }
    share = {}
    for name, each in spans.items():
        lasted, exposed = (sum(values) for values in zip(*each))
        assert lasted > 0
        share[name] = exposed / lasted
        print(f"{WAY} {name}: {lasted / len(each):.0f} µs on the GPU, {share[name]:.0%} exposed")
    # On the staged way, the host waits for results, and the program's stream finds them done.
    if WAY != "staged":
        assert share["hidden"] < 0.5 < share["exposed"], share
    profile = json.loads((tmp_path / "p.json").read_text())
    assert profile["gpu_path"] in text and "overlap on GPUs:" in text
    for rank in profile["ranks"]:
        gpu = rank["gpu"]
        together = gpu["hidden_seconds"] + gpu["exposed_seconds"]
        assert abs(together - gpu["collective_seconds"]) < 1e-6 and together > 0
        if has_nvml():
            assert 0 < gpu["largest_memory_bytes"] <= gpu["memory_bytes"]
            print(
                f"{gpu['largest_memory_bytes'] >> 20} MiB, {gpu['utilisation_percent']} % in use"
            )


def test_a_shutdown_gives_the_memory_of_the_gpu_back(tmp_path):
    code, text = Job(
        tmp_path,
        """
        for round in range(2):
            hvd.allreduce_(large, op=hvd.Average)
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            hvd.barrier()
            held = torch.cuda.mem_get_info()[0]
            hvd.barrier()
            hvd.shutdown()
            deadline = time.monotonic() + 60
            while torch.cuda.mem_get_info()[0] - held < 200 << 20:
                assert time.monotonic() < deadline, "nothing was given back"
                time.sleep(0.05)
            hvd.init()
        print("fine", flush=True)
        """,
        SIRTAKI_GPU="shared",
    ).end()
    assert code == 0 and text.count("fine") == 2, text
