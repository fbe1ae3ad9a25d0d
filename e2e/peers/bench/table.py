"""The medians of all rounds side by side, as text, JSON and Markdown: table.py ROWS DIRECTORY."""

import collections
import json
import pathlib
import statistics
import sys

rows = collections.defaultdict(lambda: collections.defaultdict(list))
with open(sys.argv[1]) as lines:
    for line in lines:
        row = json.loads(line)
        rows[row["case"]][row["server"]].append(row)
directory = pathlib.Path(sys.argv[2])


def median(found, name):
    values = [row[name] for row in found if row.get(name) is not None]
    return statistics.median(values) if values else None


def spread(found, name):
    """Half of the distance between the largest and the smallest, in percent of the median."""
    values = [row[name] for row in found if row.get(name) is not None]
    middle = statistics.median(values) if values else 0
    return (max(values) - min(values)) / 2 / middle * 100 if middle else None


def ratio(ours, apache):
    return ours / apache if ours is not None and apache else None


def common(found, name):
    values = [row[name] for row in found if name in row]
    return max(set(values), key=values.count) if values else None


HEAD = [
    "case", "Apache/s", "±%", "ours/s", "±%", "ratio",
    "Apache p50/p99/p99.9 ms", "ours p50/p99/p99.9 ms", "p99 ratio",
    "Apache CPU s/M", "ours", "ratio", "Apache MiB", "ours", "limit Apache", "limit ours",
]  # fmt: skip


def show(value, form="{:,.0f}"):
    return "-" if value is None else form.format(value)


def latencies(side):
    if side["mean"] is None:
        return "-"
    if side["p50"] is None:
        return f"mean {show(side['mean'], '{:.2f}')} max {show(side['max'], '{:.0f}')}"
    return "/".join(show(side[name], "{:.2f}") for name in ("p50", "p99", "p999"))


table, results = [], []
for case, servers in rows.items():
    if case == "process" or len(servers) < 2:
        continue
    names = ("perSecond", "mean", "p50", "p99", "p999", "max", "cpuPerMillion", "rss")
    both = {}
    for server, found in servers.items():
        both[server] = {name: median(found, name) for name in names}
        both[server] |= {
            "rounds": len(found),
            "spread": spread(found, "perSecond"),
            "limit": common(found, "limit"),
            "failed": sum(row.get("failed") or 0 for row in found),
            "wrong": sum(row.get("wrong") or 0 for row in found),
        }
    apache, ours = both["apache"], both["ours"]
    ratios = {name: ratio(ours[name], apache[name]) for name in ("perSecond", "p99", "cpuPerMillion", "rss")}
    results.append({"case": case, "apache": apache, "ours": ours, "ratio": ratios})
    mib = 1024 * 1024
    table.append([
        case,
        show(apache["perSecond"]), show(apache["spread"]),
        show(ours["perSecond"]), show(ours["spread"]), show(ratios["perSecond"], "{:.2f}x"),
        latencies(apache), latencies(ours), show(ratios["p99"], "{:.2f}x"),
        show(apache["cpuPerMillion"], "{:.1f}"), show(ours["cpuPerMillion"], "{:.1f}"),
        show(ratios["cpuPerMillion"], "{:.2f}x"),
        show(apache["rss"] / mib), show(ours["rss"] / mib), apache["limit"] or "-", ours["limit"] or "-",
    ])  # fmt: skip

widths = [max(len(line[at]) for line in [HEAD, *table]) for at in range(len(HEAD))]
lines = ["  ".join(cell.ljust(w) if at == 0 else cell.rjust(w) for at, (cell, w) in enumerate(zip(line, widths)))
         for line in [HEAD, *table]]  # fmt: skip
summary = []
for kind in ("java", "rmq"):
    found = [row["ratio"]["perSecond"] for row in results if row["case"].startswith(kind) and row["ratio"]["perSecond"]]
    if found:
        summary.append(f"{kind}: {statistics.median(found):.2f}x at the median, {min(found):.2f}x at least")
process = {}
for server, found in rows["process"].items():
    process[server] = {name: median(found, name) for name in ("start", "stop")}
    figures = process[server]
    summary.append(f"{server}: {figures['start']:.2f} s from start to first send, {figures['stop']:.2f} s from SIGTERM to exit")
for row in results:
    for server in ("apache", "ours"):
        if row[server]["failed"] or row[server]["wrong"]:
            summary.append(f"{row['case']} {server}: {row[server]['failed']} failed, {row[server]['wrong']} lost, doubled or reordered")

text = "\n".join([*lines, "", *summary]) + "\n"
print(text, end="")
(directory / "table.txt").write_text(text)
(directory / "table.json").write_text(json.dumps({"rows": results, "process": process}, indent=1) + "\n")
marks = ["|".join(["", *HEAD, ""]), "|" + "|".join(["---"] + ["---:"] * (len(HEAD) - 1)) + "|"]
marks += ["|".join(["", *line, ""]) for line in table]
(directory / "table.md").write_text("\n".join([*marks, "", *(f"* {line}" for line in summary)]) + "\n")
