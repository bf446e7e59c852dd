"""What scripts import from ``horovod.runner.common``."""
