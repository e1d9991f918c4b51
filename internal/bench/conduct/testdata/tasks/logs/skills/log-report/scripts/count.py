"""count.py LOG: how often each status occurs."""
import collections
import sys

with open(sys.argv[1]) as log:
    seen = collections.Counter(line.split()[-2] for line in log)
for status in sorted(seen):
    print(status, seen[status])
print("total", sum(seen.values()))
