"""State that survives failures, under Horovod's module name."""

from sirtaki._core.elastic import HostsUpdatedInterrupt, ObjectState, State, run_fn
from sirtaki._errors import Error as HorovodInternalError

__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt", "ObjectState", "State", "run_fn"]
