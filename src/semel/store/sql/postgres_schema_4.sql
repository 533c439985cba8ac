-- semel on PostgreSQL, from schema version 3 to 4: what waits, tenant by tenant, so that each has its turn (see store/turns.py).
CREATE INDEX ready_turn ON semel.ready (queue, kind, tenant, rank, due, task);
