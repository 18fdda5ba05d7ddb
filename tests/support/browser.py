"""A headless Chromium, driven by chromedriver in the protocol of WebDriver (JSON over HTTP), where both are there."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MUST_DRAW = bool(os.environ.get("HLOOM_BROWSER"))
"""Whether a browser that is missing, or does not start, is an error."""
HAVE_BROWSER = MUST_DRAW or (CHROMIUM is not None and DRIVER is not None)
_PATIENCE = 60.0  # seconds
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the driver is on this machine


class Browser:
    """A window of `width` by `height`; as a context it ends with the block."""

    def __init__(self, width: int = 1400, height: int = 1000) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        assert DRIVER is not None, "there is no chromium with its chromedriver"
        nowhere = subprocess.DEVNULL
        self._driver = subprocess.Popen([DRIVER, f"--port={port}"], stdout=nowhere, stderr=nowhere)
        self._base = f"http://127.0.0.1:{port}"
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        options = {"binary": CHROMIUM, "args": [*arguments, f"--window-size={width},{height}"]}
        logs = {"browser": "ALL", "performance": "ALL"}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": logs}
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                found = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
                break
            except (urllib.error.URLError, ConnectionError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
        self._base += f"/session/{found['sessionId']}"

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self._ask("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait()

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self._base + path, data, {"Content-Type": "application/json"}, method=method)
        with _DIRECT.open(request, timeout=_PATIENCE) as answer:
            return json.load(answer)["value"]

    def open(self, path: Path, query: str = "", fragment: str = "") -> None:
        """Loads a page of reports, and waits until it says that it is ready."""
        self._ask("POST", "/url", {"url": "about:blank"})
        self._ask("POST", "/url", {"url": f"{path.resolve().as_uri()}{query}{fragment}"})
        self.until("return document.documentElement.dataset.ready === 'yes'")

    def until(self, script: str, *arguments: object) -> None:
        """Waits until a script returns something true, such as what the page shows after it went to an address."""
        end = time.monotonic() + _PATIENCE
        while not self.run(script, *arguments):
            assert time.monotonic() < end, (script, arguments, self.log())
            time.sleep(0.02)

    def run(self, script: str, *arguments: object) -> Any:
        """Returns the value of a script's `return`."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def press(self, keys: str) -> None:
        """Types keys where the focus is."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def log(self) -> list[str]:
        """Returns what the console said since the last call."""
        return [entry["message"] for entry in self._ask("POST", "/se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        """Returns the addresses that pages asked for since the last call."""
        found: list[str] = []
        for entry in self._ask("POST", "/se/log", {"type": "performance"}):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        return found

    def picture(self, path: Path, width: int, height: int | None = None) -> None:
        """Writes a PNG of the whole page at a width."""
        metrics: dict[str, Any] = {"width": width, "deviceScaleFactor": 1, "mobile": False}
        self._command("Emulation.setDeviceMetricsOverride", height=height or 1000, **metrics)
        size = height or self.run("return document.documentElement.scrollHeight")
        self._command("Emulation.setDeviceMetricsOverride", height=size, **metrics)
        path.write_bytes(base64.b64decode(self._ask("GET", "/screenshot")))
        self._command("Emulation.clearDeviceMetricsOverride")

    def _command(self, name: str, **parameters: object) -> Any:
        return self._ask("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def emulate_vision(self, kind: str) -> None:
        """Shows colours as somebody with a deficiency sees them, such as `deuteranopia`; `none` ends it."""
        self._command("Emulation.setEmulatedVisionDeficiency", type=kind)
