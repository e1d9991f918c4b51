#!/bin/sh
# Installs an MLflow tracking server, which the tests of traces talk to, with pip into .harness/venv: about a minute and
# 850 MB. The smaller packages (mlflow-skinny, mlflow-tracing) are clients: they don't serve.
set -eu
cd "$(dirname "$0")/.."
version=3.14.0
have=$(sed -n 's/^Version: //p' .harness/venv/lib/python3*/site-packages/mlflow-*.dist-info/METADATA 2>/dev/null || true)
[ "$have" = "$version" ] && [ -x .harness/venv/bin/mlflow ] && exit 0
command -v python3 >/dev/null 2>&1 || { echo "python3 is needed to install mlflow: apt-get install python3 python3-venv" >&2; exit 3; }
echo "installing with pip into .harness/venv: mlflow==$version"
mkdir -p .harness
python3 -m venv --clear .harness/venv
.harness/venv/bin/pip install --quiet --disable-pip-version-check "mlflow==$version"
