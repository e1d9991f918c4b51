#!/bin/sh
# Installs an MLflow tracking server, which the tests of traces talk to, with pip into .harness/venv: half a minute and 380 MB.
# mlflow's own list of what it needs would be 850: what the server never imports (scikit-learn, scipy, pyarrow, matplotlib, docker,
# skops, gunicorn) is left out. The smaller packages alone (mlflow-skinny, mlflow-tracing) are clients: they don't serve.
set -eu
cd "$(dirname "$0")/.."
version=3.14.0
have=$(sed -n 's/^Version: //p' .harness/venv/lib/python3*/site-packages/mlflow-*.dist-info/METADATA 2>/dev/null || true)
[ "$have" = "$version" ] && [ -x .harness/venv/bin/mlflow ] && exit 0
command -v python3 >/dev/null 2>&1 || { echo "python3 is needed to install mlflow: apt-get install python3 python3-venv" >&2; exit 3; }
echo "installing with pip into .harness/venv: mlflow==$version (about 380 MB)"
mkdir -p .harness
python3 -m venv --clear .harness/venv
pip() { .harness/venv/bin/pip install --quiet --disable-pip-version-check "$@"; }
pip "mlflow-skinny==$version" 'Flask<4' 'Flask-CORS<7' 'alembic<2,!=1.10.0' 'sqlalchemy<3' 'graphene<4' 'huey<4,>=2.5.4' 'aiohttp<4' \
	'cryptography<49,>=43' 'numpy<3' 'pandas<3'
# Last, and without its list: that it is there tells the next call that all is.
pip --no-deps "mlflow-tracing==$version" "mlflow==$version"
