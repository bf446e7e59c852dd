"""``sirtaki.keras``, the very same modules, where ``horovod.tensorflow`` has ``keras``."""

import sys

import sirtaki.keras
from sirtaki.keras import callbacks, elastic

_MODULES = {"": sirtaki.keras, ".callbacks": callbacks, ".elastic": elastic}

for _name, _module in _MODULES.items():
    sys.modules[__name__ + _name] = _module
