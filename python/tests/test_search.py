"""Studies from Python: Optuna reads their journals; its interface and Hyperopt's; trials."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import optuna as real
import optuna_dashboard
import pytest

import sirtaki
import sirtaki.optuna as ours
from sirtaki import hyperopt
from sirtaki._launcher import find_command

real.logging.set_verbosity(real.logging.WARNING)

STUDY = """
command = ["{python}", "trial.py", "{{x}}", "{{kind}}"]
objective = "minimize loss"
trials = {trials}
{more}
[space]
x = {{ float = [-5, 5] }}
kind = ["a", "b"]
"""


def command(place, *arguments, code=0):
    done = subprocess.run(
        [find_command(), *arguments], cwd=place, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stdout


def write(place, script, trials, more=""):
    (place / "trial.py").write_text(textwrap.dedent(script))
    text = STUDY.format(python=sys.executable, trials=trials, more=more)
    (place / "study.toml").write_text(text)


def opened(path):
    if os.fspath(path).endswith(".db"):
        return real.storages.RDBStorage(f"sqlite:///{path}")
    backend = real.storages.journal.JournalFileBackend(os.fspath(path))
    return real.storages.JournalStorage(backend)


def asked(application, path):
    """What optuna-dashboard answers, as JSON."""
    seen = []
    request = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "QUERY_STRING": "after=0"}
    environment = {
        **request,
        "SERVER_NAME": "here",
        "SERVER_PORT": "80",
        "wsgi.url_scheme": "http",
    }
    body = b"".join(
        application(environment, lambda status, headers, info=None: seen.append(status))
    )
    assert seen == ["200 OK"], (path, seen, body)
    return json.loads(body)


@pytest.fixture(autouse=True)
def everything_written_opens_in_the_dashboard_of_optuna(tmp_path):
    yield
    files = [path for end in ("log", "journal", "db") for path in tmp_path.rglob(f"*.{end}")]
    for path in (path for path in files if not path.name.startswith("rank-")):
        storage = opened(path)
        application = optuna_dashboard.wsgi(storage)
        found = asked(application, "/api/studies")["study_summaries"]
        assert len(found) == len(storage.get_all_studies())
        for study in found:
            detail = asked(application, f"/api/studies/{study['study_id']}")
            assert len(detail["trials"]) == len(storage.get_all_trials(study["study_id"]))


def test_optuna_opens_what_the_command_wrote_and_goes_on(tmp_path):
    script = """
        import sys
        import sirtaki
        x = float(sys.argv[1])
        if sys.argv[2] == "b" and x > 3:
            raise SystemExit("too much")
        for step in range(3):
            sirtaki.report(step, x * x + step)
        """
    write(tmp_path, script, 12, 'stop = { method = "median", startup = 2 }\nseed = 5')
    command(tmp_path, "search", "study.toml", "-n", "2")
    data = json.loads(command(tmp_path, "search", "export", "runs/study"))
    storage = opened(tmp_path / "runs/study/journal.log")
    study = real.load_study(study_name="study", storage=storage)
    names = {
        "finished": "COMPLETE",
        "stopped early": "PRUNED",
        "failed": "FAIL",
    }
    assert [trial.state.name for trial in study.trials] == [
        names[trial["state"]] for trial in data["trials"]
    ]
    for trial, other in zip(study.trials, data["trials"]):
        assert trial.params == other["parameters"]
        assert [list(pair) for pair in trial.intermediate_values.items()] == other["reports"]
    assert study.best_trial.number == data["best"]

    def objective(trial):
        trial.suggest_categorical("kind", ["a", "b"])
        return trial.suggest_float("x", -5, 5) ** 2

    study.optimize(objective, n_trials=2)
    out = command(tmp_path, "search", "study.toml", "--resume", "--trials", "16", "-n", "2")
    assert "study study:" in out
    assert len(real.load_study(study_name="study", storage=storage).trials) == 16


def test_databases_of_optuna_come_and_go(tmp_path):
    script = """
        import sys
        import sirtaki
        x = float(sys.argv[1])
        for step in range(3):
            sirtaki.report(step, x * x + step if x < 4 else float("inf"))
        """
    write(
        tmp_path, script, 10, 'stop = { method = "median", startup = 2 }\nenqueue = [{ x = 4.5 }]'
    )
    command(tmp_path, "search", "study.toml", "-n", "2")
    command(tmp_path, "search", "export", "runs/study", "--sqlite", "-o", "study.db")
    journal = real.load_study(
        study_name="study", storage=opened(tmp_path / "runs/study/journal.log")
    )
    study = real.load_study(study_name="study", storage=opened(tmp_path / "study.db"))
    assert study.directions == journal.directions and study.metric_names == ["loss"]
    assert len(study.trials) == len(journal.trials) == 10
    for mine, other in zip(study.trials, journal.trials):
        # Only names of trials in a file differ.
        assert mine.params == other.params and mine.distributions == other.distributions
        assert (mine.state, mine.values) == (other.state, other.values)
        assert mine.intermediate_values == other.intermediate_values
        assert (mine.user_attrs, mine.system_attrs) == (other.user_attrs, other.system_attrs)

    def objective(trial):
        trial.set_user_attr("note", ["é", None, 1.5])
        return trial.suggest_float("x", -5, 5) ** 2, trial.suggest_int("y", 1, 9, log=True)

    study.optimize(lambda trial: trial.suggest_float("x", -5, 5), n_trials=3)
    place = f"sqlite:///{tmp_path}/theirs.db"
    theirs = real.create_study(
        storage=place, study_name="theirs", directions=["minimize", "maximize"]
    )
    theirs.optimize(objective, n_trials=5)
    theirs.enqueue_trial({"x": 1.0})
    command(tmp_path, "search", "import", "study.db", "--folder", "runs/again")
    command(tmp_path, "search", "import", "theirs.db")
    again = json.loads(command(tmp_path, "search", "export", "runs/again"))
    assert len(again["trials"]) == 13 and again["best"] == study.best_trial.number
    back = real.load_study(
        study_name="theirs", storage=opened(tmp_path / "runs/theirs/journal.log")
    )
    assert len(back.trials) == 6
    for mine, other in zip(back.trials, theirs.trials):
        assert (mine.params, mine.values, mine.state) == (other.params, other.values, other.state)
        assert (mine.user_attrs, mine.system_attrs) == (other.user_attrs, other.system_attrs)
    for arguments, told in [
        (("import", "theirs.db"), "there is a study in runs/theirs already"),
        (("import", "theirs.db", "--name", "thiers"), "did you mean `theirs`?"),
        (("import", "trial.py"), "cannot be read as studies of Optuna"),
    ]:
        done = subprocess.run(
            [find_command(), "search", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1 and told in done.stderr, done.stderr


def test_a_stopped_trial_goes_on_and_constraints_are_kept(tmp_path):
    space, stop = {"x": {"float": [0, 1]}}, "asha:min=1,max=3,factor=3,promote=1"
    study = sirtaki.Study(space, stop=stop, trials=6, path=tmp_path / "journal.log")
    for x in (0.1, 0.2, 0.5, 0.6, 0.7, 0.8):
        study.enqueue(x=x)
    steps, origins = {}, []
    for trial in study:
        origins.append(trial.origin)
        for step in range(steps.get(trial.origin, 0) + 1, 4):
            steps[trial.origin] = step
            if trial.report(step, trial["x"]):
                study.stopped(trial)
                break
        else:
            trial.constrain("x", 0.15 - trial["x"])
            study.tell(trial, trial["x"])
    assert origins == [0, 1, 2, 3, 4, 5, 1], "the second of six is among the best third"
    assert steps == {0: 3, 1: 3, 2: 1, 3: 1, 4: 1, 5: 1}, "nothing is done twice"
    assert (study.best["number"], study.best["parameters"]["x"]) == (6, 0.2)


def test_the_examples_of_the_documentation_run(tmp_path, monkeypatch, capsys):
    page = (Path(__file__).parents[2] / "docs/search.md").read_text()
    blocks = [block.split("\n", 1) for block in page.split("\n```")[1::2]]
    for kind, text in blocks:
        if kind in ("toml", "sh") and text.startswith(("# study.toml", "# trial.sh")):
            (tmp_path / text[2:].split("\n")[0].split(":")[0]).write_text(text)
    command(tmp_path, "search", "study.toml", "-n", "2")
    monkeypatch.chdir(tmp_path)
    space = {}
    for text in (text for kind, text in blocks if kind == "python"):
        exec(text, space)
    assert space["study"].best_value < 1
    assert "x" in space["best"] and len(space["trials"]) == 20
    assert '{"step": 0, "value": 1.0}' in capsys.readouterr().out


def test_a_trial_that_is_given_up_can_save_something(tmp_path):
    script = """
        import os, pathlib, time
        import sirtaki
        for step in range(3):
            sirtaki.report(step, 1.0)
        while not sirtaki.should_stop():
            time.sleep(0.01)
        pathlib.Path(os.environ["SIRTAKI_TRIAL_FOLDER"], "saved").touch()
        """
    write(tmp_path, script, 1, 'stop = { method = "patience", steps = 1 }')
    command(tmp_path, "search", "study.toml", "-n", "1", code=1)
    assert (tmp_path / "runs/study/0000/saved").exists()
    data = json.loads(command(tmp_path, "search", "export", "runs/study"))
    assert [trial["state"] for trial in data["trials"]] == ["stopped early"]


def objective(trial):
    kind = trial.suggest_categorical("kind", ["a", "b", None])
    x = trial.suggest_float("x", 1e-3, 10, log=True)
    depth = trial.suggest_int("depth", 1, 9, step=2)
    if kind == "b":
        x += trial.suggest_float("extra", 0, 1, step=0.25)
    for step in range(4):
        trial.report(x + depth / (step + 1), step)
        if trial.should_prune():
            raise ours.TrialPruned
    trial.set_user_attr("twice", 2 * x)
    return x + depth


def test_scripts_for_optuna_run_unchanged_and_optuna_reads_what_they_wrote(tmp_path):
    path = tmp_path / "journal.log"
    storage = ours.storages.JournalStorage(ours.storages.JournalFileBackend(path))
    sampler = ours.samplers.TPESampler(seed=3)
    study = ours.create_study(study_name="s", storage=storage, sampler=sampler)
    study.enqueue_trial({"x": 0.5, "kind": "b"})
    seen = []
    study.optimize(objective, n_trials=30, callbacks=[lambda _, trial: seen.append(trial.number)])
    assert seen == list(range(30))
    theirs = real.load_study(study_name="s", storage=opened(path))
    for mine, other in zip(study.trials, theirs.trials):
        assert mine.params == other.params
        assert mine.state.name == other.state.name
        assert mine.values == other.values
        attributes = {k: v for k, v in other.user_attrs.items() if not k.startswith("sirtaki:")}
        assert mine.user_attrs == attributes
    assert study.best_value == theirs.best_value
    assert study.best_params == theirs.best_params
    assert study.trials[0].params["x"] == 0.5
    with pytest.raises(ours.exceptions.DuplicatedStudyError):
        ours.create_study(study_name="s", storage=storage)
    again = ours.create_study(study_name="s", storage=storage, load_if_exists=True)
    assert len(again.trials) == 30


def test_failures_threads_and_several_objectives():
    study = ours.create_study(directions=["minimize", "maximize"])

    def two(trial):
        x = trial.suggest_int("x", 0, 10)
        if x == 7:
            raise ValueError("seven")
        return x, (x - 5) ** 2

    study.optimize(two, n_trials=24, n_jobs=4, catch=ValueError)
    assert len(study.trials) == 24
    assert {trial.state.name for trial in study.best_trials} == {"COMPLETE"}
    with pytest.raises(ZeroDivisionError):
        ours.create_study().optimize(lambda trial: 1 / 0, n_trials=1)
    with pytest.raises(sirtaki.Error, match="starts above 0"):
        ours.create_study().ask().suggest_float("x", 0, 1, log=True)
    with pytest.raises(ValueError, match="cannot be written"):
        ours.create_study().ask().suggest_categorical("x", [object()])


def test_grids_given_trials_and_names_of_databases(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    storage = "sqlite:///runs/example.db"
    grid = {"x": [1, 2, 3], "kind": ["a", "b"]}
    sampler = ours.samplers.GridSampler(grid)
    study = ours.create_study(storage=storage, study_name="grid", sampler=sampler)

    def objective(trial):
        kind = trial.suggest_categorical("kind", ["a", "b"])
        return trial.suggest_int("x", 1, 3) + (kind == "b")

    study.optimize(objective, n_trials=6)
    tried = sorted((trial.params["x"], trial.params["kind"]) for trial in study.trials)
    assert tried == [(x, kind) for x in grid["x"] for kind in grid["kind"]]
    assert (tmp_path / "runs/example.journal").exists()
    assert ours.get_all_study_names(storage) == ["grid"]
    assert len(ours.load_study(study_name="grid", storage=storage).trials) == 6
    ours.delete_study(study_name="grid", storage=storage)
    assert objective(ours.trial.FixedTrial({"x": 2, "kind": "b"})) == 3

    given = ours.create_study(direction="maximize")
    domain = ours.distributions.FloatDistribution(0, 5)
    given.add_trial(ours.create_trial(value=1.5, params={"x": 2.0}, distributions={"x": domain}))
    given.set_user_attr("note", [1])
    assert (given.best_params, given.best_value) == ({"x": 2.0}, 1.5)
    assert given.user_attrs == {"note": [1]} and given.direction == "maximize"


def test_ranks_are_workers_of_one_study(tmp_path):
    script = """
        import time, sirtaki.optuna as optuna
        def objective(trial):
            while len(trial.study.trials) < 4:  # so that every worker has one
                time.sleep(0.01)
            return trial.suggest_float("x", -5, 5) ** 2
        study = optuna.create_study()
        study.optimize(objective, n_trials=20)
        assert len(study.trials) == 20, len(study.trials)
        print(study.best_trial.number)
        """
    (tmp_path / "worker.py").write_text(textwrap.dedent(script))
    run = ("run", "-n", "4", "--oversubscribe", "--tag-output", "none", "--")
    out = command(tmp_path, *run, sys.executable, "worker.py")
    assert len(out.split()) == 4 and len(set(out.split())) == 1, out
    (journal,) = tmp_path.glob("runs/optuna-*/journal.log")
    study = real.load_study(study_name="no-name", storage=opened(journal))
    assert [trial.number for trial in study.trials] == list(range(20))
    workers = {json.loads(line)["worker_id"] for line in journal.read_text().splitlines()}
    assert len(workers) == 4


def test_scripts_for_hyperopt_run_unchanged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hp, fmin = hyperopt.hp, hyperopt.fmin
    space = {
        "model": hp.choice(
            "model",
            [
                {"kind": "svm", "c": hp.lognormal("c", 0, 1)},
                {"kind": "tree", "depth": hp.quniform("depth", 1, 9, 2), "n": hp.randint("n", 5)},
            ],
        ),
        "lr": hp.loguniform("lr", -5, 0),
        "noise": (hp.normal("noise", 0, 2), 3),
    }

    def loss(point):
        assert point["noise"][1] == 3
        model = point["model"]
        if model["kind"] == "svm":
            assert model["c"] > 0
            return {"loss": 1.0, "status": hyperopt.STATUS_FAIL}
        assert model["depth"] % 2 == 0 and model["n"] in range(5)
        return {"loss": point["lr"] + model["depth"], "status": hyperopt.STATUS_OK, "note": "x"}

    trials = hyperopt.MongoTrials("mongo://host:1234/my_db/jobs", exp_key="exp1")
    best = fmin(loss, space, algo=hyperopt.rand.suggest, max_evals=30, trials=trials, rstate=1)
    assert best["model"] == 1
    assert hyperopt.space_eval(space, best)["model"]["kind"] == "tree"
    assert len(trials) == 30 and {"ok", "fail"} == set(trials.statuses())
    assert trials.best_trial["result"]["note"] == "x"
    assert (tmp_path / "runs/my_db-exp1.journal").exists()
