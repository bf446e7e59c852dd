"""``sirtaki.run`` in the kernel of a notebook: a bar that is replaced as the job goes on."""

import textwrap

from jupyter_client.manager import start_new_kernel

CELL = """
import sirtaki

def work():
    import time
    import sirtaki
    import sirtaki.numpy as hvd
    hvd.init()
    for step in range(1, 5):
        sirtaki.progress(step, 4, loss=1 / step)
        # The launcher looks twice a second.
        time.sleep(0.6)
    print("done")
    return hvd.rank()

sirtaki.run(work, ranks=2{more})
"""


def run_cell(more=""):
    """Everything that a cell shows, in order."""
    shown = []
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        reply = client.execute_interactive(
            textwrap.dedent(CELL.format(more=more)),
            timeout=120,
            output_hook=lambda message: shown.append((message["msg_type"], message["content"])),
        )
        assert reply["content"]["status"] == "ok", reply
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return shown


def test_a_cell_shows_one_bar_and_the_output():
    shown = run_cell()
    bars = [content for kind, content in shown if kind.endswith("display_data")]
    kinds = [kind for kind, _ in shown if kind.endswith("display_data")]
    assert kinds[0] == "display_data" and set(kinds[1:]) == {"update_display_data"}, shown
    assert len({bar["transient"]["display_id"] for bar in bars}) == 1
    last = bars[-1]["data"]
    assert last["text/plain"].startswith("step 4/4") and "loss 0.25" in last["text/plain"]
    assert '<progress max="1" value="1.0000">' in last["text/html"]
    written = "".join(content["text"] for kind, content in shown if kind == "stream")
    assert sorted(written.split("\n")) == ["", "[0] done", "[1] done"], written
    results = [content["data"] for kind, content in shown if kind == "execute_result"]
    assert [result["text/plain"] for result in results] == ["[0, 1]"]


def test_hidden_output_has_no_bar():
    kinds = [kind for kind, _ in run_cell(', output="hide"')]
    assert "execute_result" in kinds
    assert not {"display_data", "update_display_data", "stream"} & set(kinds), kinds
