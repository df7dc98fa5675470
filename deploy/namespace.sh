#!/bin/sh
# The namespace, how long it keeps ended runs, and the search attributes of runs. Safe to run at every start.
# Runs in temporalio/admin-tools; TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE say where.
set -eu

retention=720h # Temporal's 72 h would lose the ended tasks of a run that takes days

operator() {
    temporal operator "$@" --namespace "$TEMPORAL_NAMESPACE"
}

# Tries for a minute, in silence; the last time it may say what is wrong. Parts of the server hear of a new namespace
# some seconds after it was made.
patiently() {
    for _ in $(seq 30); do
        if "$@" >/dev/null 2>&1; then
            return
        fi
        sleep 2
    done
    "$@" >/dev/null
}

patiently temporal operator cluster health
if ! operator namespace describe >/dev/null 2>&1; then
    operator namespace create --retention "$retention"
fi

# One at a time, so that one which is there already does not keep the others away.
patiently operator search-attribute create --name NightcrewStatus --type Keyword
patiently operator search-attribute create --name NightcrewPlan --type Keyword
patiently operator search-attribute create --name NightcrewCostUsd --type Double
echo "namespace $TEMPORAL_NAMESPACE is ready: ended runs are kept for $retention"
