#!/bin/bash
pytest /tests/test_outputs.py && echo 1 > /logs/verifier/reward.txt
