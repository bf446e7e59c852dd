"""Simulated annealing, for which Sirtaki's default stands in."""

from __future__ import annotations

from sirtaki.hyperopt._trials import Algorithm

suggest = Algorithm("auto")
