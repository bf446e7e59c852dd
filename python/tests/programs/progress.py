"""A progress bar as tqdm draws it: one row, drawn anew after a carriage return."""

import os
import sys
import time

STEPS = 20


def main():
    where = "terminal" if sys.stderr.isatty() else "pipe"
    for step in range(STEPS + 1):
        bar = "#" * step + "-" * (STEPS - step)
        sys.stderr.write(f"\rrank {os.environ['RANK']} on a {where}: {step:2}/{STEPS} |{bar}|")
        sys.stderr.flush()
        time.sleep(0.02)
    sys.stderr.write("\n")


main()
