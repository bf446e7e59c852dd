"""A rank that dies, stops or goes astray while GPUs compute: the others say who, and live on."""

import re

import pytest
from jobs import Job

AT_ONCE = 4
"""Jobs that run at the same time where many are asked for."""
NOTICED_SECONDS = 2.0

GO_ON = """
def train_until_it_fails():
    # What a training loop does: results are read, the next tensors are handed in.
    for step in range(100_000):
        hvd.allreduce_(large, op=hvd.Average, name="in the middle")
        if step % 4 == 3:
            large[0].item()

def go_on(error):
    assert error.rank == 1, error
    fresh = torch.full((1 << 20,), 2.0, device=DEVICE)
    assert (fresh * fresh).sum().item() == 4 << 20
    torch.cuda.synchronize()
    print("goes on", flush=True)
"""

KILLED = (
    GO_ON
    + """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if hvd.rank() == 1:
    def die():
        with open("killed", "w") as file:
            file.write(str(time.monotonic()))
        os.kill(os.getpid(), signal.SIGKILL)
    threading.Timer(0.2 + 0.001 * (os.getpid() % 100), die).start()
try:
    train_until_it_fails()
except sirtaki.Error as error:
    now = time.monotonic()
    with open("killed") as file:
        print(f"noticed after {now - float(file.read()):.3f} s: {error}", flush=True)
    go_on(error)
"""
)

STOPPED = (
    GO_ON
    + """
if hvd.rank() == 1:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGSTOP)).start()
try:
    train_until_it_fails()
except sirtaki.Error as error:
    print("noticed:", error, flush=True)
    go_on(error)
    raise SystemExit(3)
"""
)


def survivors(text, ranks):
    """Seconds until each rank but the second has noticed."""
    seconds = re.findall(r"\[(\d)\] noticed after ([\d.]+) s: .*rank 1", text)
    assert sorted(rank for rank, _ in seconds) == [str(r) for r in range(ranks) if r != 1], text
    assert text.count("goes on") == ranks - 1, text
    return [float(one) for _, one in seconds]


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_is_killed_in_the_middle_of_an_all_reduce(tmp_path, request, ranks):
    repeat, seconds = request.config.getoption("--repeat"), []
    if not repeat:
        pytest.skip("--repeat 0 asks for no kills")
    for begin in range(0, repeat, AT_ONCE):
        numbers = range(begin, min(begin + AT_ONCE, repeat))
        options = ("--grace", "60")
        jobs = [Job(tmp_path / str(number), KILLED, ranks, options) for number in numbers]
        for code, text in [job.end() for job in jobs]:
            assert code != 0, text
            seconds += survivors(text, ranks)
    print(f"{repeat} of {repeat}: noticed after {max(seconds):.2f} s at most")
    assert max(seconds) <= NOTICED_SECONDS


def test_a_rank_is_stopped(tmp_path):
    options = ("--grace", "5")
    code, text = Job(tmp_path, STOPPED, options=options, SIRTAKI_TIMEOUT="5").end()
    assert code != 0 and "[0] noticed:" in text and "[0] goes on" in text, text


DIVERGENCES = {
    "another name": "hvd.allreduce(x, name='x' if hvd.rank() else 'y')",
    "another order": "[hvd.allreduce(x, name=name) for name in ('xy', 'yx')[hvd.rank()]]",
    "all submitted first": "[hvd.synchronize(h) for h in map(submit, ('axb', 'ayb')[hvd.rank()])]",
}


@pytest.mark.parametrize("what", DIVERGENCES)
def test_ranks_that_wait_for_each_other_are_told(tmp_path, what):
    _, text = Job(
        tmp_path,
        f"""
        x = torch.ones(3, device=DEVICE)
        submit = lambda name: hvd.allreduce_async(x, name=name)
        try:
            {DIVERGENCES[what]}
        except sirtaki.Error as error:
            print("told:", error, flush=True)
            print("still computes", (x + x).sum().item(), flush=True)
        """,
    ).end()
    told = [line for line in text.splitlines() if "told:" in line]
    assert len(told) == 2 and text.count("still computes 6.0") == 2, text
    for line in told:
        sides = ("they wait for each other", '"allreduce.x"', '"allreduce.y"')
        assert all(side in line for side in sides), text


def test_a_rank_that_comes_late_is_named(tmp_path):
    code, text = Job(
        tmp_path,
        """
        if hvd.rank() == 1:
            time.sleep(600)
        hvd.allreduce(large, name="missing")
        """,
        options=("--hang-timeout", "8"),
        SIRTAKI_WARN_AFTER="1",
    ).end()
    assert code != 0 and "the timeout of 8 s has passed: rank 1 " in text, text


def test_a_script_that_fails_with_tensors_in_flight(tmp_path):
    code, text = Job(
        tmp_path,
        """
        handles = [hvd.allreduce_async(large, name=str(number)) for number in range(20)]
        if hvd.rank() == 1:
            raise ValueError("on purpose")
        for handle in handles:
            hvd.synchronize(handle)
        """,
    ).end()
    assert code != 0 and "ValueError: on purpose" in text and "rank 1" in text, text


def test_a_script_that_ends_with_tensors_in_flight(tmp_path):
    code, text = Job(
        tmp_path,
        """
        for number in range(20):
            hvd.allreduce_async(large, name=str(number))
        print("done", flush=True)
        """,
    ).end()
    assert code == 0 and text.count("done") == 2, text
