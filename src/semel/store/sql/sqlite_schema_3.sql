-- semel on SQLite, from schema version 2 to 3: what waits, tenant by tenant, so that each has its turn (see store/turns.py).
CREATE INDEX ready_turn ON ready (queue, kind, tenant, rank, due, task);
