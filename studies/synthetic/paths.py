"""Direct, or through other outputs? The paths that explanations report against structural equations that are known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot
from numpy.typing import NDArray

from sointer import SOInter
from sointer.config import TrainingConfig
from sointer.metrics import mean_interval
from sointer.paths import Paths
from sointer.zoo.structural import STRUCTURAL_PROBLEMS
from studies.frame.study import Case, Row, Study

SEEDS = range(20, 25)
N_EXPLAINED, N_DRAWS = 200, 16
MIN_TOTAL = 0.1  # of an effect whose main way is judged
ALMOST = 0.05  # ways this close to the true main way count as right
BLUE, ORANGE = "#1f6fb2", "#d9600a"
WHAT = {
    "mediated": "all effects go through other outputs",
    "direct": "all effects are direct",
    "mixed": "both",
    "copied": "both, and one output copies another",
}
COLUMNS = ("total", "direct", "through")


def cases(smoke: bool) -> Iterator[Case]:
    if smoke:
        yield {"problem": "mixed_sum", "n_features": 10, "n_queries": 400, "seed": 20, "n_epochs": 5}
        return
    for seed in SEEDS:
        for problem in STRUCTURAL_PROBLEMS:
            yield {"problem": problem, "n_features": 20, "n_queries": 4000, "seed": seed, "n_epochs": 60}


def run(problem: str, n_features: int, n_queries: int, seed: int, n_epochs: int) -> dict[str, Any]:
    structural = STRUCTURAL_PROBLEMS[problem](n_features).shuffled(seed)
    black_box, target = structural.problem, structural.target
    relevant = black_box.relevant[target]
    explainer = SOInter(
        black_box,
        k=len(relevant),
        random_state=seed,
        query_budget=n_queries,
        output_names=black_box.output_names,
        training=TrainingConfig(n_epochs=n_epochs),
    ).fit(black_box.sample(3000, random_state=seed), targets=[target])
    X = black_box.sample(N_EXPLAINED, random_state=seed + 10_000)
    explanation = explainer.explain(X, target=target, predicted=black_box(X))
    paths = explanation.paths(n_draws=N_DRAWS, random_state=0)
    # The very draws that the estimate sees, so that only its ways are judged and not the luck of the draw.
    references = explainer.removal_.references(N_DRAWS, np.random.default_rng(0))
    center, quantiles = float(explainer.outputs_.center[target]), explainer.outputs_.quantiles[target]
    encode = None if quantiles is None else quantiles.encode
    total, direct, through = structural.true_paths(X, paths.selected, references, center=center, encode=encode)
    outputs = paths.outputs[0]
    through = _copies_as_one(through, paths)[:, :, outputs]
    true = np.concatenate([total[:, :, None], direct[:, :, None], through], axis=2)
    found = np.concatenate([paths.total[:, :, None], paths.direct[:, :, None], paths.through], axis=2)
    return {
        "exact_match": float(np.mean([set(row) == set(relevant) for row in paths.selected.tolist()])),
        "main_way": _main_path(found, true),
        "error_total": float(np.abs(found - true)[:, :, 0].mean()),
        "error_direct": float(np.abs(found - true)[:, :, 1].mean()),
        "error_through": float(np.abs(found - true)[:, :, 2:].mean()),
        "outputs": [black_box.output_names[i] for i in outputs],
        "target": black_box.output_names[target],
        "indistinguishable": paths.indistinguishable,
        "features": _by_feature(paths.selected, found, true, black_box.order or ()),
    }


def _copies_as_one(through: NDArray[np.float64], paths: Paths) -> NDArray[np.float64]:
    """Outputs that cannot be distinguished are credited with what any of them carries."""
    result = through.copy()
    for group in paths.indistinguishable:
        members = [
            paths.output_names.index(name) for name in group if paths.output_names.index(name) != paths.target[0]
        ]
        result[:, :, members] = through[:, :, members].max(axis=2, keepdims=True)
    return result


def _main_path(found: NDArray[np.float64], true: NDArray[np.float64]) -> float:
    """Share of rows and features (of some effect) whose strongest way is, by the equations, the strongest too."""
    strongest = np.abs(found[:, :, 1:]).argmax(axis=2)
    of_it = np.take_along_axis(np.abs(true[:, :, 1:]), strongest[:, :, None], axis=2)[:, :, 0]
    right = of_it >= np.abs(true[:, :, 1:]).max(axis=2) - ALMOST
    return float(right[np.abs(true[:, :, 0]) > MIN_TOTAL].mean())


def _by_feature(
    selected: NDArray[np.int64], found: NDArray[np.float64], true: NDArray[np.float64], order: tuple[int, ...]
) -> list[dict[str, Any]]:
    """Means over the rows: total, direct, and through every output, as found and as it is."""
    rows = []
    for feature in sorted(np.unique(selected).tolist(), key=lambda j: order[j]):
        here = selected == feature
        rows.append(
            {
                "name": f"x{order[feature]}",
                "n_rows": int(here.sum()),
                "found": found[here].mean(axis=0).round(4).tolist(),
                "true": true[here].mean(axis=0).round(4).tolist(),
            }
        )
    return rows


# --- the page ----------------------------------------------------------------------------------------------


def page(rows: list[Row], images: Path) -> str:
    problems = [name for name in STRUCTURAL_PROBLEMS if any(row["problem"] == name for row in rows)]
    of = {name: [row for row in rows if row["problem"] == name] for name in problems}
    _draw_shares(of, images / "paths-shares.png")
    choices = (("mediated_xor", "mediated_and"), ("mixed_sum",))
    flows = [next(name for name in choice if name in of) for choice in choices if set(choice) & set(of)]
    for name in flows:
        _draw_flow(of[name][0], images / f"paths-{name.replace('_', '-')}.png")
    right = [row["main_way"] for row in rows]
    first = rows[0]
    weakest = min(problems, key=lambda name: np.mean([row["main_way"] for row in of[name]]))
    lines = [
        "# Direct, or through other outputs?",
        "",
        "How well does `explanation.paths()` ([definition](../concepts/paths.md)) separate direct effects from "
        "those through other outputs? Here the truth is known: every output is an equation of features and earlier "
        f"outputs, and an output is *held* by replacing its equation. In {_share(np.mean(right))} of samples and "
        f"features, the reported main path is the true one; the weakest problem is `{weakest}`, with "
        f"{_share(np.mean([row['main_way'] for row in of[weakest]]))}.",
        "",
        f"{len(problems)} problems with {first['n_features']} features in random order, {first['n_queries']} "
        f"queries in total, {N_EXPLAINED} explained samples and "
        f"{_count(len({row['seed'] for row in rows}), 'seed')} (from {min(SEEDS)}). Errors are mean "
        "absolute differences per sample and feature, in probability (standard "
        f"deviations for continuous targets), with the same {N_DRAWS} draws of removed features for estimate and "
        f"truth. *Main path*: among samples and features with a true total above {MIN_TOTAL}, those whose strongest "
        f"reported path is truly the strongest, or within {ALMOST} of it; in a chain, whose links all carry the "
        "whole effect, any link is right. *Shares*: the direct effect, or the effect through an output, divided by "
        "the total, both averaged over samples. Mean and 95 % interval over seeds.",
        "",
        "| problem | effects | right features | main path right | error of total | of direct | of through "
        "| of direct shares | of through shares |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in problems:
        cells = [_interval([row[key] for row in of[name]]) for key in ("exact_match", "main_way")]
        cells += [_interval([row[f"error_{key}"] for row in of[name]]) for key in COLUMNS]
        cells += [_interval([_share_error(row, columns) for row in of[name]]) for columns in (slice(1), slice(1, None))]
        lines.append(f"| `{name}` | {WHAT[name.split('_')[0]]} | {' | '.join(cells)} |")
    lines += [
        "",
        "## Shares of the total effect",
        "",
        "One mark per seed, feature and path; marks on the line are correct.",
        "",
        "![Reported against true shares](../images/paths-shares.png)",
        "",
        *_about_chains(of),
        *_about_copies(of),
        "## Plots",
        "",
    ]
    for name in flows:
        lines += [f"![Paths of {name}](../images/paths-{name.replace('_', '-')}.png)", ""]
    return "\n".join(lines)


def _about_chains(of: dict[str, list[Row]]) -> list[str]:
    chains = [row for name, rows in of.items() if name.startswith("mediated_chain") for row in rows]
    if not chains:
        return []
    near, between, far = ([share for row in chains for share in _carried(row)[place]] for place in range(3))
    in_between = f", {_range(between)} for those in the middle" if between else ""
    return [
        "In chains, every output on the path truly carries 100 % of a feature's effect. Reported shares are "
        f"{_range(near)} for outputs next to the target{in_between}, but only {_range(far)} at the beginning of the "
        "chain: if an early output is held, later ones still follow the features. *Main path* does not show this, "
        "because any link of a chain counts as right.",
        "",
    ]


def _carried(row: Row) -> tuple[list[float], list[float], list[float]]:
    """Reported shares where the true one is the whole: of outputs next to the target, between, where chains begin."""
    length = int(row["problem"].rsplit("_", 1)[1])
    shares: tuple[list[float], list[float], list[float]] = ([], [], [])
    for feature in row["features"]:
        for output, true, found in zip(row["outputs"], feature["true"][2:], feature["found"][2:], strict=True):
            if true > 0.99 * feature["true"][0]:
                # The target is c0 xor s1 xor ... xor s<length>, where c<j> has taken in the sides up to s<j>.
                link = int(output[1:]) + (output[0] == "c")
                place = 0 if link == length else 2 if link == 1 else 1
                shares[place].append(found / feature["found"][0])
    return shares


def _range(shares: list[float]) -> str:
    low, high = _share(min(shares)), _share(max(shares))
    return low if low == high else f"{low[:-2]} to {high}"


def _about_copies(of: dict[str, list[Row]]) -> list[str]:
    rows = of.get("copied_outputs", [])
    if not rows:
        return []
    noticed = np.mean([["y0", "y1"] in row["indistinguishable"] for row in rows])
    false = sum(len(row["indistinguishable"]) for name, runs in of.items() if name != "copied_outputs" for row in runs)
    return [
        f"The copy in `copied_outputs` was reported in {_share(noticed)} of the runs; both copies are then held "
        f"together and judged as one. In the other problems, which have no copies, {false} groups were reported.",
        "",
    ]


def _shares(row: Row) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """True and reported shares of the total, direct first, of every feature with some effect."""
    for feature in row["features"]:
        if feature["true"][0] > MIN_TOTAL / 2 and feature["n_rows"] > N_EXPLAINED / 10:
            true, found = (np.array(feature[key][1:]) / feature[key][0] for key in ("true", "found"))
            yield true, found


def _share_error(row: Row, columns: slice) -> float:
    return float(np.mean([np.abs(true - found)[columns].mean() for true, found in _shares(row)]))


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"


def _share(value: Any) -> str:
    return f"{100 * float(value):.0f} %"


def _interval(values: list[float]) -> str:
    mean, low, high = mean_interval(values)
    if np.isnan(mean):
        return "–"
    return f"{mean:.3f}" if np.isnan(low) else f"{mean:.3f} ± {(high - low) / 2:.3f}"


def _draw_shares(of: dict[str, list[Row]], path: Path) -> None:
    n_columns = min(5, len(of))
    n_lines = -(-len(of) // n_columns)
    figure, axes = pyplot.subplots(
        n_lines, n_columns, figsize=(2.1 * n_columns, 2.25 * n_lines + 0.5), sharex=True, sharey=True, squeeze=False
    )
    for ax in axes.ravel()[len(of) :]:
        ax.set_visible(False)
    for ax, (name, rows) in zip(axes.ravel(), of.items(), strict=False):
        ax.plot([-0.1, 1.1], [-0.1, 1.1], color="#b0b4ba", linewidth=1, zorder=0)
        for row in rows:
            for true, found in _shares(row):
                ax.plot(true[1:], found[1:], "s", color=BLUE, markersize=5, alpha=0.5, markeredgewidth=0)
                ax.plot(true[:1], found[:1], "o", color=ORANGE, markersize=5, alpha=0.6, markeredgewidth=0)
        ax.set_title(name.replace("_", " "), fontsize=9)
        ax.set_xlim(-0.15, 1.15)
        ax.set_ylim(-0.15, 1.15)
        ax.set_xticks([0, 0.5, 1])
        ax.set_yticks([0, 0.5, 1])
        ax.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("true share of the total effect", fontsize=10)
    figure.supylabel("reported share", fontsize=10)
    handles = [
        pyplot.Line2D([], [], marker="o", linestyle="", color=ORANGE, label="direct"),
        pyplot.Line2D([], [], marker="s", linestyle="", color=BLUE, label="through another output"),
    ]
    figure.legend(handles=handles, loc="upper center", ncols=2, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.3 / figure.get_figheight()))
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _draw_flow(row: Row, path: Path) -> None:
    """The averages of a run, as `Paths.plot` draws them."""
    features, outputs = row["features"], row["outputs"]
    found = np.array([feature["found"] for feature in features])[None]
    averages = Paths(
        selected=np.arange(len(features))[None],
        total=found[:, :, 0],
        direct=found[:, :, 1],
        through=found[:, :, 2:],
        outputs=np.arange(len(outputs))[None],
        target=np.array([len(outputs)]),
        value=np.array([""], dtype=object),
        feature_names=[feature["name"] for feature in features],
        output_names=[*outputs, row["target"]],
        indistinguishable=row["indistinguishable"],
        n_answers=row["n_queries"],
        unit="probability",
    )
    ax = averages.plot(n=10)
    ax.set_title(f"{row['problem']}: average over {N_EXPLAINED} rows")
    ax.figure.savefig(path, dpi=130)
    pyplot.close(ax.figure)


STUDY = Study(name="paths", cases=cases, run=run, page=page)
