# SPDX-License-Identifier: MIT
"""Two hosts with a slow link between them, on one machine: network namespaces (Linux, root).

Their packets go through this process, which sends them on at the link's rate and after half of the
round trip's time: no kernel module is needed.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import queue
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

HOSTS, ADDRESSES = ("pgslow0", "pgslow1"), ("10.78.0.1", "10.78.0.2")
AGENT = Path(__file__).resolve().parents[2] / "tests" / "distributed" / "hosts.sh"
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 1, 0x1000


# Bytes that went over the link.
_carried = [0]


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _attach(host: str) -> int:
    """Return a file of the packets that a host sends and receives."""
    own, there = os.open("/proc/thread-self/ns/net", os.O_RDONLY), f"/run/netns/{host}"
    libc = ctypes.CDLL(None, use_errno=True)
    other = os.open(there, os.O_RDONLY)
    if libc.setns(other, 0):
        raise OSError(ctypes.get_errno(), "setns")
    tun = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH", b"tun0", _IFF_TUN | _IFF_NO_PI))
    libc.setns(own, 0)
    os.close(other)
    os.close(own)
    return tun


def _carry(source: int, target: int, mbit: float, delay_s: float) -> None:
    """Send packets on at a rate and after a time."""
    late: queue.Queue[tuple[float, bytes]] = queue.Queue(200)

    def write() -> None:
        while True:
            due, packet = late.get()
            time.sleep(max(0.0, due - time.monotonic()))
            os.write(target, packet)

    threading.Thread(target=write, daemon=True).start()
    free = 0.0
    while True:
        packet = os.read(source, 65536)
        _carried[0] += len(packet)
        if mbit:
            free = max(free, time.monotonic()) + len(packet) * 8 / (mbit * 1e6)
        try:  # a full queue drops packets, as a router does
            late.put_nowait((max(free, time.monotonic()) + delay_s, packet))
        except queue.Full:
            continue


@contextmanager
def slow_link(mbit: float, rtt_ms: float) -> Iterator[None]:
    """Let two hosts exist in the block; 0 and 0 slow nothing."""
    try:
        for host, address in zip(HOSTS, ADDRESSES, strict=True):
            _ip("netns", "add", host)
            _ip("-n", host, "tuntap", "add", "dev", "tun0", "mode", "tun")
            _ip("-n", host, "addr", "add", f"{address}/24", "dev", "tun0")
            # Small packets would keep this program busy, and the ranks need the cores.
            _ip("-n", host, "link", "set", "tun0", "mtu", "65000")
            _ip("-n", host, "link", "set", "lo", "up")
            table = Path("/etc/netns") / host
            table.mkdir(parents=True, exist_ok=True)
            lines = [f"{a} {h}\n" for a, h in zip(ADDRESSES, HOSTS, strict=True)]
            (table / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
        ends = [_attach(host) for host in HOSTS]
        for host in HOSTS:
            _ip("-n", host, "link", "set", "tun0", "up")
        for source, target in (ends, ends[::-1]):
            given = (source, target, mbit, rtt_ms / 2000)
            threading.Thread(target=_carry, args=given, daemon=True).start()
        yield
    finally:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "del", host], check=False)
            shutil.rmtree(Path("/etc/netns") / host, ignore_errors=True)


def run(arguments: Sequence[str | Path]) -> str:
    """Run Python with arguments as two ranks, one on each host, and return what they print."""
    mpiexec = shutil.which("mpiexec") or str(Path(sys.executable).parent / "mpiexec")
    call = [str(AGENT), HOSTS[0], mpiexec, "--host", ",".join(f"{h}:1" for h in HOSTS), "-n", "2"]
    call += ["--map-by", "ppr:1:node"]  # whatever the environment says, or both share a host
    call += [sys.executable, *map(str, arguments)]
    variables = {"PRTE_MCA_plm_ssh_agent": str(AGENT), "OMPI_MCA_btl": "tcp,self"}
    variables |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    variables = {**os.environ, **variables}
    before = _carried[0]
    done = subprocess.run(call, capture_output=True, text=True, env=variables, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    if _carried[0] - before < 1 << 20:
        raise SystemExit("the ranks sent nothing over the link between the hosts")
    return done.stdout
