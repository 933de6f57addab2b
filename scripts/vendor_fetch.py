# SPDX-License-Identifier: MIT
"""Find and fetch the pinned source archive; see vendor.py."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from urllib.request import url2pathname


class VendorError(Exception):
    """A message for the person at the terminal; vendor.py prints it and exits 1."""


def sha256_of(path: Path) -> str:
    """The file's SHA-256 in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def verify(path: Path, sha256: str) -> None:
    """Raise unless the file has this SHA-256."""
    found = sha256_of(path)
    if found != sha256:
        raise VendorError(
            f"sha256 of {path} must be {sha256}; got {found}. "
            "The file is damaged or is not the pinned one: fetch it again, "
            "or correct vendor/ggml.toml if the pin is meant to move."
        )


def redact(url: str) -> str:
    """The address without user and password, for messages."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc="***@" + parts.netloc.rpartition("@")[2]))


def _pip_config() -> dict[str, str]:
    """pip's settings as `pip config list` prints them; empty where there is no pip."""
    # -I: in a build pip hides itself, by a PYTHONPATH, from the Python that it starts.
    command = [sys.executable, "-I", "-m", "pip", "config", "list"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found: dict[str, str] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition("=")
        # Most specific last: pip itself lets :env: override [install], and that override [global].
        section, _, option = key.strip().rpartition(".")
        if section in ("global", ":env:", "install", "download"):
            text = value.strip()
            text = text[1:-1] if text[:1] in ("'", '"') else text
            rank = {"global": 0, "install": 1, "download": 1, ":env:": 2}[section]
            if rank >= int(found.get(f"rank {option}", "0")):
                found[option] = text.replace("\\n", " ")
                found[f"rank {option}"] = str(rank)
    return found


def pip_sources() -> tuple[list[str], list[str], str | None]:
    """What pip is configured for: index addresses ("" is pip's own), links, certificates."""
    config = _pip_config()

    def option(name: str) -> str:
        variable = "PIP_" + name.upper().replace("-", "_")
        return os.environ.get(variable) or config.get(name, "")

    links = shlex.split(option("find-links"))
    if option("no-index").lower() in ("1", "true", "yes", "on"):
        return [], links, option("cert") or None
    indexes = [option("index-url"), *shlex.split(option("extra-index-url"))]
    return indexes, links, option("cert") or None


def _local_folder(link: str) -> Path | None:
    """The folder that a path or a file: address names, if it is one."""
    parts = urlsplit(link)
    path = Path(url2pathname(parts.path)) if parts.scheme == "file" else Path(link)
    return path if path.is_dir() else None


def _session(cert: str | None) -> Any:
    """A requests session that reads file: addresses too, as pip does."""
    import requests

    class FileAdapter(requests.adapters.BaseAdapter):
        def send(self, request: Any, **_: Any) -> Any:
            path = Path(url2pathname(urlsplit(request.url).path))
            path = path / "index.html" if path.is_dir() else path
            response = requests.Response()
            response.url, response.request = request.url, request
            if path.is_file():
                response.status_code = 200
                response.raw = BytesIO(path.read_bytes())
                kind = "text/html" if path.suffix == ".html" else "application/octet-stream"
                response.headers["Content-Type"] = kind
            else:
                response.status_code, response.reason = 404, "no such file"
                response.raw = BytesIO()
            return response

        def close(self) -> None:
            """Nothing is held open."""

    session = requests.Session()
    session.mount("file://", FileAdapter())
    if cert:
        session.verify = cert
    return session


def download(package: str, file: str, sha256: str | None, target: Path) -> None:
    """Fetch a file of a package from the first source of pip's that has it.

    Args:
        package: its name.
        file: the file's name.
        sha256: that the file must have; None is the one that the index tells, if any.
        target: where it is written to.
    """
    indexes, links, cert = pip_sources()
    for link in links:
        folder = _local_folder(link)
        if folder and (folder / file).is_file():
            target.write_bytes((folder / file).read_bytes())
            return
    try:
        from pypi_simple import PYPI_SIMPLE_ENDPOINT, NoSuchProjectError, PyPISimple
    except ImportError as error:
        raise VendorError(
            f"pypi-simple is needed to fetch {file}; `pip install pypi-simple`, "
            "or set PYGGML_GGML_SDIST to a copy of the file."
        ) from error
    tried: list[str] = []
    for index in indexes:
        endpoint = (index or PYPI_SIMPLE_ENDPOINT).rstrip("/") + "/"
        name = redact(endpoint)
        try:
            with PyPISimple(endpoint=endpoint, session=_session(cert)) as client:
                page = client.get_project_page(package, timeout=60)
                for found in page.packages:
                    if found.filename == file:
                        # A pin's own hash decides, not the one that the index tells.
                        told = not sha256 and bool(found.digests)
                        client.download_package(found, target, verify=told, timeout=60)
                        if sha256:
                            verify(target, sha256)
                        return
            tried.append(f"{name}: has {package}, not this file")
        except NoSuchProjectError:
            tried.append(f"{name}: has no {package}")
        except VendorError as error:
            tried.append(f"{name}: {error}")
        except Exception as error:  # noqa: BLE001 - any failure of one index: tell, try the next
            tried.append(f"{name}: {re.sub(r'//[^/@]*@', '//***@', str(error))}")
    target.unlink(missing_ok=True)
    listing = "".join(f"\n  {line}" for line in tried or ["no index is configured"])
    raise VendorError(
        f"{file} could not be fetched:{listing}\n"
        f"Set PIP_INDEX_URL to an index that has it, or copy the file to {target.parent}."
    )


def archive(pin: dict[str, Any], cache: Path) -> Path:
    """The verified archive: PYGGML_GGML_SDIST, else the cached one, else fetched now."""
    source = pin["source"]
    given = os.environ.get("PYGGML_GGML_SDIST")
    if given:
        path = Path(given)
        if not path.is_file():
            raise VendorError(f"PYGGML_GGML_SDIST must name a file; got {given}: no such file")
        verify(path, source["sha256"])
        return path
    path = cache / source["file"]
    if path.is_file() and sha256_of(path) == source["sha256"]:
        return path
    cache.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        download(source["package"], source["file"], source["sha256"], partial)
        verify(partial, source["sha256"])
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def fetch(package: str, file: str, cache: Path) -> str:
    """Fetch a file that no pin names yet into the cache; return its SHA-256."""
    cache.mkdir(parents=True, exist_ok=True)
    path = cache / file
    partial = path.with_name(f"{file}.{os.getpid()}.part")
    try:
        if not path.is_file():
            download(package, file, None, partial)
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return sha256_of(path)
