"""Jobs with parameter servers in processes of their own."""

import json

from test_torch_jobs import finished, start  # noqa: F401

SCRIPT = """
    import json, os, signal
    from contextlib import suppress
    from pathlib import Path

    import torch
    import sirtaki.torch as hvd

    def kill_server():
        "Kills the first server of this job, which is found by its variables."
        wanted = {f"SIRTAKI_JOB={os.environ['SIRTAKI_JOB']}", "SIRTAKI_SERVER=0"}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if wanted <= set((folder / "environ").read_text(errors="ignore").split(chr(0))):
                    os.kill(int(folder.name), signal.SIGKILL)
                    return
        raise AssertionError("there is no server")

    hvd.init()
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(4, 1)
    optimizer = hvd.ServerOptimizer(model, "adam", lr=0.05, delay=DELAY, copies=COPIES)
    data = torch.randn(64, 4, generator=torch.Generator().manual_seed(hvd.rank()))
    wanted = data @ torch.tensor([[1.0], [-2.0], [3.0], [0.5]])
    for step in range(STEPS):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(data), wanted).backward()
        optimizer.step()
        AT_STEP
    optimizer.settle()
    loss = torch.nn.functional.mse_loss(model(data), wanted).item()
    behind = optimizer.report()["behind"]
    print("said " + json.dumps([hvd.rank(), loss, behind, model.weight.flatten().tolist()]))
"""


def script(delay=0, copies=1, steps=150, at_step="pass"):
    text = SCRIPT.replace("DELAY", str(delay)).replace("COPIES", str(copies))
    return text.replace("STEPS", str(steps)).replace("AT_STEP", at_step)


def said(text):
    lines = [line.split("said ", 1)[1] for line in text.splitlines() if "said " in line]
    return sorted(json.loads(line) for line in lines)


def test_servers_run_the_same_script(start):  # noqa: F811
    code, text = finished(start(script(delay=4), ranks=2, options=["--servers", "1"]))
    assert code == 0, text
    (zero, loss, behind, weights), (one, _, _, others) = said(text)
    assert (zero, one, weights) == (0, 1, others)
    assert loss < 1.0, text
    assert max(map(int, behind)) <= 4


def test_a_killed_server_is_followed_by_its_copy(start):  # noqa: F811
    kill = "step == 40 and hvd.rank() == 0 and kill_server()"
    options = ["--servers", "2", "--server-restarts", "1"]
    code, text = finished(start(script(copies=2, at_step=kill), ranks=2, options=options))
    assert code == 0, text
    (_, loss, _, weights), (_, _, _, others) = said(text)
    assert weights == others
    assert loss < 1.0, text


def test_a_failing_rank_ends_the_job(start):  # noqa: F811
    fail = "assert step < 20 or hvd.rank() > 0, 'rank 0 gives up'"
    script_text = script(delay=None, steps=10**9, at_step=fail)
    code, text = finished(start(script_text, options=["--servers", "1"]))
    assert code != 0
    assert "rank 0 gives up" in text
