"""A real browser for the tests of pages."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
DRIVER = shutil.which("chromedriver")


@contextmanager
def browser(width: int = 1400, height: int = 1000) -> Iterator[Any]:
    """Chromium without a window, which keeps what the console and the network say; skips where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("no chromium with chromedriver on this machine")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    flags = "headless=new no-sandbox disable-gpu disable-dev-shm-usage disable-background-networking no-first-run"
    for flag in [*flags.split(), f"window-size={width},{height}"]:
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield made
    finally:
        made.quit()


def as_if_new(driver: Any, width: int = 1400, height: int = 1000) -> None:
    """Nothing is left of the pages of other tests: what was emulated, stored and logged."""
    driver.get("about:blank")
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": "file://", "storageTypes": "all"})
    driver.set_window_size(width, height)
    driver.get_log("browser")
    requested(driver)


def requested(driver: Any) -> list[str]:
    """The addresses that were asked for since the last call."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [
        message["params"]["request"]["url"] for message in messages if message["method"] == "Network.requestWillBeSent"
    ]
