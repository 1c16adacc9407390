"""A small hub on 127.0.0.1 for tests: the routes of the real one that its library asks.

It serves folders as repositories, records requests, and can be gated, slow, or cut
connections short.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "hf_of_a_test"
_RESOLVE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_API = re.compile(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+))?")
_REFS = re.compile(r"/api/models/([^/]+/[^/]+)/refs")


@dataclass(slots=True)
class Repository:
    """One model. branches: their names, and the folder with the files of each.

    cut_after: connections end after so many bytes of a file of weights, the first `num_cuts` times.
    """

    branches: dict[str, Path]
    is_gated: bool = False
    is_private: bool = False
    num_cuts: int = 0
    cut_after: int = 0

    def commit(self, revision: str) -> str | None:
        """The hash of a branch, or of itself."""
        hashes = {name: commit_of(name, folder) for name, folder in self.branches.items()}
        return revision if revision in hashes.values() else hashes.get(revision)

    def folder(self, commit: str) -> Path:
        """The files of a commit."""
        return next(f for name, f in self.branches.items() if commit_of(name, f) == commit)


def commit_of(branch: str, folder: Path) -> str:
    """A hash that changes with a file's name or length."""
    body = [(str(p.relative_to(folder)), p.stat().st_size) for p in files_of(folder)]
    return hashlib.sha1(json.dumps([branch, body]).encode()).hexdigest()


def files_of(folder: Path) -> list[Path]:
    """All files of a repository."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


@dataclass(slots=True)
class Hub:
    """A running hub. requests: method, path and range of every request. status: if not None, the
    answer to all of them. delay: seconds before each."""

    url: str
    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    status: int | None = None
    delay: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def downloads(self) -> list[str]:
        """The files whose contents were requested, in order of names."""
        found = [
            path for method, path, _ in self.requests if method == "GET" and "/resolve/" in path
        ]
        return sorted({unquote(path).split("/", 5)[-1] for path in found})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self) -> None:
        hub, path = self.hub, urlsplit(self.path).path
        with hub.lock:
            hub.requests.append((self.command, path, self.headers.get("Range")))
        time.sleep(hub.delay)
        if hub.status is not None:
            self._send(hub.status, b"{}")
        elif path == "/api/models":
            self._models(parse_qs(urlsplit(self.path).query))
        elif found := _REFS.fullmatch(path):
            self._with(found[1], "main", self._refs)
        elif found := _API.fullmatch(path):
            show = self._tree if found[2] == "tree" else self._info
            self._with(found[1], unquote(found[3] or "main"), show)
        elif found := _RESOLVE.fullmatch(path):
            name = unquote(found[3])
            self._with(found[1], unquote(found[2]), lambda *it: self._file(*it, name), True)
        else:
            self._refuse(404, "EntryNotFound")

    def _with(
        self, name: str, revision: str, show: Callable[..., None], of_files: bool = False
    ) -> None:
        repository = self.hub.repositories.get(name)
        token = self.headers.get("Authorization")
        if token not in (None, f"Bearer {TOKEN}", "Bearer hf_of_another"):
            self._refuse(401, None, "Invalid credentials in Authorization header")
        elif repository is None or (repository.is_private and token != f"Bearer {TOKEN}"):
            self._refuse(404 if token else 401, "RepoNotFound")
        elif (commit := repository.commit(revision)) is None:
            self._refuse(404, "RevisionNotFound")
        elif of_files and repository.is_gated and token != f"Bearer {TOKEN}":
            self._refuse(403 if token else 401, "GatedRepo")
        else:
            show(name, repository, commit)

    def _info(self, name: str, repository: Repository, commit: str) -> None:
        folder = repository.folder(commit)
        siblings = [
            {"rfilename": str(p.relative_to(folder)), "size": p.stat().st_size}
            for p in files_of(folder)
        ]
        body = {"id": name, "sha": commit, "siblings": siblings}
        self._json({**body, "gated": "manual" if repository.is_gated else False})

    def _tree(self, _: str, repository: Repository, commit: str) -> None:
        folder = repository.folder(commit)
        self._json(
            [
                {
                    "type": "file",
                    "path": str(path.relative_to(folder)),
                    "size": path.stat().st_size,
                    "oid": "0" * 40,
                }
                for path in files_of(folder)
            ]
        )

    def _refs(self, _: str, repository: Repository, __: str) -> None:
        refs = [
            {"name": name, "ref": f"refs/heads/{name}", "targetCommit": commit_of(name, folder)}
            for name, folder in repository.branches.items()
        ]
        self._json({"branches": refs, "tags": [], "converts": []})

    def _models(self, query: dict[str, list[str]]) -> None:
        author, part = query.get("author", [""])[0], query.get("search", [""])[0]
        names = [name for name in self.hub.repositories if name.startswith(author)]
        self._json([{"id": name, "modelId": name} for name in names if part in name])

    def _file(self, _: str, repository: Repository, commit: str, name: str) -> None:
        path = repository.folder(commit) / name
        if not path.is_file():
            self._refuse(404, "EntryNotFound", headers={"X-Repo-Commit": commit})
            return
        data = path.read_bytes()
        headers = {
            "ETag": f'"{hashlib.sha256(data).hexdigest()}"',
            "X-Repo-Commit": commit,
            "X-Linked-Size": str(len(data)),
            "Accept-Ranges": "bytes",
        }
        if self.command == "HEAD":
            self._send(200, b"", {**headers, "Content-Length": str(len(data))})
            return
        status, requests = 200, re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if requests is not None:
            start, end = int(requests[1]), int(requests[2] or len(data) - 1) + 1
            headers["Content-Range"] = f"bytes {start}-{min(end, len(data)) - 1}/{len(data)}"
            data, status = data[start:end], 206
        with self.hub.lock:
            is_cut = repository.num_cuts > 0 and len(data) > repository.cut_after > 0
            repository.num_cuts -= is_cut
        if is_cut:
            self._send(status, data[: repository.cut_after], headers, len(data))
            self.close_connection = True
        else:
            self._send(status, data, headers)

    def _json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _refuse(
        self,
        status: int,
        code: str | None,
        message: str = "no",
        headers: dict[str, str] | None = None,
    ) -> None:
        body = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {})}
        self._send(status, b"{}", {**body, **(headers or {})})

    def _send(
        self,
        status: int,
        data: bytes,
        headers: dict[str, str] | None = None,
        length: int | None = None,
    ) -> None:
        self.send_response(status)
        named = {"Content-Length": str(len(data) if length is None else length)}
        for name, value in {**named, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            with suppress(ConnectionError):  # the client may have gone
                self.wfile.write(data)


@contextmanager
def running_hub() -> Iterator[Hub]:
    """A hub in a thread of this process, on a free port."""
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    handler.hub = Hub(f"http://127.0.0.1:{server.server_address[1]}")  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield handler.hub  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
