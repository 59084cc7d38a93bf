"""The beginning of the page: what was done, and what was reached and what not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from studies.frame.markdown import mean, number, pick, prose, sections, table
from studies.frame.study import Row
from studies.usaddress.chains import BARS, exact
from studies.usaddress.sets_page import CEILING, EXACT_BAR, NEAREST, WITHIN_BAR, by_queries, path_lines, share

FASTER = 500


def opening(found: Mapping[str, list[Row]]) -> str:
    return sections(
        "# Which tokens made this a street name?",
        prose(
            "usaddress is a published tagger: a CRF that assigns one of 29 labels to each token of an address. "
            "Which tokens decide a label? The truth is found by brute force: for every subset of the tokens of 100 "
            "test addresses (4 to 8 distinct tokens, 676 labels), all other tokens were replaced 512 times by "
            "tokens from similar positions in the training data. A set suffices if the label stays in at least 95 % "
            "of these. *Exact*: a smallest such set was selected. *Within tolerance*: it keeps the label in at "
            "least 93 %, and no smaller set does in 97 %. Brute force with different draws does not fully agree "
            "with itself: the agreement of one half of the draws with the other half is the upper limit. The "
            "nearest tokens use only the position of the label. Settings were chosen on 50 other addresses, with "
            "other seeds. Made by "
            "`make reproduce-usaddress`; all numbers from `studies/results/usaddress`."
        ),
        "## Reached and not reached",
        table(["bar", "SequenceExplainer", "beside it", ""], list(lines(found))),
    )


def lines(found: Mapping[str, list[Row]]) -> Iterator[list[str]]:
    sets = found.get("sets", [])
    nearest, most = (pick(sets, method=method) for method in (NEAREST, CEILING))
    for bar, name, measure, words in (
        (EXACT_BAR, "given", 1, "exact, size given"),
        (WITHIN_BAR, "own", 2, "within tolerance, own size"),
    ):
        for queries, ours in by_queries(sets).items():
            value = share(ours, name, measure)
            beside = [f"brute force {number(share(most, name, measure), 3)}"] if most else []
            if name == "given" and nearest:
                beside.append(f"nearest tokens {number(share(nearest, name, measure), 3)}")
            about = f"{words}, {queries:,} queries: at least {bar:.2f}"
            yield [about, number(value, 3), ", ".join(beside), verdict(value >= bar)]
    for distance, _, _, own, same, bar_text, reached in path_lines(next(iter(by_queries(sets).values()), [])):
        words = "called mediated" if distance == "2+" else "called as in the CRF"
        said = own if distance == "2+" else same
        yield [f"effects at distance {distance} {words}: at least {bar_text}", said, "", reached]
    for queries, bar in BARS.items():
        rows = pick(found.get("chains", []), queries=queries)
        if rows:
            value = min(mean(exact(row) for row in pick(rows, kind=kind)) for kind in {row["kind"] for row in rows})
            beside = f"nearest tokens {number(max(row['nearest'] for row in rows))}"
            yield [f"planted chains, {queries:,} queries: exact at least {bar:.2f}", number(value, 3), beside,
                   verdict(value >= bar)]  # fmt: skip
    for row in found.get("speed", []):
        ratio = row["alone"] / row["ours"]
        yield [f"a label: at least {FASTER} times as fast as shap's KernelExplainer", f"{ratio:.0f}",
               f"{row['together'] / row['ours']:.0f} where shap explains all labels of an address at once",
               verdict(ratio >= FASTER)]  # fmt: skip


def verdict(reached: bool) -> str:
    return "reached" if reached else "not reached"
