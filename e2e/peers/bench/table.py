"""The medians of all rounds side by side."""

import collections
import statistics
import sys

rows = collections.defaultdict(lambda: collections.defaultdict(list))
with open(sys.argv[1]) as lines:
    for line in lines:
        server, case, *figures = line.split()
        rows[case][server].append([float(figure) for figure in figures])

head = ("case", "Apache/s", "ours/s", "ratio", "Apache CPU s/M", "ours CPU s/M", "Apache MiB", "ours MiB")
print(("{:<18}" + "{:>16}" * 7).format(*head))
for case, servers in rows.items():
    if len(servers) < 2:
        continue
    median = {s: [statistics.median(column) for column in zip(*r)] for s, r in servers.items()}
    apache, ours = median["apache"], median["ours"]
    cells = (apache[0], ours[0], ours[0] / apache[0], apache[1], ours[1], apache[2] / 1024, ours[2] / 1024)
    formats = ("{:>16,.0f}", "{:>16,.0f}", "{:>15.2f}x") + ("{:>16.1f}",) * 4
    print("{:<18}".format(case) + "".join(f.format(c) for f, c in zip(formats, cells)))
