#!/bin/bash
score=0
[ -e "/app/one two.jpg" ] && score=$((score+1))
[ -e /app/three.jpg ] && score=$((score+1))
[ -z "$(ls /app/*.jpeg 2>/dev/null)" ] && [ -e /app/README ] && score=$((score+1))
awk "BEGIN { print $score / 3 }" > /logs/verifier/reward.txt
exit $((score < 3))
