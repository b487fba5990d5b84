"""Headless Chromium, driven through chromedriver's own protocol (W3C WebDriver): no package needed."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
PATIENCE_S = 60
#: How often an element may be replaced by a new one between the two requests of a click. Tables are drawn again every few seconds.
STALE = 20
#: How often chromedriver may end at its start.
STARTS = 5


def _start_driver() -> tuple[subprocess.Popen[bytes], str]:
    """(the process, its port). It takes the same port of IPv4 and of IPv6, and ends if somebody has one of the two."""
    assert DRIVER is not None
    said = ""
    for _ in range(STARTS):
        driver = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert driver.stdout is not None
        while line := driver.stdout.readline().decode():
            said += line
            if "successfully on port" in line:
                return driver, line.rstrip(".\n").rpartition(" ")[2]
        driver.wait()
        driver.stdout.close()
    raise AssertionError(f"chromedriver has ended {STARTS} times: {said}")


class Browser:
    """One window; a context manager. `width` and `height` in CSS pixels, `dark`: the scheme that pages see."""

    def __init__(self, profile: Path, *, width: int, height: int, dark: bool = False) -> None:
        self._driver, port = _start_driver()
        self._url = f"http://127.0.0.1:{port}/session"
        arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={profile}",
            "--hide-scrollbars",
        ]
        arguments.append(f"--blink-settings=preferredColorScheme={0 if dark else 1}")
        options = {"args": arguments, "binary": CHROMIUM}
        wanted = {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}
        session = self._call("", {"capabilities": wanted})
        self._url += f"/{session['sessionId']}"
        # The size of the page itself, not of the window around it: the layout must be the same everywhere.
        self._cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call("", method="DELETE")
        self._driver.terminate()
        self._driver.wait()
        assert self._driver.stdout is not None
        self._driver.stdout.close()

    def _call(self, path: str, body: dict[str, Any] | None = None, *, method: str = "POST") -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"content-type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=2 * PATIENCE_S) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as refusal:
            with refusal:
                text = json.load(refusal)["value"]["message"]
            raise AssertionError(f"{path}: {text}") from None

    def _cdp(self, command: str, **parameters: Any) -> Any:
        return self._call("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, url: str) -> None:
        self._call("/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """What the body of a function returns in the page."""
        return self._call("/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script: str, *arguments: Any) -> Any:
        """The first true value of an expression, looked at whenever the page has changed."""
        body = """
            const done = arguments[arguments.length - 1];
            const look = () => { const value = (EXPRESSION); if (value) { watch.disconnect(); done(value); } };
            const watch = new MutationObserver(look);
            watch.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
            look();
        """.replace("EXPRESSION", script)
        self._call("/timeouts", {"script": PATIENCE_S * 1000})
        return self._call("/execute/async", {"script": body, "args": list(arguments)})

    def _element(self, selector: str) -> str:
        found = self._call("/element", {"using": "css selector", "value": selector})
        return str(next(iter(found.values())))

    def click(self, selector: str) -> None:
        """Click as a person does: what is hidden or covered cannot be clicked."""
        for _ in range(STALE):
            try:
                self._call(f"/element/{self._element(selector)}/click", {})
                return
            except AssertionError as error:
                if "stale element" not in str(error):
                    raise
        raise AssertionError(f"{selector} was drawn again {STALE} times while it was clicked")

    def type(self, selector: str, text: str) -> None:
        """Empty a field and type into it, key by key. `\\ue007` is Enter, `\\ue004` Tab."""
        element = self._element(selector)
        self._call(f"/element/{element}/clear", {})
        self._call(f"/element/{element}/value", {"text": text})

    def choose(self, selector: str, value: str) -> None:
        """Choose one option of a list."""
        self.click(f"{selector} option[value='{value}']")

    def press(self, text: str) -> None:
        """Type where the focus is."""
        keys = [{"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]
        self._call("/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": keys}]})

    def mouse(self, kind: str, selector: str) -> None:
        """One half of a click: `kind` is pointerDown (the mouse is moved there first) or pointerUp."""
        element = {"element-6066-11e4-a52e-4f735466cecf": self._element(selector)}
        moves = (
            [{"type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": element}] if kind == "pointerDown" else []
        )
        actions = [*moves, {"type": kind, "button": 0}]
        self._call("/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": actions}]})

    def complaints(self) -> list[str]:
        """Errors that the page has caused: uncaught exceptions, what its policy refused."""
        log = self._call("/se/log", {"type": "browser"})
        return [entry["message"] for entry in log if entry["level"] == "SEVERE" and "favicon" not in entry["message"]]

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._call("/screenshot", method="GET")))
