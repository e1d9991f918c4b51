#!/usr/bin/env python3
"""Finds programs that were started more often than the parameter "most" says. Events come on standard input."""
import collections
import json
import os
import sys

most = json.loads(os.environ["BODYCAM_PARAMETERS"]).get("most", 100)
first, count = {}, collections.Counter()
for line in sys.stdin:
    e = json.loads(line)
    if e["type"] == "exec" and e["errno"] == 0:
        first.setdefault(e["exe"], e["seq"])
        count[e["exe"]] += e["count"]
findings = [
    {"rule": "loud-program", "severity": "low", "title": f"{exe} was started {n} times",
     "resource": exe, "events": [first[exe]], "count": n}
    for exe, n in sorted(count.items()) if n > most
]
json.dump({"version": "1.0", "findings": findings}, sys.stdout)
