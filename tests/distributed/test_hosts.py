# SPDX-License-Identifier: MIT
"""Two hosts, which are network namespaces of this machine, joined by TCP."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .ranks import command, environment
from .test_faults import lives, wait_for
from .test_training import PROGRAM

pytestmark = [pytest.mark.mpi, pytest.mark.slow]
AGENT = Path(__file__).parent / "hosts.sh"
NAMES = (f"pga{os.getpid()}", f"pgb{os.getpid()}")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
VARIABLES = {"PRTE_MCA_plm_ssh_agent": str(AGENT), "OMPI_MCA_btl": "tcp,self"}


def ip(*words: str) -> None:
    """Run `ip`; skip where it is not permitted."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no network namespaces here: ip {' '.join(words)}: {done.stderr.strip()}")


@pytest.fixture
def hosts() -> Iterator[tuple[str, ...]]:
    """Two namespaces with a link between them."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need ip and root")
    tables = [Path("/etc/netns") / name for name in NAMES]
    try:
        for name, table in zip(NAMES, tables, strict=True):
            ip("netns", "add", name)
            table.mkdir(parents=True)
            lines = [f"{a} {n}\n" for a, n in zip(ADDRESSES, NAMES, strict=True)]
            (table / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
        ends = ("link", "add", "va", "netns", NAMES[0], "type", "veth", "peer", "name", "va")
        ip(*ends, "netns", NAMES[1])
        for name, address in zip(NAMES, ADDRESSES, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "va")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "va", "up")
        yield NAMES
    finally:
        for name, table in zip(NAMES, tables, strict=True):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
            shutil.rmtree(table, ignore_errors=True)


def start(out: Path, *words: str | Path) -> subprocess.Popen[bytes]:
    """Start the training on both hosts."""
    mpiexec = f"{command(1)[0]} --host {NAMES[0]}:1,{NAMES[1]}:1"
    call = [AGENT, NAMES[0], sys.executable, "-m", "pyggml", "launch", "-n", "2"]
    call += ["--mpiexec", f"'{mpiexec}'", sys.executable, PROGRAM, *words]
    variables = environment(**VARIABLES)
    del variables["PRTE_MCA_rmaps_default_mapping_policy"]
    with out.open("wb") as file:
        return subprocess.Popen(list(map(str, call)), stdout=file, stderr=file, env=variables)


def finished(out: Path, *words: str | Path) -> dict[str, Any]:
    """Train on both hosts, and return the results."""
    code = start(out, *words).wait(120)
    text = out.read_text(errors="replace")
    assert code == 0, text
    found: dict[str, Any] = json.loads(text.splitlines()[-1])
    return found


def test_a_host_that_is_cut_off_ends_the_job(hosts: tuple[str, ...], tmp_path: Path) -> None:
    whole = finished(tmp_path / "out-1", "f32", "-", "300")
    folder = tmp_path / "checkpoints"
    job = start(tmp_path / "out-2", "f32", folder, "1000000")
    wait_for(lambda: (folder / "latest").exists() or job.poll() is not None)
    processes = [int((tmp_path / f"process-{rank}").read_text()) for rank in range(2)]
    ip("-n", hosts[1], "link", "set", "va", "down")
    began = time.monotonic()
    assert job.wait(60) != 0
    wait_for(lambda: not any(map(lives, processes)), 60 - (time.monotonic() - began))
    told = (tmp_path / "out-2").read_text(errors="replace")
    assert told.count("no sign of life") == 1, told
    assert f"rank 1 of 2 on {hosts[1]}, step " in told
    ip("-n", hosts[1], "link", "set", "va", "up")
    step = int((folder / "latest").read_text().strip().removeprefix("step-"))
    if step < 300:
        rest = finished(tmp_path / "out-3", "f32", folder, "300")
        assert rest["losses"] == whole["losses"][step:]
        assert rest["digests"] == whole["digests"]
