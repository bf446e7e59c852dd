"""``sirtaki.run`` with a real launcher, which SIRTAKI_COMMAND names."""

import contextlib
import doctest
import io
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

import jobs

import sirtaki
import sirtaki._run

PATIENCE = 60.0

# What is typed into a notebook, or stands in a script.
FROM_MAIN = {"__name__": "__main__"}
exec("class Thing: pass\ndef function(): return Thing()", FROM_MAIN)


def raised_by(*args, **kwargs):
    """What the job raises, which has to be a RankError."""
    try:
        result = sirtaki.run(*args, output="hide", **kwargs)
    except sirtaki.RankError as error:
        return error
    raise AssertionError(f"the job succeeded: {result}")


def until(what, condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)


class Results(unittest.TestCase):
    def test_results_come_in_the_order_of_ranks(self):
        self.assertEqual(sirtaki.run(jobs.place, ranks=4), [(0, 4), (1, 4), (2, 4), (3, 4)])

    def test_arguments_arrive(self):
        self.assertEqual(sirtaki.run(jobs.add, [1, 2], {"scale": 10}), [30, 31])

    def test_ranks_start_in_the_current_folder_with_given_variables(self):
        with tempfile.TemporaryDirectory() as folder, moved_to(folder):
            done = sirtaki.run(jobs.where, env={"GREETING": "yassou"})
        self.assertEqual(done, [(os.path.realpath(folder), "yassou")] * 2)

    def test_a_module_of_the_current_folder_does_not_hide_one_of_the_library(self):
        with tempfile.TemporaryDirectory() as folder, moved_to(folder):
            Path("traceback.py").write_text("raise SystemExit('the wrong module')")
            self.assertEqual(sirtaki.run(jobs.place, ranks=1), [(0, 1)])

    def test_large_results_and_threads(self):
        results = []
        thread = threading.Thread(
            target=lambda: results.extend(sirtaki.run(jobs.large, (5 << 20,)))
        )
        thread.start()
        thread.join(PATIENCE)
        self.assertEqual([len(result) for result in results], [5 << 20] * 2)

    def test_a_job_inside_a_job(self):
        nested = sirtaki.run(sirtaki.run, (jobs.place,), {"ranks": 2}, ranks=1)
        self.assertEqual(nested, [[(0, 2), (1, 2)]])


class Failures(unittest.TestCase):
    def test_an_exception_comes_with_rank_cause_and_traceback(self):
        error = raised_by(jobs.fail_on, (1, jobs.divide), ranks=2)
        self.assertEqual(error.rank, 1)
        self.assertIsInstance(error.__cause__, ZeroDivisionError)
        self.assertIn("in divide\n", error.traceback)
        self.assertNotIn("_call.py", error.traceback)
        self.assertTrue(str(error).startswith("rank 1 raised ZeroDivisionError: "), str(error))
        self.assertIn(error.traceback.strip(), str(error))

    def test_an_exception_that_cannot_be_unpickled_leaves_its_text(self):
        error = raised_by(jobs.complain, ranks=1)
        self.assertIsNone(error.__cause__)
        self.assertEqual(error.reason, "raised jobs.AboutError: about everything")

    def test_the_first_exception_counts_and_not_the_first_end(self):
        with tempfile.TemporaryDirectory() as folder:
            error = raised_by(jobs.fail_in_turn, (folder,), ranks=2)
        self.assertIn("error: rank 0 ", error.report)
        self.assertEqual((error.rank, error.reason), (1, "raised ValueError: first"))

    def test_a_killed_rank_is_named_while_others_wait(self):
        error = raised_by(jobs.fail_on, (1, jobs.die), ranks=3)
        self.assertEqual((error.rank, error.traceback, error.__cause__), (1, "", None))
        self.assertIn("was killed by SIGKILL", error.reason)
        self.assertIn("about to die", str(error))
        self.assertIn("hint: ", str(error))

    def test_a_rank_that_leaves_early_is_a_failure(self):
        self.assertIn("without returning", raised_by(jobs.vanish, ranks=1).reason)
        self.assertEqual(raised_by(jobs.leave, ranks=1).reason, "raised SystemExit: 3")

    def test_a_result_that_cannot_be_pickled(self):
        self.assertIn("cannot pickle", raised_by(jobs.return_a_lock, ranks=1).reason)

    def test_the_error_itself_can_be_pickled(self):
        error = sirtaki.RankError(3, "was killed", report="hint: none")
        copy = pickle.loads(pickle.dumps(error))
        self.assertEqual((copy.rank, str(copy)), (3, "rank 3 was killed\nhint: none"))


class Mistakes(unittest.TestCase):
    def test_arguments_are_checked(self):
        for wrong in ({"ranks": 0}, {"ranks": 1.5}, {"timeout": 0}, {"output": "loud"}):
            with self.assertRaises(ValueError):
                sirtaki.run(jobs.place, **wrong)
        with self.assertRaises(TypeError):
            sirtaki.run("place")

    def test_the_launchers_refusal_is_told(self):
        with self.assertRaisesRegex(sirtaki.LaunchError, "(?s)RANK.*hint: "):
            sirtaki.run(jobs.place, env={"RANK": "7"})

    def test_a_missing_command_is_told(self):
        cases = [
            ({"SIRTAKI_COMMAND": "/no/such/sirtaki"}, "(?s)/no/such/sirtaki.*hint: "),
            ({"SIRTAKI_COMMAND": "", "PATH": "/nowhere"}, "(?s)no `sirtaki` command.*hint: "),
        ]
        for variables, words in cases:
            with (
                mock.patch.dict(os.environ, variables),
                self.assertRaisesRegex(sirtaki.LaunchError, words),
            ):
                sirtaki.run(jobs.place)

    def test_the_command_is_found_in_path(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "sirtaki").symlink_to(os.environ["SIRTAKI_COMMAND"])
            with mock.patch.dict(os.environ, SIRTAKI_COMMAND="", PATH=folder):
                self.assertEqual(sirtaki.run(jobs.place, ranks=1), [(0, 1)])


class Pickling(unittest.TestCase):
    def test_without_cloudpickle_what_has_no_name_is_refused_with_a_hint(self):
        with mock.patch.dict(sys.modules, cloudpickle=None):
            for function in (lambda: 0, FROM_MAIN["function"]):
                with self.assertRaisesRegex(sirtaki.LaunchError, "pip install cloudpickle"):
                    sirtaki.run(function)
            with self.assertRaisesRegex(sirtaki.LaunchError, "`Thing`.*main script or notebook"):
                sirtaki.run(jobs.add, (FROM_MAIN["Thing"](), 1))

    def test_what_cannot_travel_at_all_is_refused(self):
        with self.assertRaisesRegex(sirtaki.LaunchError, "hint: "):
            sirtaki.run(jobs.add, (threading.Lock(), 1))

    def test_with_cloudpickle_a_notebooks_own_things_travel_both_ways(self):
        offset, function = 5, FROM_MAIN["function"]
        self.assertEqual(sirtaki.run(lambda: jobs.place()[0] + offset), [5, 6])
        self.assertIsInstance(sirtaki.run(function, ranks=1)[0], FROM_MAIN["Thing"])


class Output(unittest.TestCase):
    def written(self, **options):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            sirtaki.run(jobs.say, **options)
        return sorted(out.getvalue().splitlines()), sorted(err.getvalue().splitlines())

    def test_output_is_shown_with_ranks(self):
        shown = (["[0] said", "[1] said"], ["[0] complained", "[1] complained"])
        self.assertEqual(self.written(), shown)

    def test_output_is_hidden(self):
        self.assertEqual(self.written(output="hide"), ([], []))

    def test_options_meant_for_other_jobs_do_not_count(self):
        with mock.patch.dict(os.environ, SIRTAKI_RUN_TAG_OUTPUT="none", SIRTAKI_RUN_DRY_RUN="yes"):
            self.assertEqual(self.written(ranks=1), (["[0] said"], ["[0] complained"]))


class Ends(unittest.TestCase):
    """A job that ends before its time."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def ready(self):
        return len(list(self.folder.glob("ready-*"))) == 2

    def test_a_time_limit_ends_the_job(self):
        with self.assertRaisesRegex(TimeoutError, "ranks 0, 1"):
            sirtaki.run(jobs.wait_for_ever, (self.folder,), timeout=2, output="hide")
        self.assertEqual(children(), [])

    def test_an_interrupt_ends_the_job_before_it_reaches_the_caller(self):
        def interrupt():
            until("both ranks", self.ready)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt, daemon=True).start()
        with self.assertRaises(KeyboardInterrupt):
            sirtaki.run(jobs.wait_for_ever, (self.folder,), output="hide")
        self.assertEqual(children(), [])

    def caller(self, function):
        """Another process that calls `function` on two ranks; in a session, as from a terminal."""
        script = (
            "import sys; sys.path[:] = eval(sys.argv[1]); import jobs, sirtaki;"
            f"sirtaki.run(jobs.{function}, (sys.argv[2],))"
        )
        temporary = self.folder / "temporary"
        temporary.mkdir()
        return subprocess.Popen(
            [sys.executable, "-c", script, repr(sys.path), str(self.folder)],
            env={**os.environ, "TMPDIR": str(temporary), "TEST_MARK": str(self.folder)},
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def test_ctrl_c_in_a_terminal_lets_ranks_clean_up(self):
        with self.caller("clean_up_late") as caller:
            until("both ranks", self.ready)
            os.killpg(caller.pid, signal.SIGINT)
            _, message = caller.communicate(timeout=PATIENCE)
        self.assertIn(b"KeyboardInterrupt", message)
        self.assertEqual(len(list(self.folder.glob("clean-*"))), 2)
        self.assertEqual(marked(self.folder), [])

    def test_the_job_ends_with_a_caller_that_is_killed(self):
        with self.caller("wait_for_ever") as caller:
            until("both ranks", self.ready)
            self.assertGreater(len(marked(self.folder)), 3)
            caller.kill()
        until("the end of all processes", lambda: not marked(self.folder))
        self.assertEqual(list((self.folder / "temporary").iterdir()), [])


class Documentation(unittest.TestCase):
    def test_examples(self):
        for module in (sirtaki, sys.modules["sirtaki._run"]):
            done = doctest.testmod(module)
            self.assertGreater(done.attempted, 1)
            self.assertEqual(done.failed, 0)


def children():
    """The processes that this one has started and that are still there."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def marked(mark):
    """The processes that have the mark in their environment."""
    wanted = f"TEST_MARK={mark}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in path.read_bytes().split(b"\0"):
                found.append(path.parent.name)
    return found


@contextlib.contextmanager
def moved_to(folder):
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


if __name__ == "__main__":
    unittest.main()
