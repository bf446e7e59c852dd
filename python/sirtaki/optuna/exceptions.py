"""The exceptions of Optuna that objective functions raise or catch."""

from __future__ import annotations


class OptunaError(Exception):
    """Whatever goes wrong here."""


class TrialPruned(OptunaError):  # noqa: N818 - its name in Optuna
    """Raised by an objective to end a trial that is not worth finishing."""


class DuplicatedStudyError(OptunaError):
    """There is a study of this name already."""


class StorageInternalError(OptunaError):
    """The journal cannot be used."""
