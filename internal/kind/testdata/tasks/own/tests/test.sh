#!/bin/bash
grep -q hello out/greeting.txt
