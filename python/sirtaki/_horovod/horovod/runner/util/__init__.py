"""What scripts import from ``horovod.runner.util``."""
