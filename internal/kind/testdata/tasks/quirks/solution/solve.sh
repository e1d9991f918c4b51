#!/bin/bash
echo b > /srv/app/answer.txt
