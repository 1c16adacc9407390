"""A headless Chromium for tests, spoken to over two pipes (its DevTools protocol)."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"),
)
_TO_PIPES = (  # 3 and 4 are where Chromium expects them
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4);"
    "os.execv(sys.argv[3], sys.argv[3:])"
)


class Tab:
    """One page. errors: what it had to say on its console, and what its scripts threw."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self.errors: list[str] = []
        self._to, self._from = to_browser, from_browser
        self._numbers = itertools.count(1)
        self._buffer = b""
        self._session: dict[str, str] = {}
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        found = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": found["sessionId"]}
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """What Chromium answers. Raises RuntimeError where it refuses."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params, **self._session}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (response := self._read()).get("id") != number:
            self._note(response)
        if "error" in response:
            raise RuntimeError(f"{method}: {response['error']}")
        answer: dict[str, Any] = response["result"]
        return answer

    def open(self, url: str, *, is_dark: bool = False, is_still: bool = False) -> None:
        """Go there. is_still: nothing moves in its place."""
        wished = {
            "prefers-color-scheme": "dark" if is_dark else "light",
            "prefers-reduced-motion": "reduce" if is_still else "no-preference",
        }
        features = [{"name": name, "value": value} for name, value in wished.items()]
        self.send("Emulation.setEmulatedMedia", features=features)
        self.send("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete' && document.body !== null")

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression. Raises RuntimeError for one that throws."""
        response = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in response:
            raise RuntimeError(f"{expression}: {response['exceptionDetails']}")
        return response["result"].get("value")

    def wait_for(self, expression: str, timeout: float = 40.0) -> None:
        """Until it is true. Raises TimeoutError."""
        ends_at = time.monotonic() + timeout
        while not self.ask(expression):
            if time.monotonic() > ends_at:
                page = self.ask("document.body?.innerText")
                raise TimeoutError(f"{expression} is not true; {self.errors}; the page:\n{page}")
            time.sleep(0.1)

    def text(self, selector: str) -> str:
        """The text of an element."""
        response: str = self.ask(f"document.querySelector({json.dumps(selector)}).textContent")
        return response

    def is_shown(self, selector: str) -> bool:
        """Whether an element takes up room."""
        place = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        return bool(self.ask(f"{place}.height > 0"))

    def picture(self, path: Path) -> None:
        """Save what is in sight as a PNG."""
        data = self.send("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def _read(self, timeout: float = 60.0) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._from], [], [], timeout)[0]:
                raise TimeoutError("Chromium says nothing")
            data = os.read(self._from, 1 << 20)
            if not data:
                raise RuntimeError("Chromium has ended")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        response: dict[str, Any] = json.loads(line)
        return response

    def _note(self, response: dict[str, Any]) -> None:
        params = response.get("params", {})
        match response.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning"):
                self.errors.append(str(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")


@contextlib.contextmanager
def chromium(profile: Path, size: tuple[int, int] = (1300, 1000)) -> Iterator[Tab]:
    """A tab of a new Chromium, with a profile of its own."""
    assert CHROMIUM is not None
    ends = [_high(fd) for fd in (*os.pipe(), *os.pipe())]
    width, height = size
    places = f"--user-data-dir={profile}", f"--window-size={width},{height}"
    launcher = [sys.executable, "-c", _TO_PIPES, str(ends[0]), str(ends[3])]
    process = subprocess.Popen(
        [*launcher, CHROMIUM, *_OPTIONS, *places],
        pass_fds=(ends[0], ends[3]),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(ends[0])
    os.close(ends[3])
    try:
        tab = Tab(ends[1], ends[2])
        tab.send(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        yield tab
    finally:
        process.kill()
        process.wait()
        os.close(ends[1])
        os.close(ends[2])


def _high(fd: int) -> int:
    """The same end of a pipe by a number that no redirection takes."""
    copy = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(fd)
    return copy
