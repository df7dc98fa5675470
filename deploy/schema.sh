#!/bin/sh
# Temporal's two databases in PostgreSQL, brought to the schema of this version. Safe to run at every start.
# Runs in temporalio/admin-tools; the password is in SQL_PASSWORD, where no list of processes shows it.
set -eu

versions=/etc/temporal/schema/postgresql/v12

tool() {
    temporal-sql-tool --plugin postgres12 --ep "$POSTGRES_SEEDS" -p "$DB_PORT" -u "$POSTGRES_USER" --db "$@"
}

prepare() {
    database=$1
    folder=$2
    tool "$database" create
    # A database that has a schema is only brought up to date; one without is told so, and begins at 0.0.
    if ! tool "$database" update-schema -d "$versions/$folder/versioned"; then
        echo "$database has no schema yet: this is its first start"
        tool "$database" setup-schema -v 0.0
        tool "$database" update-schema -d "$versions/$folder/versioned"
    fi
}

prepare temporal temporal
prepare temporal_visibility visibility
