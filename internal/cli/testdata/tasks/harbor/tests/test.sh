#!/bin/bash
# As public tasks do, but nothing is fetched.
if [ "$PWD" = "/" ]; then
	echo "no working directory is set"
	exit 1
fi
test "$LEVEL" = 3 || exit 1
python3 -m pytest -rA -p no:cacheprovider --junitxml=/logs/verifier/junit.xml /tests/test_outputs.py
if [ $? -eq 0 ]; then
	echo 1 > /logs/verifier/reward.txt
else
	echo 0 > /logs/verifier/reward.txt
fi
