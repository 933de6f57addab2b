# SPDX-License-Identifier: MIT
"""Two hosts with a slow link between them: DiLoCo's speed and loss beside synchronous training's.

sudo python benchmarks/slow_network.py [--mbit 100] [--rtt-ms 20] [--steps 300] [--every 50]

The hosts are network namespaces (Linux, root). Their packets go through this program, which sends
them on at the link's rate and after half of the round trip's time: no kernel module is needed.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import json
import os
import queue
import shutil
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

HOSTS, ADDRESSES = ("pgslow0", "pgslow1"), ("10.78.0.1", "10.78.0.2")
ROOT = Path(__file__).resolve().parents[1]
AGENT = ROOT / "tests" / "distributed" / "hosts.sh"
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def attach(host: str) -> int:
    """Return a file of the packets that a host sends and receives."""
    own, there = os.open("/proc/thread-self/ns/net", os.O_RDONLY), f"/run/netns/{host}"
    libc = ctypes.CDLL(None, use_errno=True)
    other = os.open(there, os.O_RDONLY)
    if libc.setns(other, 0):
        raise OSError(ctypes.get_errno(), "setns")
    tun = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH", b"tun0", IFF_TUN | IFF_NO_PI))
    libc.setns(own, 0)
    return tun


# Bytes that went over the link.
carried = [0]


def carry(source: int, target: int, mbit: float, delay_s: float) -> None:
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
        carried[0] += len(packet)
        if mbit:
            free = max(free, time.monotonic()) + len(packet) * 8 / (mbit * 1e6)
        try:  # a full queue drops packets, as a router does
            late.put_nowait((max(free, time.monotonic()) + delay_s, packet))
        except queue.Full:
            continue


def train(name: str, args: argparse.Namespace, *more: str) -> tuple[float, float]:
    """Return the seconds from the 10th step to the last, and the last validation loss."""
    folder = Path(args.folder) / name
    shutil.rmtree(folder, ignore_errors=True)
    mpiexec = shutil.which("mpiexec") or str(Path(sys.executable).parent / "mpiexec")
    call = [str(AGENT), HOSTS[0], mpiexec, "--host", ",".join(f"{h}:1" for h in HOSTS), "-n", "2"]
    call += ["--map-by", "ppr:1:node"]  # whatever the environment says, or both share a host
    call += [sys.executable, "-m", "pyggml", "train-llm", "--artifact-dir", str(folder)]
    call += ["--tokenizer", "chars", "--layers", "2", "--heads", "4", "--embd", "128"]
    call += ["--seq-len", "64", "--batch-size", "16", "--threads", "1", "--seed", "1"]
    call += ["--sample-tokens", "0", "--no-report", *more]
    variables = {"PRTE_MCA_plm_ssh_agent": str(AGENT), "OMPI_MCA_btl": "tcp,self"}
    variables |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    variables = {**os.environ, **variables}
    before = carried[0]
    done = subprocess.run(call, capture_output=True, text=True, env=variables, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    if carried[0] - before < 1 << 20:
        raise SystemExit("slow_network: the ranks sent nothing over the link between the hosts")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [row["elapsed_s"] for row in rows if row["kind"] == "train"]
    losses = [row["loss"] for row in rows if row["kind"] != "train" and "loss" in row]
    return (steps[-1] - steps[9]) / (len(steps) - 10), losses[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mbit", type=float, default=100)
    parser.add_argument("--rtt-ms", type=float, default=20)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--folder", default="artifacts/slow-network")
    args = parser.parse_args()
    local = ["--sync-every", str(args.every), "--steps", str(args.steps)]
    plain = ["--steps", str(args.steps), "--eval-every", str(args.every)]
    found = {}
    for link in ("fast", "slow"):
        slow = link == "slow"
        try:
            for host, address in zip(HOSTS, ADDRESSES, strict=True):
                ip("netns", "add", host)
                ip("-n", host, "tuntap", "add", "dev", "tun0", "mode", "tun")
                ip("-n", host, "addr", "add", f"{address}/24", "dev", "tun0")
                ip("-n", host, "link", "set", "lo", "up")
                # Small packets would keep this program busy, and the ranks need the cores.
                ip("-n", host, "link", "set", "tun0", "mtu", "65000")
                table = Path("/etc/netns") / host
                table.mkdir(parents=True, exist_ok=True)
                lines = [f"{a} {h}\n" for a, h in zip(ADDRESSES, HOSTS, strict=True)]
                (table / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
            ends = [attach(host) for host in HOSTS]
            for host in HOSTS:
                ip("-n", host, "link", "set", "tun0", "up")
            given = (args.mbit, args.rtt_ms / 2000) if slow else (0.0, 0.0)
            for source, target in (ends, ends[::-1]):
                threading.Thread(target=carry, args=(source, target, *given), daemon=True).start()
            found[f"DiLoCo, {link}"] = train(f"local-{link}", args, *local)
            short = plain if not slow else ["--steps", "40", "--eval-every", "40"]
            found[f"synchronous, {link}"] = train(f"plain-{link}", args, *short)
        finally:
            for host in HOSTS:
                subprocess.run(["ip", "netns", "del", host], check=False)
                shutil.rmtree(Path("/etc/netns") / host, ignore_errors=True)
    for name, (step_s, loss) in found.items():
        note = "" if name != "synchronous, slow" else " (40 steps)"
        print(f"{name:20s} {step_s * 1e3:8.1f} ms a step, validation loss {loss:.4f}{note}")
    kept = found["DiLoCo, fast"][0] / found["DiLoCo, slow"][0]
    print(f"DiLoCo keeps {kept:.2f} of the fast link's speed")


if __name__ == "__main__":
    main()
