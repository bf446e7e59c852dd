"""Uniform random points."""

from __future__ import annotations

from sirtaki.hyperopt._trials import Algorithm

suggest = Algorithm("random")
