"""The results of a GPU run as Markdown."""


def markdown(results):
    machine = ", ".join(f"{name} {value}" for name, value in results["machine"].items())
    lines = [
        "# GPU run",
        "",
        f"{machine}; package `{results['package']}`; {results['seconds']} s.",
        "",
    ]
    if results["dry_run"]:
        lines += ["A dry run on a CPU at small sizes: nothing was timed.", ""]
    lines += [f"- wrong: {each}" for each in results["wrong"]] or ["Nothing was found wrong."]
    if results.get("without_inputs"):
        lines += ["", f"Without inputs in k3.py: {', '.join(results['without_inputs'])}."]
    for phase, section in SECTIONS.items():
        if phase in results:
            lines += ["", f"## {phase}", ""]
            lines += section(results[phase]) if "error" not in results[phase] else ["It broke."]
    return "\n".join(lines) + "\n"


def table(head, rows):
    return [
        f"| {' | '.join(head)} |",
        f"|{' --- |' * len(head)}",
        *(f"| {' | '.join(str(cell) for cell in row)} |" for row in rows),
    ]


def tests(found):
    return table(("group", "result"), [(n, row["summary"]) for n, row in found["groups"].items()])


def launch_counts(found):
    rows = [
        (n, row.get("eager", "-"), row.get("fused", "broke")) for n, row in found["groups"].items()
    ]
    return table(("group", "eager", "fused"), rows)


def equality(found):
    rows = [
        (name, row.get("kernel", "broke") or "equal", row.get("eager", "-") or "equal")
        for name, row in found["groups"].items()
    ]
    return table(("group", "kernel and reference", "eager chain and reference"), rows)


def stress(found):
    rows = [
        (name, *(row.get(warps, "broke") or "equal" for warps in ("4 warps", "8 warps")))
        for name, row in found["groups"].items()
    ]
    return table(("group", "4 warps", "8 warps"), rows)


def large_pools(found):
    return (
        table(("group", "result"), found["groups"].items()) if found["groups"] else [found["note"]]
    )


def sanitizer(found):
    if not found["tools"]:
        return [found["note"]]
    return table(("tool", "result"), [(n, row["summary"]) for n, row in found["tools"].items()])


def debug(found):
    rows = [
        (name, row.get("ms", "-"), row["said"] or "no error")
        for name, row in found["calls"].items()
    ]
    return table(("call", "ms", "what it said"), rows)


def timing(found):
    """Microseconds a call, launches in parentheses; the ratios are of the medians."""
    rows = []
    for row in found["groups"].values():
        us, count = row.get("us", {}), row.get("launches", {})
        cells = [
            f"{us[name]:.2f} ({count[name]})" if name in us else "-"
            for name in ("eager", "compiled", "fused")
        ]
        ratios = [
            f"{us[name] / us['fused']:.1f}" if name in us and "fused" in us else "-"
            for name in ("eager", "compiled")
        ]
        empty = f"{us['empty']:.2f}" if "empty" in us else "-"
        rows.append((row["group"], row["G"], *cells, *ratios, empty))
    head = (
        "group",
        "G",
        "eager us",
        "torch.compile us",
        "fused us",
        "eager / fused",
        "compile / fused",
        "empty us",
    )
    notes = {row["note"] for row in found["groups"].values() if "note" in row}
    return [*table(head, sorted(rows, key=lambda row: (row[0], row[1]))), "", *sorted(notes)]


SECTIONS = {
    "tests": tests,
    "launch_counts": launch_counts,
    "equality": equality,
    "stress": stress,
    "large_pools": large_pools,
    "debug": debug,
    "sanitizer": sanitizer,
    "timing": timing,
}
