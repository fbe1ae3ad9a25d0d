"""One row from the reports of a benchmark program: server case tps cpu_seconds_per_million rss_kib."""

import os
import re
import statistics
import sys

server, case, log, ticks, rss = sys.argv[1:]
with open(log, errors="replace") as lines:
    reports = [line for line in lines if "TPS" in line and "Current Time" in line]
# The first report covers the start of the client.
rates = [float(re.search(r"TPS: *(-?\d+)", line)[1]) for line in reports[1:]]
if not rates:
    with open(log, errors="replace") as lines:
        said = lines.read()[-800:]
    sys.exit(f"{server} {case}: too few reports of the benchmark program, which said:\n{said}")
rate = statistics.median(rates)
interval = 2.0
messages = sum(rates) * interval * len(reports) / len(rates)
cpu = int(ticks) / os.sysconf("SC_CLK_TCK")
print(server, case, round(rate), round(cpu / messages * 1e6, 2) if messages else "nan", rss)
