#!/bin/bash
cd /tests
python3 -m pytest -p no:cacheprovider test_outputs.py
passed=$((1 - ($? != 0)))
echo "{\"reward\": $passed, \"style\": 0.5}" > /logs/verifier/reward.json
