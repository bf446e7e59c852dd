"""Jobs whose workers come and go: real processes that are killed, leave and come."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from sirtaki._launcher import find_command

PROGRAM = Path(__file__).parent / "programs" / "elastic.py"
PATIENCE = 120


class Run:
    """A job and what it has printed so far."""

    def __init__(self, command, folder, variables):
        environment = {**os.environ, **variables, "OMP_NUM_THREADS": "1"}
        self.folder, self.lines, self.changed = folder, [], threading.Condition()
        self.process = subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line.rstrip())
                self.changed.notify_all()

    def says(self, pattern, after=0):
        """Waits for a line; returns the match and the number of lines up to it."""

        def found():
            for at, line in enumerate(self.lines[after:], after):
                match = re.search(pattern, line)
                if match:
                    return match, at + 1
            return None

        with self.changed:
            assert self.changed.wait_for(found, PATIENCE), (pattern, self.lines)
            return found()

    def ends(self):
        """Exit code and everything that was printed; nothing of the job is left."""
        code = self.process.wait(PATIENCE)
        self.reader.join()
        for match in re.finditer(r"pid (\d+)", "\n".join(self.lines)):
            with pytest.raises(ProcessLookupError):
                os.kill(int(match[1]), 0)
        return code, "\n".join(self.lines)


@pytest.fixture
def start(tmp_path):
    """Starts workers; whatever a test leaves is ended."""
    started = []

    def start(options, program=PROGRAM, **variables):
        fast = ["--cooldown", "0.1,0.5"] if "--cooldown" not in options else []
        command = [find_command(), "run", *fast, *options, "--", sys.executable, str(program)]
        started.append(Run(command, tmp_path, variables))
        return started[-1]

    yield start
    for run in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.process.pid, signal.SIGKILL)
        run.process.wait()
        run.reader.join()
        run.process.stdout.close()


@pytest.mark.parametrize(
    ("die", "rounds"),
    [
        ("1@5:step", 1),
        ("0@5:step", 1),
        ("1@5:commit", 1),
        ("0@5:commit", 1),
        ("1@0:sync", 1),
        ("1@5:step 0@5:sync", 2),
        ("1@5:step 1@5:step", 2),
        ("0,1@5:step", 2),
    ],
)
def test_workers_that_are_killed_are_replaced_and_no_step_is_lost(start, die, rounds):
    """``rounds`` is how many workers are lost."""
    run = start(["--min-ranks", "1", "--max-ranks", "3"], DIE=die, WANTED="3")
    code, text = run.ends()
    assert code == 0, text
    assert text.count("worker dies") == rounds, text
    assert len(re.findall(r"lost \(was killed by SIGKILL\)", text)) == rounds, text
    # The others have kept their processes.
    assert len(re.findall("came as", text)) == 3 + rounds, text
    assert len(re.findall(r"done at step \d+ with 3", text)) == 3, text


def test_all_but_one_may_be_lost(start):
    run = start(["--min-ranks", "1", "--max-ranks", "4"], DIE="1,2,3@5:step", WANTED="4")
    code, text = run.ends()
    assert code == 0 and text.count("worker dies") == 3, text
    assert len(re.findall(r"done at step \d+ with 4", text)) == 4, text


def test_if_all_are_lost_the_job_fails_and_restarts_are_another_matter(start):
    run = start(["--min-ranks", "1", "--max-ranks", "2"], DIE="0,1@5:step")
    code, text = run.ends()
    assert code == 137 and "was killed by SIGKILL" in text and "done" not in text, text


def test_below_the_minimum_the_job_waits_and_then_ends_with_a_chance_to_save(start):
    options = ["--min-ranks", "2", "--max-ranks", "2", "--cooldown", "900,900"]
    run = start([*options, "--elastic-timeout", "1"], DIE="0@5:step")
    code, text = run.ends()
    assert code == 1, text
    assert re.search(r"saved at step 5: the job ends: there is 1 of at least 2 workers", text), (
        text
    )
    assert re.search(r"error: the job ended after .*there is 1 of at least 2 workers", text), text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_worker_that_is_told_to_end_hands_over_and_leaves(start, number):
    options = ["--min-ranks", "2", "--max-ranks", "3", "--cooldown", "900,900"]
    run = start(options, WANTED="-1")
    match, _ = run.says(r"\[(\d)\] step \d+ rank 0 of 3 pid (\d+)")
    os.kill(int(match[2]), number)
    run.says(rf"round 2: worker {match[1]} on .* has left, .*2 workers go on")
    (run.folder / "stop").touch()
    code, text = run.ends()
    assert code == 0 and "lost" not in text, text
    assert len(re.findall(r"done at step \d+ with 2", text)) == 2, text


def test_a_graceful_leave_below_the_minimum_ends_the_job_and_says_so(start):
    options = ["--min-ranks", "2", "--max-ranks", "2", "--cooldown", "900,900"]
    run = start([*options, "--elastic-timeout", "1"], WANTED="-1")
    match, _ = run.says(r"step \d+ rank 1 of 2 pid (\d+)")
    os.kill(int(match[1]), signal.SIGTERM)
    code, text = run.ends()
    assert code == 1 and "there is 1 of at least 2 workers" in text, text
    assert "saved at step" in text, text


def test_slots_that_are_discovered_and_gone_again(start, tmp_path):
    slots, script = tmp_path / "slots", tmp_path / "discover.sh"
    slots.write_text("localhost:2\n")
    script.write_text(f"#!/bin/sh\ncat {slots}\n")
    script.chmod(0o755)
    options = ["--min-np", "1", "--max-np", "3", "--host-discovery-script", str(script)]
    run = start(options, WANTED="-1")
    _, at = run.says("round 1: 2 workers")
    slots.write_text("localhost:3\n")
    _, at = run.says(r"round 2: worker 2 on .* has come, .*3 workers go on", at)
    slots.write_text("localhost:1\n")
    _, at = run.says(r"round 3: .* has left, .*1 worker goes on", at)
    (run.folder / "stop").touch()
    code, text = run.ends()
    assert code == 0 and "lost" not in text, text
    assert len(re.findall(r"done at step \d+ with 1", text)) == 1, text


def test_a_worker_that_stands_still_is_ended_and_replaced(start):
    run = start(["--min-ranks", "1", "--max-ranks", "2", "--timeout", "1"], WANTED="-1")
    match, _ = run.says(r"\[(\d)\] step \d+ rank 1 of 2 pid (\d+)")
    os.kill(int(match[2]), signal.SIGSTOP)
    _, at = run.says(rf"worker {match[1]} did not come back to the others and is ended")
    _, at = run.says(rf"round 2: worker {match[1]} .*lost .*1 worker goes on", at)
    _, at = run.says(r"round 3: .* has come, .*2 workers go on", at)
    (run.folder / "stop").touch()
    code, text = run.ends()
    assert code == 0, text


def test_a_limit_of_changes_ends_the_job(start):
    options = ["--min-ranks", "1", "--max-ranks", "2", "--reset-limit", "0"]
    code, text = start(options, DIE="1@5:step").ends()
    assert code == 1 and "workers have changed more than 0 times" in text, text


def test_a_program_that_fails_when_others_have_ended_well_has_failed(start, tmp_path):
    script = tmp_path / "fails.py"
    script.write_text(
        textwrap.dedent("""
        import sys, sirtaki.numpy as hvd
        hvd.init()
        hvd.barrier()
        sys.exit(3 * hvd.rank())
        """)
    )
    code, text = start(["--min-ranks", "1", "--max-ranks", "1"], script).ends()
    assert code == 0, text
    code, text = start(["--min-ranks", "2", "--max-ranks", "2"], script).ends()
    assert code == 3, text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_launcher_ends_everything(start, number):
    run = start(["--min-ranks", "1", "--max-ranks", "2"], WANTED="-1")
    run.says("step 10 ")
    run.process.send_signal(number)
    code, text = run.ends()
    assert code == 128 + number and f"ended by {number.name}" in text, text
    # Those who are only asked to end have time to save.
    assert text.count("saved at step") == (2 if number == signal.SIGTERM else 0), text


def test_nothing_is_left_of_engines_that_were_replaced(start, tmp_path):
    script = tmp_path / "leaks.py"
    script.write_text(
        textwrap.dedent("""
        import os
        import numpy as np, sirtaki.numpy as hvd
        from sirtaki._core.elastic import HostsUpdatedInterrupt
        hvd.init()
        seen = []

        @hvd.elastic.run
        def train(state):
            hvd.allreduce(np.ones(1 << 16), name="gradient")
            seen.append([len(os.listdir(f"/proc/self/{what}")) for what in ("fd", "task")])
            state.round += 1
            state.commit()
            if state.round < 30:
                raise HostsUpdatedInterrupt(skip_sync=False)

        train(hvd.elastic.ArrayState(round=0))
        most = [max(few) for few in zip(*seen[3:10])]
        last = [min(few) for few in zip(*seen[-5:])]
        assert all(now <= then for now, then in zip(last, most)), seen
        print("nothing left")
        """)
    )
    code, text = start(["--min-ranks", "2", "--max-ranks", "2"], script).ends()
    assert code == 0 and text.count("nothing left") == 2, text


def test_torch_goes_on_with_every_sample_once(start, tmp_path):
    script = tmp_path / "samples.py"
    script.write_text(
        textwrap.dedent("""
        import os, signal, torch, sirtaki.torch as hvd
        from sirtaki._core import job
        hvd.init()
        torch.manual_seed(hvd.rank())
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        data = torch.arange(96, dtype=torch.float32)
        sampler = hvd.elastic.ElasticSampler(data, seed=5)
        loader = torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler)

        @hvd.elastic.run
        def train(state):
            for number, batch in enumerate(loader):
                if job.round_number() == 1 and hvd.rank() == 1 and number == 4:
                    os.kill(os.getpid(), signal.SIGKILL)
                optimizer.zero_grad()
                model(batch[:, None] / 96).square().mean().backward()
                optimizer.step()
                sampler.record_batch(number, len(batch))
                state.seen = sorted(state.seen + sum(hvd.allgather_object(batch.tolist()), []))
                state.commit()

        state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, seen=[])
        train(state)
        weights = hvd.allgather(model.weight.detach())
        assert weights.eq(weights[0]).all()
        assert state.seen == data.tolist(), state.seen
        print("every sample once, with", hvd.size())
        """)
    )
    options = ["--min-ranks", "2", "--max-ranks", "3", "--cooldown", "900,900"]
    code, text = start(options, script).ends()
    assert code == 0 and text.count("every sample once, with 2") == 2, text


def test_options_that_cannot_be_together_are_refused(start):
    for options, words in [
        (["--min-ranks", "3", "--max-ranks", "2"], "at least 3 and at most 2"),
        (["--reset-limit", "3"], "--reset-limit is for workers that come and go"),
        (["--min-ranks", "2", "--mpi"], "MPI cannot go on"),
        (["--min-ranks", "1", "--discover", "/nonexistent"], "--discover /nonexistent"),
    ]:
        code, text = start(options).ends()
        assert code != 0 and words in text and "hint:" in text, text
