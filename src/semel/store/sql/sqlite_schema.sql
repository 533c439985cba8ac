-- semel on SQLite, schema version 1. The journal is the truth; the other tables are projections written with it.
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE journal (
    tenant TEXT NOT NULL,
    stream TEXT NOT NULL,
    seq INTEGER NOT NULL,
    kind TEXT NOT NULL,
    actor TEXT NOT NULL,
    token INTEGER NOT NULL,
    at INTEGER NOT NULL,
    body TEXT NOT NULL,
    id TEXT NOT NULL,
    hash BLOB NOT NULL,
    PRIMARY KEY (tenant, stream, seq)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER journal_is_never_updated BEFORE UPDATE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal is insert only'); END;

CREATE TRIGGER journal_is_never_deleted BEFORE DELETE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal is insert only'); END;

-- INSERT OR REPLACE deletes without a word to the trigger above.
CREATE TRIGGER journal_is_never_replaced BEFORE INSERT ON journal
WHEN EXISTS (SELECT 1 FROM journal WHERE tenant = NEW.tenant AND stream = NEW.stream AND seq = NEW.seq)
BEGIN SELECT RAISE(ABORT, 'the journal is insert only'); END;

CREATE TABLE task (
    tenant TEXT NOT NULL,
    task TEXT NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    due INTEGER NOT NULL,
    delivery TEXT NOT NULL,
    execution TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    token INTEGER NOT NULL,
    session TEXT NOT NULL,
    failures INTEGER NOT NULL,
    crashes INTEGER NOT NULL,
    unknown INTEGER NOT NULL,
    version INTEGER NOT NULL,
    why TEXT NOT NULL,
    PRIMARY KEY (tenant, task)
) STRICT, WITHOUT ROWID;

CREATE TABLE task_key (
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    task TEXT NOT NULL,
    PRIMARY KEY (tenant, kind, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE ready (
    queue TEXT NOT NULL,
    kind TEXT NOT NULL,
    rank INTEGER NOT NULL,
    due INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    task TEXT NOT NULL,
    PRIMARY KEY (queue, kind, rank, due, tenant, task)
) STRICT, WITHOUT ROWID;

CREATE TABLE inflight (
    session TEXT NOT NULL,
    tenant TEXT NOT NULL,
    task TEXT NOT NULL,
    PRIMARY KEY (session, tenant, task)
) STRICT, WITHOUT ROWID;

CREATE TABLE effect (
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    task TEXT NOT NULL,
    stream TEXT NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE unknown (
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    task TEXT NOT NULL,
    name TEXT NOT NULL,
    since INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE session (
    id TEXT PRIMARY KEY,
    beat INTEGER NOT NULL,
    nonce TEXT NOT NULL,
    ttl_ms INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    host TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    pid_ns INTEGER NOT NULL,
    time_ns INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    start_time INTEGER NOT NULL,
    fenced TEXT NOT NULL,
    started INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX session_living ON session (id) WHERE fenced = '';
