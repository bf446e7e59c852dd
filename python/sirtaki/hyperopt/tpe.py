"""What good trials have in common and others have not."""

from __future__ import annotations

from sirtaki.hyperopt._trials import Algorithm

suggest = Algorithm("tpe")
