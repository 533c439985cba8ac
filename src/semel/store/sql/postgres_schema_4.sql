-- semel on PostgreSQL, from schema version 3 to 4: pages keep room for one update of each row, so that it stays in place (HOT)
-- and needs no second entry in the index, however late what is dead is cleaned away. Pages that are full already stay as they are.
ALTER TABLE semel.task SET (fillfactor = 50);
ALTER TABLE semel.effect SET (fillfactor = 50);
-- What waits stands in line tenant by tenant too, so that each has its turn (see store/turns.py).
CREATE INDEX ready_turn ON semel.ready (queue, kind, tenant, rank, due, task);
