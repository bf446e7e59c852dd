"""``sirtaki.run``: calls a function on several ranks of this machine and returns the results."""

from __future__ import annotations

import os
import pickle
import re
import signal
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from sirtaki._bar import Bar, in_notebook
from sirtaki._errors import LaunchError, RankError
from sirtaki._exchange import Exchange
from sirtaki._launcher import Launcher, find_command

HEADLINE = re.compile(r"error: rank (\d+) (.*)")


def run(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    ranks: int = 2,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    output: str = "show",
) -> list[Any]:
    """Calls ``function(*args, **kwargs)`` on every rank of a job on this machine.

    Returns the results by rank. Ranks are separate processes under ``sirtaki run``, which sets
    ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and the like:

    >>> import os, sirtaki
    >>> sirtaki.run(os.getenv, ("RANK",), ranks=3)
    ['0', '1', '2']

    They can import whatever the caller can, and start in the current folder. They do not run the
    caller's script again, so ``if __name__ == "__main__"`` is not needed. Functions of a notebook
    or of the main script, lambdas and inner functions travel as well; arguments and results must
    be picklable.

    ``env`` adds variables for the ranks:

    >>> sirtaki.run(os.getenv, ("GREETING",), env={"GREETING": "kalimera"})
    ['kalimera', 'kalimera']

    What ranks write is shown line by line, each with its rank before it; with ``output="hide"`` it
    is not:

    >>> sirtaki.run(print, ("hello",), ranks=1)
    [0] hello
    [None]
    >>> sirtaki.run(print, ("hello",), ranks=1, output="hide")
    [None]

    In a notebook, a bar below the cell shows how far a function is that calls
    ``sirtaki.progress``.

    When a rank fails, the others are ended, and the first failure is raised as ``RankError``. It
    has the rank, the text of its traceback and the exception itself:

    >>> sirtaki.run(int, ("seven",), ranks=1)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    sirtaki.RankError: rank 0 raised ValueError: invalid literal for int() with base 10: 'seven'
    ...

    A job that is not done after ``timeout`` seconds is ended, with a ``TimeoutError``. Ctrl-C, the
    interrupt button of a notebook and the end of the calling process, however it ends, end the job
    as well. ``LaunchError`` says why a job could not start. The ``sirtaki`` command is looked for
    at ``SIRTAKI_COMMAND``, beside the running Python, and in ``PATH``.
    """
    _check(function, ranks, timeout, output)
    extra = dict(env or {})
    with Exchange(function, args, kwargs or {}, ranks) as exchange:
        # Names only: values may be secrets, and arguments are visible to all users.
        named = [word for name in extra for word in ("--env", name)]
        show = output == "show"
        bar = Bar() if show and in_notebook() else None
        if bar:
            named += ["--progress", "json"]
        command = [find_command(), "run", "--via", "local", "--ranks", str(ranks), *named, "--"]
        launcher = Launcher(command + exchange.command(), _environment(extra), show, bar)
        code = _wait(launcher, exchange, timeout)
        return _results(exchange.replies(), code, launcher.report.rstrip())


def _check(function: Any, ranks: Any, timeout: Any, output: Any) -> None:
    if not callable(function):
        raise TypeError(f"the function must be callable, not {type(function).__name__}")
    if not isinstance(ranks, int) or ranks < 1:
        raise ValueError(f"ranks must be a whole number above zero, not {ranks!r}")
    if timeout is not None and timeout <= 0:
        raise ValueError(f"timeout must be seconds above zero or None, not {timeout!r}")
    if output not in ("show", "hide"):
        raise ValueError(f'output must be "show" or "hide", not {output!r}')


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment, without the defaults for ``sirtaki run`` meant for other jobs."""
    own = {
        name: value for name, value in os.environ.items() if not name.startswith("SIRTAKI_RUN_")
    }
    return {**own, **extra}


def _wait(launcher: Launcher, exchange: Exchange, timeout: float | None) -> int:
    try:
        return launcher.wait(timeout)
    except TimeoutError:
        launcher.end(signal.SIGTERM)
        late = [str(rank) for rank, reply in enumerate(exchange.replies()) if reply is None]
        raise TimeoutError(f"not done after {timeout} s: {_count(late)}") from None
    except BaseException:
        launcher.end(signal.SIGINT)
        raise


def _count(ranks: list[str]) -> str:
    return f"rank{'' if len(ranks) == 1 else 's'} {', '.join(ranks)}"


def _results(replies: list[dict | None], code: int, report: str) -> list[Any]:
    """All results, or the first failure as an exception."""
    failed = HEADLINE.match(report)
    if failed:
        raise _first_failure(int(failed[1]), failed[2], replies, report)
    if report:
        raise LaunchError(report[len("error: ") :])
    if code != 0:
        raise LaunchError(f"the job {_ending(code)}")
    return [_result(rank, reply) for rank, reply in enumerate(replies)]


def _first_failure(rank: int, how: str, replies: list[dict | None], report: str) -> RankError:
    """The launcher knows which rank ended first; if it raised, another may have raised earlier."""
    raised = {number: reply for number, reply in enumerate(replies) if reply and "error" in reply}
    if rank not in raised:
        _, _, rest = report.partition("\n")
        return RankError(rank, how, report=rest)
    rank = min(raised, key=lambda number: raised[number]["moment"])
    reply = raised[rank]
    error = RankError(rank, f"raised {reply['summary']}", reply["traceback"], report)
    error.__cause__ = _exception(reply["error"])
    return error


def _exception(packed: bytes | None) -> BaseException | None:
    try:
        return pickle.loads(packed) if packed else None
    except Exception:
        # Its text has arrived in any case.
        return None


def _ending(code: int) -> str:
    """How a job without a report ended."""
    if code < 0:
        return f"ended because its launcher was killed by {signal.Signals(-code).name}"
    if code - 128 in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM):
        return f"was ended from outside by {signal.Signals(code - 128).name}"
    return f"ended with exit code {code}"


def _result(rank: int, reply: dict | None) -> Any:
    if reply is None:
        raise RankError(rank, "ended without returning from the function")
    try:
        return pickle.loads(reply["result"])
    except Exception as error:
        raise RankError(rank, f"returned something that cannot be read here: {error}") from error
