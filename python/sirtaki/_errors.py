"""What can go wrong, as exceptions."""

from __future__ import annotations


class Error(RuntimeError):
    """A collective failed: ranks disagree, a rank is gone, or the job was left.

    ``rank`` is the rank that caused it, if there is one.
    """

    __module__ = "sirtaki"

    rank: int | None = None
    refused = False
    """Whether ranks disagreed about a request; all other requests go on."""


class JobOver(Error):  # noqa: N818
    """An elastic job ends: there are too few workers, or they changed too often.

    Save what is needed, and end.
    """

    __module__ = "sirtaki"


class Dismissed(SystemExit):
    """This process of an elastic job has handed over its work; not caught, it ends the process."""


class LaunchError(RuntimeError):
    """The job could not be started, or it was ended from outside."""

    __module__ = "sirtaki"


class RankError(RuntimeError):
    """A rank failed, and it was the first one to do so.

    ``rank`` is its number and ``reason`` says what happened in one line. If the function raised an
    exception, that is the ``__cause__`` (if it can be pickled) and ``traceback`` is the text of
    the traceback on the rank; otherwise ``traceback`` is empty. ``report`` is the launcher's
    report: the last lines of the rank and what the others were doing.
    """

    __module__ = "sirtaki"

    def __init__(self, rank: int, reason: str, traceback: str = "", report: str = "") -> None:
        super().__init__(rank, reason, traceback, report)
        self.rank = rank
        self.reason = reason
        self.traceback = traceback
        self.report = report

    def __str__(self) -> str:
        headline = f"rank {self.rank} {self.reason}"
        if self.traceback:
            return f"{headline}\n\n{self.traceback.rstrip()}"
        return "\n".join(part for part in (headline, self.report) if part)
