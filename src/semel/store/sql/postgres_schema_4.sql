-- semel on PostgreSQL, from schema version 3 to 4: pages keep room for one update of each row, so that it stays in place (HOT)
-- and needs no second entry in the index, however late what is dead is cleaned away. Pages that are full already stay as they are.
ALTER TABLE semel.task SET (fillfactor = 50);
ALTER TABLE semel.effect SET (fillfactor = 50);
