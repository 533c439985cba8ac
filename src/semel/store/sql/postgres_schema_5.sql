-- semel on PostgreSQL, from schema version 4 to 5: rows are shorter, and what is there stays as it is. The version keeps an older
-- semel out, which could not read them: it says so when it opens the store, and would at the first such row.
COMMENT ON COLUMN semel.journal.body IS 'JSON; a field that the columns of the row say by themselves is left out (machine/journal.py)';
COMMENT ON COLUMN semel.task.version IS 'the seq of the last event that changed the row (machine/projection.py)';
