"""Makes hosts of one machine: network namespaces joined by a bridge, each with a name and shared memory of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

NET = "10.77.0"  # the hosts are 10.77.0.11 and so on
_AGENT = """#!/bin/sh
host={name}${{1#{net}.1}}; shift
[ -e "$0-$host-is-dead" ] && sleep 600
exec ip netns exec "$host" unshare --uts --mount sh -c "hostname $host; mount -t tmpfs none /dev/shm; $*"
"""
NOBODY = "02:00:00:00:00:99"  # the address of no machine


def _run(*commands: str, check: bool = True) -> bool:
    done = [subprocess.run(command.split(), capture_output=True, check=check) for command in commands]
    return all(d.returncode == 0 for d in done)


def have_hosts() -> bool:
    """Whether this process may make hosts."""
    if os.geteuid() or not shutil.which("ip") or not _run("unshare --uts --mount true", check=False):
        return False
    name = f"hloom-{os.getpid()}"
    return _run(f"ip netns add {name}", f"ip netns del {name}", check=False)


@contextmanager
def hosts(folder: Path, count: int, slots: int) -> Generator[tuple[str, dict[str, str]]]:
    """Makes hosts with this many slots each. Gives the beginning of their names, which end in 1, 2 and so on, and
    the variables by which jobs are started on them.
    """
    name = f"hl{os.getpid() % 10000}h"
    agent, file = folder / "agent", folder / "hosts"
    agent.write_text(_AGENT.format(name=name, net=NET))
    agent.chmod(0o755)
    file.write_text("".join(f"{NET}.1{i} slots={slots}\n" for i in range(1, count + 1)))
    try:
        _run(f"ip link add {name}b type bridge", f"ip link set {name}b up", f"ip addr add {NET}.1/24 dev {name}b")
        for i in range(1, count + 1):
            _run(f"ip netns add {name}{i}", f"ip link add {name}v{i} type veth peer name eth0 netns {name}{i}",
                 f"ip link set {name}v{i} master {name}b up", f"ip -n {name}{i} addr add {NET}.1{i}/24 dev eth0",
                 f"ip -n {name}{i} link set eth0 up", f"ip -n {name}{i} link set lo up")  # fmt: skip
        yield name, {
            "PRTE_MCA_prte_default_hostfile": str(file), "PRTE_MCA_plm": "ssh", "PRTE_MCA_plm_ssh_agent": str(agent),
            "PRTE_MCA_prte_if_include": f"{NET}.0/24", "OMPI_MCA_btl_tcp_if_include": f"{NET}.0/24",
        }  # fmt: skip
    finally:
        _run(*(f"ip netns del {name}{i}" for i in range(1, count + 1)), f"ip link del {name}b", check=False)


def fall(name: str, host: int, variables: dict[str, str]) -> None:
    """Kills all processes of a host, which never answers again."""
    Path(f"{variables['PRTE_MCA_plm_ssh_agent']}-{name}{host}-is-dead").touch()
    found = subprocess.run(["ip", "netns", "pids", f"{name}{host}"], capture_output=True, text=True, check=True)
    for process in map(int, found.stdout.split()):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def cut(name: str, a: int, b: int, refuses: bool) -> None:
    """Cuts the link between two hosts: messages get lost, or the system refuses to send them."""
    if refuses:
        _run(f"ip -n {name}{a} route add blackhole {NET}.1{b}/32")
    else:
        _run(f"ip -n {name}{a} neigh replace {NET}.1{b} lladdr {NOBODY} dev eth0 nud permanent",
             f"ip -n {name}{b} neigh replace {NET}.1{a} lladdr {NOBODY} dev eth0 nud permanent")  # fmt: skip
