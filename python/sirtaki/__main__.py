"""``python -m sirtaki``: the ``sirtaki`` command."""

import sys

from sirtaki._native import main

sys.exit(main())
