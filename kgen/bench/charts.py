"""A page of measurements: tables and bars, in one file that needs nothing else. In: rows. Out: HTML."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

_COLOURS = ("#2563eb", "#9ca3af", "#f59e0b", "#10b981", "#8b5cf6", "#ef4444")
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; color: #111; }
table { border-collapse: collapse; margin: 0.5rem 0 2rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2rem 0.8rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
p.note { color: #555; }
"""


def bars(values: Mapping[str, Mapping[str, float]], unit: str) -> str:
    """An SVG of bars: a cluster for each key, in it a bar for each series, all to one scale."""
    series = list(dict.fromkeys(name for each in values.values() for name in each))
    most = max((v for each in values.values() for v in each.values()), default=0) or 1
    height, gap, left, width = 18, 14, 150, 520
    parts, y = [], 0
    for key, each in values.items():
        parts.append(f'<text x="0" y="{y + 13}">{html.escape(key)}</text>')
        for name, value in each.items():
            colour = _COLOURS[series.index(name) % len(_COLOURS)]
            long = max(1.0, width * value / most)
            size = f'width="{long:.1f}" height="{height - 3}"'
            label = f"{html.escape(name)} {value:.2f} {unit}"
            parts += [
                f'<rect x="{left}" y="{y}" {size} fill="{colour}"/>',
                f'<text x="{left + long + 6:.1f}" y="{y + 13}">{label}</text>',
            ]
            y += height
        y += gap
    size = f'width="{left + width + 220}" height="{max(y, 1)}"'
    font = 'font-family="system-ui, sans-serif" font-size="12"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>{"".join(parts)}</svg>'


def table(rows: Sequence[Sequence[object]]) -> str:
    """An HTML table; the first row names the columns."""
    cells = [[html.escape(str(each)) for each in row] for row in rows]
    head = "".join(f"<th>{each}</th>" for each in cells[0])
    body = "".join("<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>" for row in cells[1:])
    return f"<table><tr>{head}</tr>{body}</table>"


def page(title: str, notes: Sequence[str], sections: Mapping[str, str]) -> str:
    """The whole page; sections are HTML by their heading."""
    said = "".join(f'<p class="note">{html.escape(note)}</p>' for note in notes)
    parts = "".join(f"<h2>{html.escape(name)}</h2>{text}" for name, text in sections.items())
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{_STYLE}</style>'
    return (
        f'<!doctype html><html lang="en"><head>{head}</head>'
        f"<body><h1>{html.escape(title)}</h1>{said}{parts}</body></html>\n"
    )
