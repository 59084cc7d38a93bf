"""Other columns than those of fit: the same behaviour and sentence in Python, streams, commands and server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sointer import BlackBox, SOInter
from sointer.apps.cli.inputs import read_to_explain
from sointer.apps.serve.rows import as_frame, read_rows
from sointer.data.inputs import InputFormat
from sointer.errors import InputError
from sointer.io.stream import stream_explain
from tests.support.quick import QUICK, quick_fit

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(RNG.normal(size=(60, 3)), columns=["a", "b", "c"])
LACKS = "lacks 1 of the 3 features seen in fit: 'b'; it has .*others are ignored, and their order does not matter"


def picky(X: Any) -> Any:
    """A model that takes the columns of fit, in the order of fit, and nothing else."""
    assert list(X.columns) == ["a", "b", "c"]
    return (X[["a", "b"]].to_numpy() > 0).astype(int)


@pytest.fixture(scope="module")
def explainer() -> SOInter:
    return quick_fit(picky, FRAME)


def scores_by_every_way(explainer: SOInter, frame: pd.DataFrame, folder: Path) -> dict[str, Any]:
    """Scores of target 0 by Python, as streams and commands read a file, and as the server reads records."""
    frame.to_csv(folder / "rows.csv", index=False)
    rows = read_to_explain(folder / "rows.csv", explainer)
    records = read_rows(explainer, frame.to_dict("records"), 1000)
    split = read_rows(explainer, {"columns": list(frame), "data": frame.to_numpy().tolist()}, 1000)
    return {
        "python": explainer.explain(frame, target=0).scores,
        "file": explainer.explain(rows, target=0).scores,
        "records": explainer.explain(records, target=0).scores,
        "table": explainer.explain(split, target=0).scores,
    }


def test_other_columns_are_ignored_everywhere(explainer: SOInter, tmp_path: Path) -> None:
    straight = explainer.explain(FRAME[:5], target=0).scores
    mixed = FRAME[:5].assign(id=np.arange(5))[["id", "c", "b", "a"]]
    for way, scores in scores_by_every_way(explainer, mixed, tmp_path).items():
        np.testing.assert_allclose(scores, straight, err_msg=way)


def test_a_missing_column_is_refused_everywhere_by_the_same_sentence(explainer: SOInter, tmp_path: Path) -> None:
    lacking = FRAME[:5].drop(columns="b")
    lacking.to_csv(tmp_path / "rows.csv", index=False)
    box = explainer.black_box_
    assert box is not None
    before = box.n_queries
    for way in (
        lambda: explainer.explain(lacking, target=0),
        lambda: stream_explain(explainer, tmp_path / "rows.csv", tmp_path / "why.csv", target=0),
        lambda: read_to_explain(tmp_path / "rows.csv", explainer),
        lambda: read_rows(explainer, lacking.to_dict("records"), 1000),
        lambda: read_rows(explainer, {"columns": ["a", "c"], "data": [[1.0, 2.0]]}, 1000),
    ):
        with pytest.raises(InputError, match=LACKS):
            way()
    assert box.n_queries == before


def test_names_given_to_an_array_count_too() -> None:
    form = InputFormat.infer(FRAME.to_numpy(), feature_names=["a", "b", "c"])
    np.testing.assert_array_equal(form.encode(FRAME.assign(id=1)[["id", "c", "b", "a"]]), FRAME.to_numpy())
    with pytest.raises(InputError, match=LACKS):
        form.encode(FRAME.drop(columns="b"))
    nameless = InputFormat.infer(FRAME.to_numpy())
    np.testing.assert_array_equal(nameless.encode(FRAME), FRAME.to_numpy())


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (pd.concat([FRAME, FRAME[["a"]]], axis=1), "must be unique, got more than one of 'a'"),
        (FRAME.assign(d=[[1]] * 60), r"the value \[1\] of type list in column 'd'"),
        (FRAME.assign(d=[pd.Timestamp(2024, 1, 1), *["x"] * 59]), "type Timestamp in column 'd'.*pandas.to_datetime"),
        (
            pd.concat([FRAME] * 5).assign(d=[f"T-{i:04d}" for i in range(300)]),
            "'d' with 300 .* rows: an id or free text",
        ),
        (pd.concat([FRAME] * 5).assign(d=[f"May {i}" for i in range(1800, 2100)]), "text: dates.*pandas.to_datetime"),
        (pd.concat([FRAME] * 5).assign(d=[f"user {i}" for i in range(300)]), "'d' with 300 different values in 300"),
        (pd.concat([FRAME] * 5).assign(d=[f"Ann {i}" for i in range(300)]), r"an id or free text.*text_columns=\['d'"),
        (
            pd.concat([FRAME] * 5).assign(d=np.arange(300) / 7.0).astype({"d": object}),
            r"numbers in column 'd' of dtype object.*X\['d'\].astype\(float\)",
        ),
        (
            pd.concat([FRAME] * 5).assign(d=[*map(str, range(298)), "unknown", "?"]),
            r"text: numbers, but for '\?', 'unknown'. Drop it if it is an id .*pandas.to_numeric\(X\['d'\], errors",
        ),
        (pd.concat([FRAME] * 5).assign(d=[f"{i},5" for i in range(300)]), "numbers with decimal commas. Drop it if"),
        (pd.concat([FRAME] * 5).assign(d=[f"0 days 00:{i}:00" for i in range(300)]), "text: durations.*to_timedelta"),
        (pd.concat([FRAME] * 5).assign(d=[f"1.2.{1900 + i}" for i in range(300)]), "text: dates.*pandas.to_datetime"),
    ],
)
def test_columns_that_cannot_be_learned_are_refused_before_any_query(X: pd.DataFrame, message: str) -> None:
    box = BlackBox(lambda X: (X[["a", "b"]].to_numpy() > 0).astype(int))
    with pytest.raises(InputError, match=message):
        SOInter(box, **QUICK).fit(X)
    assert box.n_queries == 0


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["1", 2.0, None], r"X has '1' in column 'a', expected numbers \(float64\). Convert the column"),
        ([pd.Timestamp(2024, 1, 1)] * 3, "column 'a' of dtype datetime64.*expected numbers"),
    ],
)
def test_other_types_than_in_fit_are_refused_before_any_query(
    explainer: SOInter, column: list[Any], message: str
) -> None:
    box = explainer.black_box_
    assert box is not None
    before = box.n_queries
    with pytest.raises(InputError, match=message):
        explainer.explain(FRAME[:3].assign(a=column), target=0)
    assert box.n_queries == before


KINDS = pd.DataFrame(
    {
        "a": RNG.normal(size=60),
        "c": RNG.choice(["u", "v"], 60).astype(object),
        "d": pd.Timestamp("2024-01-01") + pd.to_timedelta(RNG.integers(0, 99, 60), unit="D"),
        "t": pd.Timestamp("2024-01-01", tz="Europe/Oslo") + pd.to_timedelta(RNG.integers(0, 99, 60), unit="D"),
        "w": pd.to_timedelta(RNG.integers(0, 9999, 60), unit="s"),
        "v": RNG.random(60) < 0.5,
    }
)


@pytest.fixture(scope="module")
def of_kinds() -> SOInter:
    return quick_fit(lambda X: np.column_stack([X["a"] > 0, X["c"] == "u"]).astype(int), KINDS)


def every_way(explainer: SOInter, frame: pd.DataFrame, folder: Path) -> dict[str, Any]:
    """To explain a frame: in Python, as a stream, from a file (as the command reads it; streamed), by the server."""
    frame.to_csv(folder / "rows.csv", index=False)
    times = pd.Timestamp | pd.Timedelta
    rows = [[cell.isoformat() if isinstance(cell, times) else cell for cell in row] for row in frame.values]
    split = {"columns": list(frame), "data": [[getattr(cell, "item", lambda c=cell: c)() for cell in r] for r in rows]}
    return {
        "python": lambda: explainer.explain(frame, target=0),
        "stream": lambda: stream_explain(explainer, frame, folder / "why.parquet", target=0),
        "command": lambda: explainer.explain(read_to_explain(folder / "rows.csv", explainer), target=0),
        "file": lambda: stream_explain(explainer, folder / "rows.csv", folder / "why.parquet", target=0),
        "server": lambda: explainer.explain(read_rows(explainer, split, 1000), target=0),
    }


ROWS = KINDS[:3]
NO_ZONE = "X has dates without a time zone in column 't', but in the time zone Europe/Oslo in fit"
A_ZONE = "X has dates in the time zone UTC in column 'd', but without a time zone in fit"


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (ROWS.assign(a=["x", 2.0, 3.0]), r"X has 'x' in column 'a', expected numbers \(float64\). Convert the column"),
        (ROWS.assign(c=["u", "w", "v"]), "X has unseen categories in column 'c': 'w'; expected one of 'u', 'v'"),
        (ROWS.assign(t=ROWS["t"].dt.tz_localize(None)), NO_ZONE),
        (ROWS.assign(d=ROWS["d"].dt.tz_localize("UTC")), A_ZONE),
        (pd.concat([ROWS, ROWS[["a"]]], axis=1), "has several columns named 'a', so which of them is meant is not cle"),
        (ROWS.drop(columns="d"), "lacks 1 of the 6 features seen in fit: 'd'; it has 'a', 'c', 't', 'w', 'v'. Add"),
        (ROWS.assign(a=[np.inf, 1.0, 2.0]), "X has 1 infinite values, in rows 0 and columns 'a'"),
        (ROWS.assign(a=[1e300, 1.0, 2.0]), "X has 1 values beyond 1e.37, in rows 0 and columns 'a'"),
        (ROWS.assign(v=[2, 0, 1]), "X has '?2(.0)?'? in column 'v', expected True or False. Convert the column"),
        (ROWS.assign(w=[60.0, 0.0, 1.5]), "column 'w'.* expected durations "),
        (ROWS.assign(w=[pd.NaT] * 3), "X has 3 NaN or infinite values, in rows 0, 1, 2 and columns 'w'"),
    ],
)
def test_what_is_wrong_is_said_by_the_same_sentence_everywhere(
    of_kinds: SOInter, frame: pd.DataFrame, message: str, tmp_path: Path
) -> None:
    box = of_kinds.black_box_
    assert box is not None
    before = box.n_queries
    for way, explain in every_way(of_kinds, frame, tmp_path).items():
        with pytest.raises(InputError, match=message):
            explain()
        assert box.n_queries == before, way


def test_one_sample_as_a_list_is_no_list_of_texts(of_kinds: SOInter) -> None:
    for sample in (list(ROWS.iloc[0]), tuple(ROWS.iloc[0])):
        with pytest.raises(InputError, match=r"X has 1 dimensions .*expected 2: samples and features.*for one sample"):
            of_kinds.explain(sample, target=0)


def test_dates_in_a_time_zone_and_durations_are_read_from_files_and_requests(of_kinds: SOInter, tmp_path: Path) -> None:
    """A file of text has the moment, with its offset, but not the time zone: the model gets that of fit."""
    straight = of_kinds.explain(ROWS, target=0)
    KINDS.assign(id=range(60))[:3].to_csv(tmp_path / "rows.csv", index=False)
    read = read_to_explain(tmp_path / "rows.csv", of_kinds)
    assert str(read["t"].dt.tz) == "Europe/Oslo"
    np.testing.assert_array_equal(of_kinds.explain(read, target=0).scores, straight.scores)
    np.testing.assert_array_equal(read["w"], ROWS["w"])
    for explain in every_way(of_kinds, ROWS, tmp_path).values():
        explain()


def test_a_mean_of_truth_values_is_one_too(of_kinds: SOInter) -> None:
    """As of what was removed: what the model saw is read again."""
    assert of_kinds.input_format_.encode(KINDS[:1].assign(v=[0.25]))[0, -1] == 0.25


def test_dates_reach_the_server_as_text() -> None:
    zone = pd.DataFrame({"t": pd.to_datetime(["2024-01-01", "2024-03-01", None]).tz_localize("Europe/Berlin")})
    form = InputFormat.infer(zone)
    again = as_frame(form, [["2024-01-01T00:00:00+01:00", "2024-02-29T23:00:00Z", None]])
    np.testing.assert_array_equal(form.encode(again), form.encode(zone))
    with pytest.raises(InputError, match="without a time zone in column 't', but in the time zone Europe/Berlin"):
        form.encode(as_frame(form, [["2024-01-01"]]))
    for wrong in (5, "hello", [1]):
        with pytest.raises(InputError, match=r"column 't': found .*expected dates as text, such as '2024-05-31T12:00"):
            as_frame(form, [[wrong]])
    durations = InputFormat.infer(pd.DataFrame({"d": pd.to_timedelta(["1 days", "2 days"])}))
    np.testing.assert_array_equal(durations.encode(as_frame(durations, [["2 days"]])), [[86400e6]])
    with pytest.raises(InputError, match="expected durations as text, such as '1 days 12:00:00'"):
        as_frame(durations, [["soon"]])
