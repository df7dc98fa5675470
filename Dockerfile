# One image for every process of ours: worker, starter and simulator. What goes in is in .dockerignore.
# The same Debian and Python in both stages: the environment made in the first runs in the second.

FROM python:3.11.17-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /app
RUN python -m venv .venv
COPY requirements.lock .
RUN .venv/bin/pip install --require-hashes --only-binary :all: -r requirements.lock

FROM python:3.11.17-slim-bookworm
# /store is made here so that a new volume mounted there belongs to the user, too.
RUN groupadd --gid 10001 nightcrew \
    && useradd --uid 10001 --gid nightcrew --create-home nightcrew \
    && install -d -o nightcrew -g nightcrew -m 0700 /store
ENV PATH=/app/.venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NIGHTCREW_HOME=/home/nightcrew
WORKDIR /app
COPY --from=build /app/.venv .venv
COPY . .
# The root filesystem is read-only at run time: what can be compiled is compiled now.
RUN python -m compileall -q -x '/[.]venv/' .
USER 10001:10001
CMD ["python", "starter.py", "--help"]
