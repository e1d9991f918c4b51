#!/bin/bash
/root/.agents/skills/word-count/scripts/count.sh /root/text.txt > /root/count.txt
