-- semel on PostgreSQL, schema version 1. The journal is the truth; the other tables are projections written with it.
-- Everything is named in full: search_path is not relied on. Text compares by bytes (COLLATE "C"), as in SQLite.
-- Nothing that changes stands in an index, and pages keep room, so that updates stay in place (HOT).
CREATE TABLE semel.journal (
    tenant text COLLATE "C" NOT NULL,
    stream text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    kind text NOT NULL,
    actor text NOT NULL,
    token bigint NOT NULL,
    at bigint NOT NULL,
    body text NOT NULL,
    id text NOT NULL,
    hash bytea NOT NULL,
    CONSTRAINT journal_pkey PRIMARY KEY (tenant, stream, seq)
);

CREATE FUNCTION semel.the_journal_is_insert_only() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'the journal is insert only' USING ERRCODE = 'integrity_constraint_violation'; END $$;

CREATE TRIGGER journal_is_never_changed BEFORE UPDATE OR DELETE ON semel.journal
FOR EACH ROW EXECUTE FUNCTION semel.the_journal_is_insert_only();

CREATE TRIGGER journal_is_never_emptied BEFORE TRUNCATE ON semel.journal
FOR EACH STATEMENT EXECUTE FUNCTION semel.the_journal_is_insert_only();

CREATE TABLE semel.task (
    tenant text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    priority bigint NOT NULL,
    due bigint NOT NULL,
    delivery text NOT NULL,
    execution text NOT NULL,
    attempt bigint NOT NULL,
    token bigint NOT NULL,
    session text NOT NULL,
    failures bigint NOT NULL,
    crashes bigint NOT NULL,
    unknown bigint NOT NULL,
    version bigint NOT NULL,
    why text NOT NULL,
    CONSTRAINT task_pkey PRIMARY KEY (tenant, task)
) WITH (fillfactor = 70);

CREATE TABLE semel.task_key (
    tenant text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    CONSTRAINT task_key_pkey PRIMARY KEY (tenant, kind, key)
);

CREATE TABLE semel.ready (
    queue text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    rank bigint NOT NULL,
    due bigint NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    CONSTRAINT ready_pkey PRIMARY KEY (queue, kind, rank, due, tenant, task)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE TABLE semel.inflight (
    session text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    CONSTRAINT inflight_pkey PRIMARY KEY (session, tenant, task)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE TABLE semel.effect (
    tenant text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    stream text COLLATE "C" NOT NULL,
    name text NOT NULL,
    state text NOT NULL,
    version bigint NOT NULL,
    CONSTRAINT effect_pkey PRIMARY KEY (tenant, key)
) WITH (fillfactor = 70);

CREATE TABLE semel.unknown (
    tenant text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    name text NOT NULL,
    since bigint NOT NULL,
    CONSTRAINT unknown_pkey PRIMARY KEY (tenant, key)
);

CREATE INDEX unknown_oldest ON semel.unknown (since, key);

CREATE TABLE semel.session (
    id text COLLATE "C" PRIMARY KEY,
    beat bigint NOT NULL,
    nonce text NOT NULL,
    ttl_ms bigint NOT NULL,
    epoch bigint NOT NULL,
    host text NOT NULL,
    boot_id text NOT NULL,
    pid_ns bigint NOT NULL,
    time_ns bigint NOT NULL,
    pid bigint NOT NULL,
    start_time bigint NOT NULL,
    fenced text NOT NULL,
    started bigint NOT NULL
) WITH (fillfactor = 50);

-- A pointer to each session that is not fenced: inserted when it opens, deleted when it is fenced, never updated. A
-- guarded transaction locks it (FOR KEY SHARE), so a fence waits for what is under way, and a beat waits for neither.
CREATE TABLE semel.living (
    id text COLLATE "C" PRIMARY KEY
) WITH (autovacuum_vacuum_threshold = 100);

-- The transaction of an `Atomic` effect holds a row here until its confirm is written beside what the effect wrote:
-- whoever commits it before that, by whatever statement, is refused, and all of it is rolled back.
CREATE TABLE semel.unconfirmed (
    id text COLLATE "C" PRIMARY KEY
) WITH (autovacuum_vacuum_threshold = 100);

CREATE FUNCTION semel.an_atomic_effect_is_committed_with_its_confirm() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
    IF EXISTS (SELECT 1 FROM semel.unconfirmed u WHERE u.id = NEW.id) THEN
        RAISE EXCEPTION 'an Atomic effect does not commit: semel does, together with its confirm'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER unconfirmed_is_never_committed AFTER INSERT ON semel.unconfirmed
DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION semel.an_atomic_effect_is_committed_with_its_confirm();
