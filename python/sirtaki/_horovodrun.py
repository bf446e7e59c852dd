"""``horovodrun``: Horovod's launcher by name and options, carried out by ``sirtaki run``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import NoReturn

from sirtaki._errors import LaunchError
from sirtaki._launcher import find_command

SAME = {
    "num_proc": "--ranks",
    "hosts": "--hosts",
    "hostfile": "--hostfile",
    "start_timeout": "--start-timeout",
    "output_filename": "--output",
    "ssh_port": "--ssh-port",
    "ssh_identity_file": "--ssh-identity",
    "min_np": "--min-ranks",
    "max_np": "--max-ranks",
    "host_discovery_script": "--discover",
    "slots_per_host": "--slots",
    "elastic_timeout": "--elastic-timeout",
    "reset_limit": "--reset-limit",
}
"""Options of ``sirtaki run`` that mean the same."""

VARIABLES = {
    "timeline_filename": "HOROVOD_TIMELINE",
    "stall_check_warning_time_seconds": "HOROVOD_STALL_CHECK_TIME_SECONDS",
    "stall_check_shutdown_time_seconds": "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
    "gloo_timeout_seconds": "HOROVOD_GLOO_TIMEOUT_SECONDS",
}
"""Options that are passed to ranks in their environment."""

WITHOUT_EFFECT = (
    ("cycle-time-ms", float),
    ("cache-capacity", int),
    ("autotune-log-file", str),
    ("autotune-warmup-samples", int),
    ("autotune-steps-per-sample", int),
    ("autotune-bayes-opt-max-samples", int),
    ("autotune-gaussian-process-noise", float),
    ("mpi-args", str),
    ("binding-args", str),
    ("num-nccl-streams", int),
    ("thread-affinity", int),
    ("log-level", str),
    ("disable-cache", None),
    ("hierarchical-allreduce", None),
    ("no-hierarchical-allreduce", None),
    ("hierarchical-allgather", None),
    ("no-hierarchical-allgather", None),
    ("torus-allreduce", None),
    ("no-torus-allreduce", None),
    ("autotune", None),
    ("no-autotune", None),
    ("no-timeline-mark-cycles", None),
    ("mpi-threads-disable", None),
    ("no-mpi-threads-disable", None),
    ("tcp", None),
    ("log-with-timestamp", None),
    ("log-without-timestamp", None),
    ("log-hide-timestamp", None),
    ("no-log-hide-timestamp", None),
    ("prefix-output-with-timestamp", None),
    ("stall-check", None),
    ("gloo", None),
    ("mpi", None),
    ("jsrun", None),
)
"""Options about Horovod's internals, with the type of their value."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        _fail(f"{message}\nhint: `horovodrun --help` shows the options", code=2)


def _fail(text: str, code: int = 1) -> NoReturn:
    sys.stderr.write(f"error: {text}\n")
    raise SystemExit(code)


def _parser() -> _Parser:
    parser = _Parser(
        prog="horovodrun",
        allow_abbrev=False,
        usage="horovodrun [OPTIONS] COMMAND [ARGUMENTS]...",
        description="Starts a script written for Horovod on several ranks, over Sirtaki.",
        epilog="`sirtaki run --horovod` does the same and has more options.",
    )
    add = parser.add_argument
    add("-v", "--version", action="version", version=f"sirtaki {version('sirtaki')}")
    add("-cb", "--check-build", action="store_true", help="show what is supported")
    add("-np", "--num-proc", "-n", type=int, metavar="N", help="number of ranks")
    add("-H", "--hosts", metavar="LIST", help="hosts and their slots, such as a:4,b:4")
    add("-hostfile", "--hostfile", metavar="FILE", help="the same from a file")
    add("-p", "--ssh-port", type=int, metavar="PORT", help="port of the ssh servers")
    add("-i", "--ssh-identity-file", metavar="FILE", help="key to log in with")
    add("--start-timeout", type=int, metavar="SECONDS", help="time for all ranks to appear")
    add("--network-interfaces", "--network-interface", metavar="NAMES", help="the first is used")
    add("--output-filename", metavar="DIR", help="folder for the output of every rank")
    add("--verbose", action="store_true", help="tell more about the start")
    add("--timeline-filename", metavar="FILE", help="keep a timeline in this file")
    add("--timeline-mark-cycles", action="store_true", help="mark where collectives begin in it")
    add("--fusion-threshold-mb", type=float, metavar="MB", help="most bytes to fuse")
    add("--no-stall-check", action="store_true", help="do not warn about ranks that wait")
    add("--stall-check-warning-time-seconds", type=float, metavar="SECONDS", help="when to warn")
    add("--stall-check-shutdown-time-seconds", type=float, metavar="SECONDS", help="when to fail")
    add("--gloo-timeout-seconds", type=float, metavar="SECONDS", help="time to connect in")
    add("--min-np", "--min-num-proc", type=int, metavar="N", help="go on with at least N ranks")
    add("--max-np", "--max-num-proc", type=int, metavar="N", help="go on with at most N ranks")
    add("--host-discovery-script", metavar="FILE", help="a program that prints the hosts")
    add("--slots-per-host", type=int, metavar="N", help="slots of hosts for which it prints none")
    add("--elastic-timeout", type=float, metavar="SECONDS", help="time to wait for enough ranks")
    add("--reset-limit", type=int, metavar="N", help="how often ranks may come or go")
    add(
        "--blacklist-cooldown-range",
        type=float,
        nargs=2,
        metavar=("MIN", "MAX"),
        help="seconds for which a host is avoided after a failure",
    )
    add("--config-file", help=argparse.SUPPRESS)
    for name, kind in WITHOUT_EFFECT:
        short = ["-prefix-timestamp"] if name == "prefix-output-with-timestamp" else []
        if kind is None:
            add(*short, f"--{name}", action="store_true", help=argparse.SUPPRESS)
        else:
            add(f"--{name}", type=kind, help=argparse.SUPPRESS)
    add(
        "command", nargs=argparse.REMAINDER, metavar="COMMAND", help="the script and its arguments"
    )
    return parser


def parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of a command line; mistakes end the program."""
    return _parser().parse_args(arguments)


def translated(options: argparse.Namespace) -> list[str]:
    """The arguments of ``sirtaki`` that mean the same.

    >>> translated(parse_args(["-np", "2", "-H", "a:1,b:1", "python", "train.py", "-v"]))
    ['run', '--horovod', '--ranks=2', '--hosts=a:1,b:1', '--', 'python', 'train.py', '-v']
    """
    given = vars(options)
    command = ["run", "--horovod"]
    command += [f"{ours}={given[name]}" for name, ours in SAME.items() if given[name] is not None]
    if options.blacklist_cooldown_range:
        command.append("--cooldown={:g},{:g}".format(*options.blacklist_cooldown_range))
    if options.network_interfaces:
        command.append(f"--interface={options.network_interfaces.split(',')[0]}")
    if options.verbose:
        command.append("--verbose")
    variables = {VARIABLES[name]: given[name] for name in VARIABLES if given[name] is not None}
    if options.fusion_threshold_mb is not None:
        variables["HOROVOD_FUSION_THRESHOLD"] = int(options.fusion_threshold_mb * 1024 * 1024)
    if options.timeline_mark_cycles:
        variables["HOROVOD_TIMELINE_MARK_CYCLES"] = 1
    if options.no_stall_check:
        variables["HOROVOD_STALL_CHECK_DISABLE"] = 1
    command += [f"--env={name}={value}" for name, value in variables.items()]
    return [*command, "--", *options.command]


def _refuse(options: argparse.Namespace) -> None:
    """Ends the program if an option asks for something that does not exist here."""
    if options.config_file:
        _fail(
            "--config-file: Horovod's configuration files are not read\n"
            "hint: give the options themselves, or `sirtaki run --config` a file of its own"
        )
    if not options.command:
        _fail("a command to run is missing\nhint: horovodrun -np 2 python train.py", code=2)


def _warn(options: argparse.Namespace) -> None:
    """Warns about options that have no effect."""
    given = vars(options)
    names = [name for name, _ in WITHOUT_EFFECT if given[name.replace("-", "_")]]
    if names:
        listed = ", ".join(f"--{name}" for name in names)
        sys.stderr.write(f"warning: without effect here: {listed}\n")


BUILD = """\
sirtaki {version}:

Available Frameworks:
    [X] TensorFlow
    [X] PyTorch
    [ ] MXNet

Available Controllers:
    [X] MPI
    [X] Gloo (its place is taken by Sirtaki's own)

Available Tensor Operations:
    [X] NCCL (found when a job starts)
    [ ] DDL
    [ ] CCL
    [X] MPI
    [X] Gloo (its place is taken by Sirtaki's own)
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Becomes ``sirtaki run``."""
    options = parse_args(arguments)
    if options.check_build:
        sys.stdout.write(BUILD.format(version=version("sirtaki")))
        return
    _refuse(options)
    _warn(options)
    try:
        command = find_command()
    except LaunchError as error:
        _fail(str(error))
    os.execv(command, [command, *translated(options)])
