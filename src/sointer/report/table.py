"""The comparison as text, for a terminal."""

from __future__ import annotations

import textwrap

from sointer.report.content import Content


def format_table(content: Content) -> str:
    """The comparison, its meaning and its verdicts, in at most 100 columns."""
    removals = list(content.methods[0].fidelity)
    lines = [
        f"Fidelity: how often the model repeats its answer when it sees only the {content.k} chosen pixels of 64;",
        f"mean over {content.n_test} unseen digits x {len(content.segment_names)} segments, seed "
        f"{content.random_state}.",
        "",
        f"{'':15}{'fidelity,':>27}{'fidelity,':>22}{'fit':>8}{'1000 expla-':>13}{'rows asked':>12}",
        f"{'':15}{removals[0]:>27}{removals[1]:>22}{'':>8}{'nations':>13}{'in fit':>12}",
    ]
    for method in content.methods:
        first, second = (f"{100 * value:.1f}%" for value in method.fidelity.values())
        learned = method.n_queries > 0
        seconds = f"{method.fit_seconds:.1f} s" if learned else "-"
        ms = f"{method.explain_ms:.0f} ms" if learned else "-"
        lines.append(f"{method.name:15}{first:>27}{second:>22}{seconds:>8}{ms:>13}{method.n_queries:>12,}")
    findings = [textwrap.fill(finding, 100, subsequent_indent="  ") for finding in content.findings]
    return "\n".join([*lines, "", *findings])
