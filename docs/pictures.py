"""Draw the pictures of the guides anew: plots, and pages as a browser shows them.

python docs/pictures.py [NAME ...]

Names are those of DRAWN. Pages need chromium and chromedriver; "report" needs the data set Bibtex, "pixels" the horses.
The picture of README.md shows seconds: draw it on a quiet machine, with `make demo-picture`.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot

DOCS = Path(__file__).parent.resolve()
IMAGES = DOCS / "images"
BLOCK = re.compile(r"```python(?: (\S+))?\n(.*?)```", re.DOTALL)


def run(page: str, n_blocks: int | None = None) -> dict[str, Any]:
    """What the first examples of a page leave behind; run in an empty folder."""
    names: dict[str, Any] = {"__name__": "example"}
    for file, code in BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))[:n_blocks]:
        if file:
            Path(file).write_text(code, encoding="utf-8")
        else:
            exec(compile(code, page, "exec"), names)
    return names


def draw_plots() -> None:
    made = run("how-to/plots-and-reports.md", 1)
    explainer, X = made["explainer"], made["X"]
    figure, axes = pyplot.subplots(2, 2, figsize=(11, 6.4), layout="constrained")
    explanation = explainer.explain(X[:200], target="steam")
    explanation.plot(ax=axes[0, 0])
    explanation.plot(0, ax=axes[0, 1])
    targets = ["warm", "wet", "steam"]
    explainer.explain(X[:60].repeat(3, axis=0), target=targets * 60).plot(kind="heatmap", ax=axes[1, 0])
    explainer.plot_interactions(ax=axes[1, 1])
    figure.savefig(IMAGES / "plots.png", dpi=90)


def draw_paths() -> None:
    run("concepts/paths.md", 1)["paths"].plot().figure.savefig(IMAGES / "paths-example.png", dpi=100)


def draw_tutorial() -> None:
    made = run("tutorials/first-explanation.md")
    made["explanation"].plot(row=9).figure.savefig(IMAGES / "tutorial-row.png")
    made["paths"].plot().figure.savefig(IMAGES / "tutorial-paths.png")
    with browser(1100, 1500) as page:
        page.get(Path("why.html").resolve().as_uri() + "#target=rainbow&sample=9")
        time.sleep(1)
        page.execute_script("window.scrollTo(0, 0)")
        page.save_screenshot(str(IMAGES / "tutorial-report.png"))


def draw_serve() -> None:
    import uvicorn
    from selenium.webdriver.common.by import By
    from sklearn.datasets import load_wine
    from sklearn.ensemble import RandomForestRegressor

    from sointer import SOInter
    from sointer.apps.serve import create_app

    wine = load_wine(as_frame=True)
    rows = wine.data.drop(columns=["alcohol", "color_intensity"])
    forest = RandomForestRegressor(50, random_state=0).fit(rows, wine.data[["alcohol", "color_intensity"]])
    explainer = SOInter(forest, output_names=["alcohol", "color"], random_state=0).fit(rows)
    app = create_app(explainer, name="wine", examples=rows[:20])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    with browser(1300, 900) as page:
        page.get(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}")
        time.sleep(1)
        page.find_element(By.XPATH, "//button[contains(., 'Explain')]").click()
        time.sleep(2)
        page.save_screenshot(str(IMAGES / "serve-page.png"))
    server.should_exit = True


def draw_report() -> None:
    from sklearn.neural_network import MLPClassifier

    from sointer import SOInter
    from sointer.zoo.loaders import load_bibtex

    bibtex = load_bibtex()
    X, Y = bibtex.train
    model = MLPClassifier((200,), max_iter=15, random_state=0).fit(X, Y)
    explainer = SOInter(
        model,
        k=10,
        method="predict",
        feature_names=bibtex.feature_names,
        output_names=bibtex.label_names,
        query_budget=200_000,
        random_state=0,
    ).fit(X)
    explainer.report(bibtex.test[0][:500], "tags.html", title="Why these tags?")
    with browser(1280, 1140) as page:
        page.get(Path("tags.html").resolve().as_uri())
        time.sleep(2)
        page.save_screenshot(str(IMAGES / "report-overview.png"))
    with browser(1280, 1700) as page:
        page.get(Path("tags.html").resolve().as_uri() + "#target=web")
        time.sleep(2)
        page.execute_script("window.scrollTo(0, 0)")
        page.save_screenshot(str(IMAGES / "report-target.png"))


def draw_pixels() -> None:
    from sointer import SOInter
    from sointer.zoo import load_weizmann_horses
    from sointer.zoo.planted_segmenters import MajoritySegmenter

    horses = load_weizmann_horses(size=32)
    images = horses.train[0]
    explainer = SOInter(MajoritySegmenter(images), random_state=0).fit(images)
    explainer.report(horses.test[0][:5], "pixels.html")
    with browser(1150, 860) as page:
        page.get(Path("pixels.html").resolve().as_uri())
        time.sleep(2)
        page.save_screenshot(str(IMAGES / "horses-page.png"))


def draw_demo() -> None:
    from sointer.apps.demo import run_demo

    first = run_demo(".").page.resolve()
    with browser(1300, 900) as page:
        page.get(first.as_uri())
        save_whole_page(page, IMAGES / "demo.png")
        page.set_window_size(1300, 1130)
        page.get(first.with_name("digits.html").as_uri() + "#target=a%20(top)")
        time.sleep(1)
        page.execute_script("window.scrollTo(0, 0)")
        page.save_screenshot(str(IMAGES / "demo-page.png"))


def draw_gallery() -> None:
    names: dict[str, Any] = {"__name__": "example"}
    page = (DOCS / "tutorials" / "gallery.md").read_text(encoding="utf-8")
    for number, (_, code) in enumerate(BLOCK.findall(page), start=1):
        exec(compile(code, "gallery.md", "exec"), names)
        pyplot.gcf().savefig(IMAGES / f"gallery-{number}.png", dpi=80, bbox_inches="tight")
        pyplot.close("all")


def draw_texts() -> None:
    made = run("how-to/texts.md", 1)
    made["why"].to_html("words.html")
    rng = np.random.default_rng(0)
    chosen = [rng.choice(4, size=rng.integers(1, 4), replace=False) for _ in range(300)]
    stories = [", ".join(made["texts"][i] for i in subset) for subset in chosen]
    reader = made["SOInter"](made["predict"], query_budget=3000, random_state=0)
    page_of_stories = reader.fit(stories).report(stories[:60], "stories.html", title="Why this topic?")
    row = next(i for i, subset in enumerate(chosen) if len(subset) == 3 and 1 in subset and 0 in subset)
    reader.explain(stories[:60], target="praise").plot(row=row).figure.savefig(IMAGES / "plot-words.png")
    with browser(780, 560) as page:
        page.get(Path("words.html").resolve().as_uri())
        page.save_screenshot(str(IMAGES / "words.png"))
    with browser(1280, 800) as page:
        dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
        page.get(page_of_stories.resolve().as_uri() + f"#target=praise&sample={row}")
        time.sleep(1)
        page.save_screenshot(str(IMAGES / "report-text.png"))


def save_whole_page(page: Any, path: Path) -> None:
    """A picture of the page down to its end, however long it is."""
    height = page.execute_script("return document.documentElement.scrollHeight")
    size = {"width": 1300, "height": height, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    page.save_screenshot(str(path))
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@contextmanager
def browser(width: int, height: int) -> Iterator[Any]:
    sys.path.insert(0, str(DOCS.parent / "tests" / "support"))
    from browsing import browser as of_tests

    with of_tests(width, height) as made:
        yield made


DRAWN: dict[str, Callable[[], None]] = {
    "demo": draw_demo,
    "gallery": draw_gallery,
    "plots": draw_plots,
    "paths": draw_paths,
    "tutorial": draw_tutorial,
    "serve": draw_serve,
    "texts": draw_texts,
    "pixels": draw_pixels,
    "report": draw_report,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or DRAWN:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            sys.path.insert(0, folder)
            DRAWN[name]()
            os.chdir(DOCS)
