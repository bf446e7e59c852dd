"""``horovod.run``: a function on several ranks of this machine."""

from __future__ import annotations

from typing import Any, Callable

import sirtaki

__all__ = ["run"]

_ELASTIC = ("min_num_proc", "max_num_proc", "slots", "reset_limit", "cooldown_range")


def run(
    func: Callable[..., Any],
    args: tuple = (),
    kwargs: dict | None = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: tuple | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: int | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: int | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: str | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Any]:
    """Calls a function on ``num_proc`` ranks of this machine and returns what each returned.

    Other hosts and a changing number of ranks are refused; the arguments about how Horovod
    starts and connects processes have no effect.
    """
    given = locals()
    if (hosts and any(not host.startswith("localhost") for host in hosts.split(","))) or hostfile:
        raise ValueError(
            "run() starts ranks on this machine only\n"
            "hint: write a script and start it with `sirtaki run -H host:slots,... --horovod`"
        )
    elastic = [
        name for name in (*_ELASTIC, "host_discovery_script", "min_np", "max_np") if given[name]
    ]
    if elastic:
        raise ValueError(
            f"{', '.join(elastic)}: the number of ranks cannot change while a job runs\n"
            "hint: give num_proc alone"
        )
    variables = {"SIRTAKI_START_TIMEOUT": str(start_timeout)} if start_timeout else {}
    interface = network_interfaces or network_interface
    if interface:
        variables["SIRTAKI_INTERFACE"] = interface.split(",")[0]
    return sirtaki.run(func, args, kwargs, ranks=np or num_proc, env=variables)
