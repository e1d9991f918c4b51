#!/bin/bash
echo hello > out/greeting.txt
