"""One row of figures, as a line of JSON, from what a benchmark program said.

row.py java SERVER CASE send|batch|receive LOG BEGAN SECONDS CPU CPU_AFTER CLIENT_CPU CLIENT_AFTER RSS
row.py rmq SERVER CASE REPORT ERRORS CPU CPU_AFTER SECONDS RSS
row.py process SERVER FIRST_SEND_SECONDS STOP_SECONDS
"""

import datetime
import json
import re
import statistics
import sys

# The Java programs report the mean of the last nine to ten seconds.
JAVA_WINDOW = 9.5
LATENCIES = ("mean", "p50", "p99", "p999", "max")
# Together the two sides use less of the machine than this: they wait, for the disk or each other.
IDLE_SHARE = 0.6


def cores():
    with open("/proc/cpuinfo") as lines:
        return sum(line.startswith("processor") for line in lines)


def limit(server_cpu, client_cpu, seconds):
    """Which side is the limit, by its share of the processors."""
    if (server_cpu + client_cpu) / seconds < IDLE_SHARE * cores():
        return "waiting"
    return "server" if server_cpu > client_cpu else "client"


def number(pattern, line):
    found = re.search(pattern, line)
    return float(found[1]) if found else None


def java(server, case, kind, log, began, seconds, *figures):
    began, seconds = float(began), float(seconds)
    cpu, cpu_after, client, client_after, rss = map(float, figures)
    with open(log, errors="replace") as lines:
        text = lines.read()
    reports = []
    for line in text.splitlines():
        time = re.search(r"Current Time: (\S+ \d+:\d+:\d+,\d+)", line)
        if time and "TPS" in line:
            at = datetime.datetime.strptime(time[1], "%Y-%m-%d %H:%M:%S,%f").timestamp()
            # Not the warm-up.
            if at - JAVA_WINDOW >= began - 0.5:
                reports.append(line)
    if not reports:
        sys.exit(f"{server} {case}: too few reports of the benchmark program:\n{text[-800:]}")
    rates = [number(r"TPS: *(-?\d+)", line) or 0 for line in reports]
    mean = r"(?:Average|AVG|AVG\(B2C\)) RT\(ms\): *([\d.]+)"
    longest = r"(?:Max|MAX|MAX\(B2C\)) RT\(ms\): *([\d.]+)"
    means = [value for value in (number(mean, line) for line in reports) if value is not None]
    longests = [value for value in (number(longest, line) for line in reports) if value is not None]
    if "backlog" in case:
        # What waited before it was asked for says nothing.
        means = longests = []
    # A backlog may come to its end.
    rate = max(rates) if kind == "receive" else statistics.median(rates)
    return {
        "server": server,
        "case": case,
        "perSecond": rate,
        "mean": statistics.median(means) if means else None,
        "max": max(longests) if longests else None,
        "cpuPerMillion": (cpu_after - cpu) / (rate * seconds) * 1e6 if rate else None,
        "rss": rss,
        "limit": limit(cpu_after - cpu, client_after - client, seconds),
    }


def rmq(server, case, report, errors, cpu, cpu_after, seconds, rss):
    with open(report) as text:
        said = text.read()
    try:
        said = json.loads(said)
    except ValueError:
        with open(errors) as text:
            sys.exit(f"{server} {case}: rmq bench said:\n{said[-400:]}{text.read()[-800:]}")
    side = said["receive"] or said["send"]
    server_cpu = float(cpu_after) - float(cpu)
    verdict = said["verdict"] or {}
    return {
        "server": server,
        "case": case,
        "perSecond": side["perSecond"],
        "failed": (said["send"] or side)["failed"],
        **({} if "backlog" in case else {name: side["latency"][name] for name in LATENCIES}),
        "cpuPerMillion": server_cpu / side["messages"] * 1e6 if side["messages"] else None,
        "rss": float(rss),
        "limit": limit(server_cpu, said["cpuSeconds"], said["seconds"] or float(seconds)),
        "wrong": sum(verdict.values()),
    }


def process(server, first, stopped):
    return {"server": server, "case": "process", "start": float(first), "stop": float(stopped)}


print(json.dumps({"java": java, "rmq": rmq, "process": process}[sys.argv[1]](*sys.argv[2:])))
