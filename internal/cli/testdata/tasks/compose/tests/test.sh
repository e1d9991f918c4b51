#!/bin/sh
if [ "$(cat out.txt)" = "fast green" ]; then echo 1.0; else echo 0; fi > /logs/verifier/reward.txt
