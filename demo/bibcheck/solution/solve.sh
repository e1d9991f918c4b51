#!/bin/bash
printf '{"fabricated": ["brandt1999sealed", "harrow2011ledger", "okafor2019provenance", "vance2022witness"]}\n' >/root/work/answer.json
